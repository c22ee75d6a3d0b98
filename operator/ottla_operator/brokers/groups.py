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
from ottla_broker.wire.offset_commits import offset_commit
from ottla_operator.brokers.assignment import assigned
from ottla_operator.brokers.link import Link, checked
from ottla_operator.brokers.offsets import Place

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
class Listed:
    """`state`: Kafka's word (Stable, Empty, …). `protocol`: consumer, or what else the group coordinates."""

    id: str
    state: str
    protocol: str


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    client_id: str
    host: str
    partitions: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Group:
    """`state`: Dead when there is no such group."""

    id: str
    state: str
    assignor: str
    members: tuple[Member, ...]


async def all_groups(link: Link, brokers: Iterable[int]) -> list[Listed]:
    """Every group that the given brokers coordinate, by id."""
    answers = await asyncio.gather(*(link.ask(ListGroupsRequest(), broker=it) for it in brokers))
    found: dict[str, Listed] = {}
    for answer in answers:
        checked(
            answer.error_code,
            None,
            "groups",
            allow=(ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available),
        )
        for it in answer.groups:
            found[it.group_id] = Listed(it.group_id, it.group_state, it.protocol_type)
    return [found[id_] for id_ in sorted(found)]


async def describe(link: Link, group: str) -> Group:
    request = DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=False)
    (it,) = (await link.ask_coordinator(group, request)).groups
    if it.error_code == ErrorCode.group_id_not_found:
        return Group(group, "Dead", "", ())
    checked(it.error_code, None, f"group {group!r}")
    members = tuple(
        Member(member.member_id, member.client_id, member.client_host.lstrip("/"), assigned(member.member_assignment))
        for member in it.members
    )
    return Group(group, it.group_state, it.protocol_data, members)


async def committed(link: Link, group: str) -> dict[Place, int]:
    """The offsets that a group has committed."""
    answer = await link.ask_coordinator(group, OffsetFetchRequest(group_id=GroupId(group), topics=None))
    checked(answer.error_code, None, f"group {group!r}", allow=(ErrorCode.group_id_not_found,))
    return {
        (topic.name, it.partition_index): it.committed_offset
        for topic in answer.topics
        for it in topic.partitions
        if it.committed_offset >= 0
    }


async def commit(link: Link, group: str, places: Mapping[Place, int]) -> None:
    """Sets a group's offsets. The group must have no members."""
    request = offset_commit(group, {place: (offset, "") for place, offset in places.items()})
    for topic in (await link.ask_coordinator(group, request)).topics:
        for it in topic.partitions:
            checked(
                it.error_code,
                MEMBERS.get(it.error_code),
                f"group {group!r}, partition {topic.name}-{it.partition_index}",
            )


async def delete(link: Link, group: str) -> None:
    """Forgets a group and its offsets. It must have no members."""
    (it,) = (await link.ask_coordinator(group, DeleteGroupsRequest(groups_names=(GroupId(group),)))).results
    checked(it.error_code, MEMBERS.get(it.error_code), f"group {group!r}")
