"""Committed offsets of consumer groups: copied from the source, and reset where a topic is
truncated.

Offsets of mirrored records are identical, so a group that moves here continues at the very next
record.

- Offsets are copied for mirrored topics only, and at most to the high watermark here: a greater
  offset would skip records that are written here after a failover.
- A copied offset moves a group only forward, and only while it has no members here.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest
from kio.schema.types import GroupId

from ottla_broker.log.file_names import TopicPartition
from ottla_broker.mirroring.mirror_config import matches_name
from ottla_broker.mirroring.target_errors import TargetClusterError, as_target_errors
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.offset_commit import build_offset_commit

logger = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    metadata: str = ""


Commits = Mapping[TopicPartition, CommittedOffset]


def offsets_to_commit(
    source: Commits, target: Commits, high_watermarks: Mapping[TopicPartition, int]
) -> dict[TopicPartition, CommittedOffset]:
    """Offsets to commit for a group here. `high_watermarks` are those of the mirrored partitions.

    Pure.
    """
    found: dict[TopicPartition, CommittedOffset] = {}
    for partition, commit in source.items():
        high_watermark = high_watermarks.get(partition)
        if high_watermark is not None:
            offset = min(commit.offset, high_watermark)
            if partition not in target or target[partition].offset < offset:
                found[partition] = CommittedOffset(offset, commit.metadata)
    return found


def offsets_to_reset(committed: Commits, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommittedOffset]:
    """Commits beyond the ends that partitions will have, each moved back to the end. Pure."""
    return {
        partition: CommittedOffset(ends[partition], it.metadata)
        for partition, it in committed.items()
        if partition in ends and it.offset > ends[partition]
    }


def rename_topics(commits: Commits, topics: Mapping[str, str]) -> dict[TopicPartition, CommittedOffset]:
    """Commits for mirrored topics by the names that these have here.

    `topics`: name at the source → name here. Pure.
    """
    return {(topics[topic], index): it for (topic, index), it in commits.items() if topic in topics}


class GroupOffsetSync:
    """Copies the committed offsets of the groups that `patterns` match from the source cluster to
    the target.
    """

    def __init__(self, patterns: tuple[str, ...], source: Client, target: Client) -> None:
        self._patterns = patterns
        self._source = source
        self._target = target
        self._synced: dict[str, Commits] = {}  # the source's commits when all of them were committed here
        self._unfinished: set[str] = set()

    async def sync_groups(self, topics: Mapping[str, str]) -> None:
        """Synchronises every group once. `topics`: name at the source → name here.

        Groups that failed the last time come last, so that a coordinator that does not respond does
        not block the others. Raises OSError, TimeoutError; KafkaError if the groups cannot be
        listed, or that of the first group that failed, after all groups were tried. What the target
        raises is a TargetClusterError.
        """
        first_error: KafkaError | TargetClusterError | None = None
        groups = [it for it in await list_groups(self._source) if matches_name(it, self._patterns)]
        for group in sorted(groups, key=self._unfinished.__contains__):
            self._unfinished.add(group)
            try:
                commits = rename_topics(await fetch_committed_offsets(self._source, group), topics)
                if commits and commits != self._synced.get(group):
                    with as_target_errors():
                        await self._sync_group(group, commits)
            except KafkaError as reason:
                first_error = first_error or reason
            except TargetClusterError as reason:
                if not isinstance(reason.__cause__, KafkaError):
                    raise
                first_error = first_error or reason
            else:
                self._unfinished.remove(group)
        if first_error is not None:
            raise first_error

    async def _sync_group(self, group: str, commits: Commits) -> None:
        target, ends = await fetch_committed_offsets(self._target, group), await self._high_watermarks(commits)
        try:
            if wanted := offsets_to_commit(commits, target, ends):
                await commit_offsets(self._target, group, wanted)
        except KafkaError as reason:
            if reason.code not in GROUP_IN_USE_ERRORS:
                raise
            logger.debug("group %s has members in this cluster: its offsets are not copied", group)
            return
        if all(it.offset <= ends.get(partition, -1) for partition, it in commits.items()):
            self._synced[group] = commits

    async def _high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = sorted(partitions)
        ends = await asyncio.gather(*(self._target.list_offset(*partition) for partition in wanted))
        return dict(zip(wanted, ends, strict=True))


async def reset_offsets(client: Client, ends: Mapping[TopicPartition, int]) -> None:
    """Moves the commits of all groups back to the ends that partitions will have after a
    truncation.

    The source's records take the same offsets, and a group beyond them would skip them. A group
    with members is left alone: its consumers detect the truncation (KIP-320). Raises OSError,
    TimeoutError, KafkaError.
    """
    if not ends:
        return
    for group in await list_groups(client, ignored=frozenset()):
        wanted = offsets_to_reset(await fetch_committed_offsets(client, group), ends)
        if not wanted:
            continue
        try:
            await commit_offsets(client, group, wanted)
        except KafkaError as reason:
            if reason.code not in GROUP_IN_USE_ERRORS:
                raise
            logger.warning("group %s has members: its offsets are not reset to %s", group, wanted)


async def list_groups(client: Client, ignored: frozenset[ErrorCode] = COORDINATOR_UNAVAILABLE_ERRORS) -> list[str]:
    """Names of all groups, without those of brokers that respond with an `ignored` error.

    Raises KafkaError.
    """
    brokers = [int(it.node_id) for it in (await client.metadata(())).brokers]
    responses = await asyncio.gather(*(client.send(ListGroupsRequest(), broker=it) for it in brokers))
    found: set[str] = set()
    for response in responses:
        if response.error_code not in ignored:
            raise_for_error(response.error_code, f"a broker did not list its groups: {response.error_code.name}")
        found.update(str(it.group_id) for it in response.groups)
    return sorted(found)


async def fetch_committed_offsets(client: Client, group: str) -> dict[TopicPartition, CommittedOffset]:
    """Empty for a group that does not exist. Partitions whose offset has an error are left out.
    Raises KafkaError.
    """
    response = await client.send_to_coordinator(group, OffsetFetchRequest(group_id=GroupId(group), topics=None))
    if response.error_code is ErrorCode.group_id_not_found:
        return {}
    raise_for_error(response.error_code, f"offsets of group {group!r}")
    return {
        (str(topic.name), int(it.partition_index)): CommittedOffset(int(it.committed_offset), it.metadata or "")
        for topic in response.topics
        for it in topic.partitions
        if it.error_code is ErrorCode.none and it.committed_offset >= 0
    }


async def commit_offsets(client: Client, group: str, commits: Commits) -> None:
    """Commits for a group without members.

    Raises the KafkaError of the first partition that is refused.
    """
    request = build_offset_commit(group, {partition: (it.offset, it.metadata) for partition, it in commits.items()})
    for topic in (await client.send_to_coordinator(group, request)).topics:
        for result in topic.partitions:
            raise_for_error(result.error_code, f"offset of group {group!r} in {topic.name}-{result.partition_index}")
