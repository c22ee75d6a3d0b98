"""Consumer groups: who is in them, how far they are, and putting them elsewhere."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest
from kio.schema.types import GroupId

from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.offset_commit import build_offset_commit
from ottla_operator.kafka.assignment import parse_assignment
from ottla_operator.kafka.client import KafkaClient, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition

# How brokers say that somebody is in the group.
MEMBERS: Final = dict.fromkeys(
    (
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
        ErrorCode.non_empty_group,
    ),
    "it has members; stop them first",
)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """`state`: Kafka's word (Stable, Empty, …). `protocol`: consumer, or what else the group coordinates."""

    id: str
    state: str
    protocol: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    id: str
    client_id: str
    host: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`state`: Dead when there is no such group."""

    id: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]


async def list_groups(link: KafkaClient, brokers: Iterable[int]) -> list[GroupListing]:
    """Every group that the given brokers coordinate, by id."""
    answers = await asyncio.gather(*(link.ask(ListGroupsRequest(), broker=it) for it in brokers))
    found: dict[str, GroupListing] = {}
    for answer in answers:
        raise_for_error(
            answer.error_code,
            None,
            "groups",
            allow=(ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available),
        )
        for it in answer.groups:
            found[it.group_id] = GroupListing(it.group_id, it.group_state, it.protocol_type)
    return [found[id_] for id_ in sorted(found)]


async def describe_group(link: KafkaClient, group: str) -> GroupDescription:
    request = DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=False)
    (it,) = (await link.ask_coordinator(group, request)).groups
    if it.error_code == ErrorCode.group_id_not_found:
        return GroupDescription(group, "Dead", "", ())
    raise_for_error(it.error_code, None, f"group {group!r}")
    members = tuple(
        MemberDescription(
            member.member_id,
            member.client_id,
            member.client_host.lstrip("/"),
            parse_assignment(member.member_assignment),
        )
        for member in it.members
    )
    return GroupDescription(group, it.group_state, it.protocol_data, members)


async def list_group_offsets(link: KafkaClient, group: str) -> dict[TopicPartition, int]:
    """The offsets that a group has committed."""
    answer = await link.ask_coordinator(group, OffsetFetchRequest(group_id=GroupId(group), topics=None))
    raise_for_error(answer.error_code, None, f"group {group!r}", allow=(ErrorCode.group_id_not_found,))
    return {
        (topic.name, it.partition_index): it.committed_offset
        for topic in answer.topics
        for it in topic.partitions
        if it.committed_offset >= 0
    }


async def alter_group_offsets(link: KafkaClient, group: str, places: Mapping[TopicPartition, int]) -> None:
    """Sets a group's offsets. The group must have no members."""
    request = build_offset_commit(group, {place: (offset, "") for place, offset in places.items()})
    for topic in (await link.ask_coordinator(group, request)).topics:
        for it in topic.partitions:
            raise_for_error(
                it.error_code,
                MEMBERS.get(it.error_code),
                f"group {group!r}, partition {topic.name}-{it.partition_index}",
            )


async def delete_group(link: KafkaClient, group: str) -> None:
    """Forgets a group and its offsets. It must have no members."""
    (it,) = (await link.ask_coordinator(group, DeleteGroupsRequest(groups_names=(GroupId(group),)))).results
    raise_for_error(it.error_code, MEMBERS.get(it.error_code), f"group {group!r}")
