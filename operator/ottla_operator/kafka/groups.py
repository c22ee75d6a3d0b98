"""Groups: list, describe (classic and consumer groups), committed offsets, delete."""

import asyncio
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import Assignment, DescribedGroup
from kio.schema.consumer_group_describe.v1.response import Member as ConsumerMember
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.list_groups.v4.request import ListGroupsRequest as ListGroupsWithoutTypes
from kio.schema.list_groups.v4.response import ListGroupsResponse as ListGroupsResponseWithoutTypes
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest
from kio.schema.types import GroupId

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.offset_commit import build_offset_commit
from ottla_operator.kafka.client import KafkaClient, none_on_error, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition

_NOT_EMPTY: Final = dict.fromkeys(
    (
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
        ErrorCode.non_empty_group,
    ),
    "it has members; stop them first",
)
"""Errors for a group that has members → message."""


CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """`state`: Stable, Empty, … `protocol`: consumer, or the type of another client. `kind`:
    classic, consumer and others; empty if the broker does not return it (Kafka before 3.8)."""

    id: str
    state: str
    protocol: str
    kind: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """`kind`: the protocol of the member, classic, consumer or streams. `target`: the partitions
    that the coordinator has assigned to it, even if it does not own them yet. `epoch` and `target`
    are None in a classic group."""

    id: str
    client_id: str
    host: str
    partitions: frozenset[TopicPartition]
    kind: str = CLASSIC
    epoch: int | None = None
    target: frozenset[TopicPartition] | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`state` is Dead if no group has this id and protocol. `epoch`: None for a classic group."""

    id: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    kind: str = CLASSIC
    epoch: int | None = None


async def list_groups(client: KafkaClient, brokers: Iterable[int]) -> list[GroupListing]:
    """Groups that the brokers coordinate, sorted by id, without those of coordinators that are
    still loading.
    """
    responses = await asyncio.gather(*(_list_groups_of(client, it) for it in brokers))
    found: dict[str, GroupListing] = {}
    unavailable = (ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available)
    for response in responses:
        raise_for_error(response.error_code, None, "groups", allow=unavailable)
        for group in response.groups:
            kind = group.group_type if isinstance(group, ListedGroup) else ""
            found[group.group_id] = GroupListing(group.group_id, group.group_state, group.protocol_type, kind)
    return [found[group_id] for group_id in sorted(found)]


async def _list_groups_of(client: KafkaClient, broker: int) -> ListGroupsResponse | ListGroupsResponseWithoutTypes:
    response: ListGroupsResponse | ListGroupsResponseWithoutTypes
    try:
        response = await client.send(ListGroupsRequest(), broker=broker)
    except KafkaError as error:
        if error.code is not ErrorCode.unsupported_version:
            raise
        response = await client.send(ListGroupsWithoutTypes(), broker=broker)
    return response


async def describe_group(client: KafkaClient, group: str) -> GroupDescription:
    """A group of the consumer or the classic protocol. `state` is Dead for a group of another
    protocol or that does not exist.
    """
    return await _describe_consumer_group(client, group) or await _describe_classic_group(client, group)


async def find_described_group(client: KafkaClient, group: str, request: Any) -> Any:
    """The group in the response to a request that describes one group of one protocol. None for a
    group of another protocol, one that does not exist, and a broker without the protocol."""
    response = await none_on_error(client.send_to_coordinator(group, request), ErrorCode.unsupported_version)
    if response is None:
        return None
    (found,) = response.groups
    if found.error_code in (ErrorCode.group_id_not_found, ErrorCode.unsupported_version):
        return None
    raise_for_error(found.error_code, found.error_message, f"group {group!r}")
    return found


async def _describe_consumer_group(client: KafkaClient, group: str) -> GroupDescription | None:
    """None for a group of another type than consumer (KIP-848), for one that does not exist, and if
    the broker does not support the type.
    """
    request = ConsumerGroupDescribeRequest(group_ids=(GroupId(group),), include_authorized_operations=False)
    found: DescribedGroup | None = await find_described_group(client, group, request)
    if found is None:
        return None
    members = tuple(_member_of_consumer_group(member) for member in found.members)
    return GroupDescription(group, found.group_state, found.assignor_name, members, CONSUMER, int(found.group_epoch))


def _member_of_consumer_group(member: ConsumerMember) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host.lstrip("/"),
        _partitions_of(member.assignment),
        CLASSIC if member.member_type == 0 else CONSUMER,
        int(member.member_epoch),
        _partitions_of(member.target_assignment),
    )


def _partitions_of(assignment: Assignment) -> frozenset[TopicPartition]:
    return frozenset((topic.topic_name, int(it)) for topic in assignment.topic_partitions for it in topic.partitions)


async def _describe_classic_group(client: KafkaClient, group: str) -> GroupDescription:
    request = DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=False)
    (found,) = (await client.send_to_coordinator(group, request)).groups
    if found.error_code == ErrorCode.group_id_not_found:
        return GroupDescription(group, "Dead", "", ())
    raise_for_error(found.error_code, None, f"group {group!r}")
    members = tuple(
        MemberDescription(
            member.member_id,
            member.client_id,
            member.client_host.lstrip("/"),
            parse_assignment(member.member_assignment),
        )
        for member in found.members
    )
    return GroupDescription(group, found.group_state, found.protocol_data, members)


def parse_assignment(data: bytes | None) -> frozenset[TopicPartition]:
    """Partitions of a member's assignment; none if it is empty or not of the consumer protocol.

    Layout: version i16 · topics array of (name string · partitions array of i32) · user data.
    https://kafka.apache.org/protocol#protocol_consumer
    """
    if not data:
        return frozenset()
    try:
        return frozenset(_parse_partitions(data))
    except (struct.error, UnicodeDecodeError):  # another protocol, such as Kafka Connect's
        return frozenset()


def _parse_partitions(data: bytes) -> list[TopicPartition]:
    partitions: list[TopicPartition] = []
    (topics,) = struct.unpack_from(">i", data, 2)
    at = 6
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", data, at)
        name = data[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (count,) = struct.unpack_from(">i", data, at)
        partitions += [(name, partition) for partition in struct.unpack_from(f">{count}i", data, at + 4)]
        at += 4 + 4 * count
    return partitions


async def list_group_offsets(client: KafkaClient, group: str) -> dict[TopicPartition, int]:
    """Committed offsets of the group; empty if it does not exist."""
    response = await client.send_to_coordinator(group, OffsetFetchRequest(group_id=GroupId(group), topics=None))
    raise_for_error(response.error_code, None, f"group {group!r}", allow=(ErrorCode.group_id_not_found,))
    return {
        (topic.name, it.partition_index): it.committed_offset
        for topic in response.topics
        for it in topic.partitions
        if it.committed_offset >= 0
    }


async def alter_group_offsets(client: KafkaClient, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits offsets of a group that has no members."""
    request = build_offset_commit(group, {partition: (offset, "") for partition, offset in offsets.items()})
    for topic in (await client.send_to_coordinator(group, request)).topics:
        for partition in topic.partitions:
            subject = f"group {group!r}, partition {topic.name}-{partition.partition_index}"
            raise_for_error(partition.error_code, _NOT_EMPTY.get(partition.error_code), subject)


async def delete_group(client: KafkaClient, group: str) -> None:
    """Deletes a group that has no members, with its offsets."""
    request = DeleteGroupsRequest(groups_names=(GroupId(group),))
    (result,) = (await client.send_to_coordinator(group, request)).results
    raise_for_error(result.error_code, _NOT_EMPTY.get(result.error_code), f"group {group!r}")
