"""Committed offsets of the source's consumer groups, copied: at identical offsets a group that moves here goes on at the very next record.

- Only for topics that are copies of this mirror's, and only as far as the copy goes: an offset beyond its high watermark would hide what is
  written here after a failover.
- Only forward, and only while nobody is in the group here: then the group is this cluster's own affair.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest
from kio.schema.types import GroupId

from ottla_broker.mirroring.patterns import matches_name
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.offset_commits import offset_commit

logger = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
COORDINATOR_UNAVAILABLE_ERRORS: Final = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available}
)
GROUP_IN_USE_ERRORS: Final = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
        ErrorCode.non_empty_group,
    }
)
GROUP_NOT_FOUND_ERRORS: Final = frozenset({ErrorCode.group_id_not_found})


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    metadata: str = ""


def offsets_to_commit(
    there: Mapping[TopicPartition, CommittedOffset],
    here: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, CommittedOffset]:
    """What is to be committed here. `ends`: high watermarks of the copies. Pure."""
    found: dict[TopicPartition, CommittedOffset] = {}
    for place, commit in there.items():
        end = ends.get(place)
        if end is not None:
            offset = min(commit.offset, end)
            if place not in here or here[place].offset < offset:
                found[place] = CommittedOffset(offset, commit.metadata)
    return found


def rename_topics(
    there: Mapping[TopicPartition, CommittedOffset], topics: Mapping[str, str]
) -> dict[TopicPartition, CommittedOffset]:
    """What the source's group has committed for topics that are copied, by the names of the copies. Pure."""
    return {(topics[topic], index): one for (topic, index), one in there.items() if topic in topics}


class GroupOffsetSync:
    """`source`, `own`: clients of the two clusters."""

    def __init__(self, patterns: tuple[str, ...], source: Client, own: Client) -> None:
        self._patterns = patterns
        self._source = source
        self._own = own
        self._settled: dict[
            str, Mapping[TopicPartition, CommittedOffset]
        ] = {}  # what the source's groups had when all of it was here
        self._unfinished: set[str] = set()

    async def sync_groups(self, topics: Mapping[str, str]) -> None:
        """Once for all groups. `topics`: the copies, their names there → here. OSError, TimeoutError; KafkaError, of the first group that is refused, when
        all others have been copied. Who could not be copied comes last the next time: nobody waits for ever behind a coordinator that does not answer."""
        refused: KafkaError | None = None
        for group in sorted(await self._groups(), key=self._unfinished.__contains__):
            self._unfinished.add(group)
            try:
                there = rename_topics(await fetch_committed_offsets(self._source, group), topics)
                if there and there != self._settled.get(group):
                    await self._copy(group, there)
            except KafkaError as reason:
                refused = refused or reason
            else:
                self._unfinished.remove(group)
        if refused is not None:
            raise refused

    async def _copy(self, group: str, there: Mapping[TopicPartition, CommittedOffset]) -> None:
        here, ends = await fetch_committed_offsets(self._own, group), await self._ends(there)
        try:
            if wanted := offsets_to_commit(there, here, ends):
                await commit_offsets(self._own, group, wanted)
        except KafkaError as reason:
            if reason.code not in GROUP_IN_USE_ERRORS:
                raise
            logger.debug("group %s is in use here: its offsets are its own", group)
            return
        if all(one.offset <= ends.get(place, -1) for place, one in there.items()):
            self._settled[group] = there

    async def _groups(self) -> list[str]:
        return [group for group in await list_groups(self._source) if matches_name(group, self._patterns)]

    async def _ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = sorted(places)
        ends = await asyncio.gather(*(self._own.list_offset(*place) for place in wanted))
        return dict(zip(wanted, ends, strict=True))


async def list_groups(client: Client, passed_over: frozenset[ErrorCode] = COORDINATOR_UNAVAILABLE_ERRORS) -> list[str]:
    """Of all groups of a cluster, but for those whose coordinators answer with one of these codes. KafkaError."""
    brokers = [int(one.node_id) for one in (await client.metadata(())).brokers]
    answers = await asyncio.gather(*(client.send(ListGroupsRequest(), broker=one) for one in brokers))
    found: set[str] = set()
    for answer in answers:
        if answer.error_code not in passed_over:
            raise_for_error(answer.error_code, f"a broker does not tell its groups: {answer.error_code.name}")
        found.update(str(one.group_id) for one in answer.groups)
    return sorted(found)


async def fetch_committed_offsets(client: Client, group: str) -> dict[TopicPartition, CommittedOffset]:
    """Empty for a group that is not there."""
    answer = await client.send_to_coordinator(group, OffsetFetchRequest(group_id=GroupId(group), topics=None))
    if answer.error_code in GROUP_NOT_FOUND_ERRORS:
        return {}
    raise_for_error(answer.error_code, f"offsets of group {group!r}")
    return {
        (str(topic.name), int(one.partition_index)): CommittedOffset(int(one.committed_offset), one.metadata or "")
        for topic in answer.topics
        for one in topic.partitions
        if one.error_code is ErrorCode.none and one.committed_offset >= 0
    }


async def commit_offsets(client: Client, group: str, places: Mapping[TopicPartition, CommittedOffset]) -> None:
    """For a group without members. KafkaError, of the first partition that is refused."""
    request = offset_commit(group, {place: (one.offset, one.metadata) for place, one in places.items()})
    for topic in (await client.send_to_coordinator(group, request)).topics:
        for answered in topic.partitions:
            raise_for_error(
                answered.error_code, f"offset of group {group!r} in {topic.name}-{answered.partition_index}"
            )
