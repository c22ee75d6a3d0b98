"""Share groups (KIP-932): members, start offsets and lag."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import DescribeShareGroupOffsetsResponseGroup
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import DescribedGroup
from kio.schema.types import GroupId

from ottla_operator.kafka.client import KafkaClient, raise_for_error
from ottla_operator.kafka.groups import GroupListing, list_groups
from ottla_operator.kafka.offsets import TopicPartition

SHARE: Final = "share"


@dataclass(frozen=True, slots=True)
class ShareMember:
    id: str
    client_id: str
    host: str
    epoch: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    id: str
    state: str
    epoch: int
    assignor: str
    members: tuple[ShareMember, ...]


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """`start_offset`: every record below it is acknowledged or archived; None where the group has
    not begun. `lag`: number of records that are neither acknowledged nor archived; None if it is
    unknown."""

    start_offset: int | None
    lag: int | None


async def list_share_groups(client: KafkaClient, brokers: Iterable[int]) -> list[GroupListing]:
    """Share groups that the brokers coordinate, sorted by id."""
    return [group for group in await list_groups(client, brokers) if group.kind.lower() == SHARE]


async def describe_share_group(client: KafkaClient, group: str) -> ShareGroupDescription:
    """Raises GROUP_ID_NOT_FOUND."""
    request = ShareGroupDescribeRequest(group_ids=(GroupId(group),), include_authorized_operations=False)
    found: DescribedGroup
    (found,) = (await client.send_to_coordinator(group, request)).groups
    raise_for_error(found.error_code, found.error_message, f"group {group!r}")
    members = tuple(
        ShareMember(
            member.member_id,
            member.client_id,
            member.client_host.lstrip("/"),
            int(member.member_epoch),
            frozenset(
                (topic.topic_name, int(it)) for topic in member.assignment.topic_partitions for it in topic.partitions
            ),
        )
        for member in found.members
    )
    return ShareGroupDescription(group, found.group_state, int(found.group_epoch), found.assignor_name, members)


async def list_share_offsets(client: KafkaClient, group: str) -> dict[TopicPartition, ShareOffset]:
    """The start offset and the lag of all partitions that the group has read. Raises
    GROUP_ID_NOT_FOUND.
    """
    group_request = DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(group), topics=None)
    found: DescribeShareGroupOffsetsResponseGroup
    (found,) = (
        await client.send_to_coordinator(group, DescribeShareGroupOffsetsRequest(groups=(group_request,)))
    ).groups
    raise_for_error(found.error_code, found.error_message, f"group {group!r}")
    offsets: dict[TopicPartition, ShareOffset] = {}
    for topic in found.topics:
        for partition in topic.partitions:
            subject = f"{topic.topic_name}-{partition.partition_index}"
            raise_for_error(partition.error_code, partition.error_message, subject)
            start = int(partition.start_offset) if partition.start_offset >= 0 else None
            lag = int(partition.lag) if partition.lag >= 0 else None
            offsets[topic.topic_name, int(partition.partition_index)] = ShareOffset(start, lag)
    return offsets
