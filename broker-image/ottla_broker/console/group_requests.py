"""Requests of the console to group coordinators."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_share_group_offsets.v0.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.offset_fetch.v8.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v8.response import OffsetFetchResponseGroup
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from ottla_broker.broker import Broker
from ottla_broker.console.cluster_requests import ClusterRequests, Failures
from ottla_broker.console.group_description import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    GroupDescription,
    ListedGroup,
    describe_classic,
    describe_modern,
    describe_streams,
)
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.wire.client import raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError

DESCRIBERS: Final[Mapping[str, Any]] = {
    CLASSIC: (
        lambda name: DescribeGroupsRequest(groups=(name,), include_authorized_operations=False),
        describe_classic,
    ),
    CONSUMER: (
        lambda name: ConsumerGroupDescribeRequest(group_ids=(name,), include_authorized_operations=False),
        describe_modern,
    ),
    SHARE: (
        lambda name: ShareGroupDescribeRequest(group_ids=(name,), include_authorized_operations=False),
        describe_modern,
    ),
    STREAMS: (
        lambda name: StreamsGroupDescribeRequest(group_ids=(name,), include_authorized_operations=False),
        describe_streams,
    ),
}
"""The request that describes a group, and the reader of its response, by the type of the group."""

OffsetsByPartition = dict[TopicPartition, int]


class GroupRequests:
    def __init__(self, broker: Broker, requests: ClusterRequests) -> None:
        self._broker = broker
        self._requests = requests

    async def list_groups(self) -> tuple[list[ListedGroup], Failures]:
        """The groups of all coordinators that respond, sorted by name."""
        request = ListGroupsRequest(states_filter=(), types_filter=())
        responses = await self._requests.send_to_brokers(
            {one.id: request for one in self._broker.image.unfenced_brokers()}
        )
        groups, failures = [], list(responses.failures)
        for broker, response in responses.by_broker.items():
            if response.error_code is not ErrorCode.none:
                failures.append(f"Broker {broker} cannot list its groups: {response.error_code.name}.")
            groups += [
                ListedGroup(str(one.group_id), one.group_type.lower(), one.group_state, one.protocol_type, broker)
                for one in response.groups
            ]
        return sorted(groups, key=lambda it: it.name), tuple(failures)

    async def find(self, name: str) -> tuple[ListedGroup | None, Failures]:
        """The group; None if no broker that responds is its coordinator."""
        groups, failures = await self.list_groups()
        return next((one for one in groups if one.name == name), None), failures

    async def describe(self, group: ListedGroup) -> GroupDescription:
        """Raises KafkaError, OSError."""
        make_request, read = DESCRIBERS[group.type]
        client = self._requests.client
        response = await client.send(make_request(GroupId(group.name)), broker=group.coordinator)
        (described,) = response.groups
        raise_for_error(described.error_code, f"group {group.name!r}: {described.error_code.name}")
        found: GroupDescription = read(described)
        return found

    async def find_committed_offsets(self, group: ListedGroup) -> OffsetsByPartition:
        """Committed offsets; of a share group the start offsets of its share-partitions. Raises
        KafkaError, OSError.
        """
        if group.type == SHARE:
            return await self._share_offsets(group)
        response = await self._requests.client.send(build_offset_fetch([group.name]), broker=group.coordinator)
        (fetched,) = response.groups
        raise_for_error(fetched.error_code, f"offsets of group {group.name!r}: {fetched.error_code.name}")
        return read_committed_offsets(fetched)

    async def find_groups_of_topic(
        self, topic: str, partitions: Sequence[int], groups: Sequence[ListedGroup]
    ) -> tuple[dict[str, OffsetsByPartition], Failures]:
        """The offsets of the topic that each of `groups` has committed, by the group's name. Groups
        without such offsets, share groups, and groups whose coordinator does not respond are left
        out.
        """
        by_coordinator: dict[int, list[str]] = defaultdict(list)
        for group in groups:
            if group.type != SHARE:
                by_coordinator[group.coordinator].append(group.name)
        responses = await self._requests.send_to_brokers(
            {broker: build_offset_fetch(names, (topic, partitions)) for broker, names in by_coordinator.items()}
        )
        found, failures = {}, list(responses.failures)
        for broker, response in responses.by_broker.items():
            for one in response.groups:
                if one.error_code is not ErrorCode.none:
                    failures.append(f"Broker {broker} returns no offsets of {one.group_id}: {one.error_code.name}.")
                elif offsets := read_committed_offsets(one):
                    found[str(one.group_id)] = offsets
        return found, tuple(failures)

    async def _share_offsets(self, group: ListedGroup) -> OffsetsByPartition:
        requested = DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(group.name), topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=(requested,))
        response = await self._requests.client.send(request, broker=group.coordinator)
        (described,) = response.groups
        if described.error_code is not ErrorCode.none:
            raise KafkaError(described.error_code, described.error_message)
        return {
            (str(topic.topic_name), int(one.partition_index)): int(one.start_offset)
            for topic in described.topics
            for one in topic.partitions
            if one.error_code is ErrorCode.none and one.start_offset >= 0
        }


def build_offset_fetch(names: Iterable[str], topic: tuple[str, Sequence[int]] | None = None) -> OffsetFetchRequest:
    """A request for committed offsets of the groups `names`. `topic`: a topic and its partitions;
    None: all topics.
    """
    topics = None
    if topic is not None:
        name, partitions = topic
        indexes = tuple(i32(one) for one in partitions)
        topics = (OffsetFetchRequestTopics(name=TopicName(name), partition_indexes=indexes),)
    return OffsetFetchRequest(
        groups=tuple(OffsetFetchRequestGroup(group_id=GroupId(one), topics=topics) for one in names)
    )


def read_committed_offsets(fetched: OffsetFetchResponseGroup) -> OffsetsByPartition:
    """The offsets of a group, without partitions for which the coordinator returns an error."""
    return {
        (str(topic.name), int(one.partition_index)): int(one.committed_offset)
        for topic in fetched.topics
        for one in topic.partitions
        if one.error_code is ErrorCode.none and one.committed_offset >= 0
    }
