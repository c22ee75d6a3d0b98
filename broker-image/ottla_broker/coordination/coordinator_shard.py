"""One partition of `__consumer_offsets` and its groups: loads them, writes their records, completes
their requests.

Each protocol of groups has its own requests, which use the shard as their store. A group has at
most one timer, which is set again only when it fires or for an earlier deadline. So heartbeats
hardly ever set a timer, and a group without deadlines gets none.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol
from uuid import UUID

from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.classic_group_requests import ClassicGroupRequests
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_requests import ConsumerGroupRequests, Group
from ottla_broker.coordination.coordinator_loader import CoordinatorLoader
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.journal import Journal, JournalWriter, Write, wait_for_write
from ottla_broker.coordination.loading import ShardState, check_shard_serving, load_state
from ottla_broker.coordination.offsets import CommittedOffsets, expired_offsets
from ottla_broker.coordination.pending_offsets import PendingOffsets
from ottla_broker.coordination.records import (
    OffsetCommit,
    OffsetCommitKey,
    encode_group_metadata_key,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from ottla_broker.coordination.share_group import ShareGroup
from ottla_broker.coordination.share_group_requests import ShareGroupRequests, ShareStatePersister
from ottla_broker.coordination.streams_group import StreamsGroup
from ottla_broker.coordination.streams_group_requests import StreamsGroupRequests
from ottla_broker.log.transaction_verification import VerificationGuards
from ottla_broker.runtime import Runtime
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch

logger = logging.getLogger(__name__)

SERVING: Final = ShardState.serving  # members of an enum are slow to look up


class MemberSessions(Protocol):
    """The sessions of the members, for the groups of one type."""

    def restart_sessions(self, group: Any) -> None:
        """Called when the group has been loaded."""
        ...

    def expire_members(self, group: Any) -> None:
        """Called at the group's next deadline."""
        ...


class GroupCoordinatorShard:
    """`offsets` holds what is replicated. `groups` also holds changes whose records are being
    written.
    """

    def __init__(
        self,
        journal: Journal,
        runtime: Runtime,
        config: GroupCoordinatorConfig,
        metadata: CoordinatorMetadata,
        share_states: Callable[[], ShareStatePersister],
    ) -> None:
        self.partition = journal.partition
        self.state = ShardState.loading
        self.groups: dict[str, Group] = {}
        self.classic_groups = ClassicGroupRequests(self, config)
        self.consumer_groups = ConsumerGroupRequests(self, self.classic_groups, metadata, config)
        self.share_groups = ShareGroupRequests(self, metadata, config, share_states)
        self.streams_groups = StreamsGroupRequests(self, metadata, config)
        self.offsets = CommittedOffsets()
        self.pending_offsets = PendingOffsets()
        self.verifications = VerificationGuards()
        self._journal = journal
        self._runtime = runtime
        self._config = config
        self._writes = JournalWriter(journal, timeout_ms=config.offsets_commit_timeout_ms)
        self._loop = asyncio.get_running_loop()
        self._time_s = -1.0  # of `_timestamps`
        self._timestamps = Timestamps(-1, -1)
        self._timers: dict[str, tuple[int, asyncio.TimerHandle]] = {}  # group → (deadline in ms, timer)
        self._pending_commits: dict[str, set[Write]] = {}  # group → its commits in flight

    # -- loading and closing -----------------------------------------------------------------------

    async def load(self) -> None:
        if self.is_closed:
            return
        started_s = self._loop.time()
        loader = CoordinatorLoader(self._config)
        self.state = await load_state(self._journal, self._load_steps(loader), lambda: self.is_closed)
        if self.state is not ShardState.serving:
            return
        logger.log(
            logging.INFO if loader.record_count else logging.DEBUG,
            "loaded __consumer_offsets-%d: %d groups, %d offsets from %d records in %.0f ms",
            self.partition,
            len(self.groups),
            len(self.offsets),
            loader.record_count,
            (self._loop.time() - started_s) * 1000,
        )

    @property
    def is_closed(self) -> bool:
        return self.state is ShardState.closed

    def _load_steps(self, loader: CoordinatorLoader) -> Iterator[None]:
        for chunk in self._journal.read():
            yield from loader.load_chunk(chunk)
        yield from loader.add_simple_groups()
        self.groups, self.offsets, self.pending_offsets = loader.groups, loader.offsets, loader.pending_offsets
        yield from self._start_sessions()

    def _start_sessions(self) -> Iterator[None]:
        for group in list(self.groups.values()):
            self._sessions_of(group).restart_sessions(group)
            yield

    def close(self) -> None:
        """Called when this broker no longer leads the partition, is about to load it again, or
        stops. Waiting JoinGroup and SyncGroup requests fail with NOT_COORDINATOR.
        """
        self.state = ShardState.closed
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self.classic_groups.close_group(group, ErrorCode.not_coordinator)

    def check_serving(self) -> None:
        """Raises KafkaError unless the shard serves requests."""
        if self.state is not SERVING:
            check_shard_serving(self.state)

    # -- groups ------------------------------------------------------------------------------------

    def timestamps(self) -> Timestamps:
        """The present time. The same object until the event loop's time changes, because each
        request of a group asks for it."""
        now_s = self._loop.time()
        if now_s != self._time_s:
            self._time_s = now_s
            self._timestamps = Timestamps(round(now_s * 1000), self._runtime.now_ms())
        return self._timestamps

    def get_or_create_group(self, group_id: str) -> Group:
        """A new group is a classic one."""
        if (group := self.groups.get(group_id)) is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._config, state_since_ms=self._runtime.now_ms())
        return group

    def get_or_create_classic_group(self, group_id: str) -> ClassicGroup:
        """The caller has made sure that the group has no other protocol."""
        group = self.get_or_create_group(group_id)
        assert isinstance(group, ClassicGroup)
        return group

    def write_records(self, records: Sequence[Record]) -> Write:
        """Appends the records at the end of this turn of the event loop. The future completes when
        they are replicated, or with the error."""
        return self._writes.write_records(records)

    def append_records(self, records: Sequence[Record]) -> Write:
        """Appends the records to the log before it returns. The future completes when they are
        replicated. Raises KafkaError if the log does not accept them.
        """
        return self._writes.append_records(records)

    @property
    def log_end(self) -> int:
        return self._journal.end

    def is_replicated(self, end: int) -> bool:
        """True if all records below this offset are replicated."""
        return self._journal.high_watermark >= end

    def schedule_timer(self, group: Group) -> None:
        if group.next_deadline_ms is None:
            return
        if (armed := self._timers.get(group.id)) is not None:
            if armed[0] <= group.next_deadline_ms:
                return
            armed[1].cancel()
        timer = self._loop.call_at(group.next_deadline_ms / 1000, self._on_timer, group.id)
        self._timers[group.id] = group.next_deadline_ms, timer

    def _on_timer(self, group_id: str) -> None:
        """The group may have taken the place of the one for which the timer was set."""
        del self._timers[group_id]
        if (group := self.groups.get(group_id)) is not None:
            self._sessions_of(group).expire_members(group)

    def _sessions_of(self, group: Group) -> MemberSessions:
        """The requests of the group's protocol."""
        match group:
            case ConsumerGroup():
                return self.consumer_groups
            case ShareGroup():
                return self.share_groups
            case StreamsGroup():
                return self.streams_groups
        return self.classic_groups

    # -- offsets -----------------------------------------------------------------------------------

    async def commit_offsets(self, group_id: str, commits: Mapping[OffsetCommitKey, OffsetCommit]) -> None:
        """Writes commits and returns when they are replicated. The caller has called the group's
        `check_commit`.
        """
        records = self._commit_records(commits)

        def apply() -> None:
            self.get_or_create_group(group_id)
            for key, commit in commits.items():
                self.offsets.put(key, commit)
            self.pending_offsets.discard(commits)

        await self._wait_for_commit(group_id, self._writes.write_records(records, apply=apply))

    def _commit_records(self, commits: Mapping[OffsetCommitKey, OffsetCommit]) -> list[Record]:
        now_ms = self._runtime.now_ms()
        return [
            Record(now_ms, encode_offset_commit_key(*key), encode_offset_commit_value(commit))
            for key, commit in commits.items()
        ]

    async def _wait_for_commit(self, group_id: str, write: Write) -> None:
        self._pending_commits.setdefault(group_id, set()).add(write)
        write.add_done_callback(partial(self._on_commit_written, group_id))
        await wait_for_write(write)

    async def commit_transactional_offsets(
        self, group_id: str, producer_id: int, producer_epoch: int, commits: Mapping[OffsetCommitKey, OffsetCommit]
    ) -> None:
        """Writes commits that count once the producer's transaction commits. The caller has had the
        transaction verified, in this iteration of the event loop: the batch is in the journal
        before any later end of the transaction."""
        batch = encode_batch(
            self._commit_records(commits),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=True,
        )

        def apply() -> None:
            self.get_or_create_group(group_id)
            self.pending_offsets.add(producer_id, producer_epoch, commits)

        await self._wait_for_commit(group_id, self._writes.write_batch(batch, apply=apply))

    async def complete_transaction(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool
    ) -> None:
        """Writes the marker that ends a producer's transaction. Its offsets count from then on, or
        are forgotten."""
        self.verifications.invalidate(producer_id)
        self.pending_offsets.mark_ending(producer_id)
        marker = encode_end_transaction_marker(
            commit,
            coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=self._runtime.now_ms(),
        )

        def apply() -> None:
            ended = self.pending_offsets.end(producer_id)
            if commit:
                for key, one in ended.items():
                    self.offsets.apply(key, one)

        await wait_for_write(self._writes.write_batch(marker, apply=apply))

    def _on_commit_written(self, group_id: str, write: Write) -> None:
        pending = self._pending_commits[group_id]
        pending.discard(write)
        if not pending:
            del self._pending_commits[group_id]

    async def wait_for_pending_commits(self, group_id: str) -> None:
        """Returns when no commit of the group is in flight, so that the offsets that a deletion
        removes are known.
        """
        while pending := self._pending_commits.get(group_id):
            await asyncio.wait(list(pending))

    async def delete_offsets(self, keys: Sequence[OffsetCommitKey]) -> None:
        present = [key for key in keys if self.offsets.get(*key) is not None]
        if present:
            await wait_for_write(self._write_tombstones(present))

    def _write_tombstones(self, keys: Sequence[OffsetCommitKey]) -> Write:
        return self._writes.write_records(self._tombstones(keys), apply=partial(self._remove_offsets, keys))

    def _tombstones(self, keys: Iterable[OffsetCommitKey]) -> list[Record]:
        now_ms = self._runtime.now_ms()
        return [Record(now_ms, encode_offset_commit_key(*key), None) for key in keys]

    def _remove_offsets(self, keys: Sequence[OffsetCommitKey]) -> None:
        for key in keys:
            self.offsets.remove(key)
        self.pending_offsets.discard(keys)

    # -- deletion and expiry -----------------------------------------------------------------------

    async def delete_group(self, group_id: str) -> None:
        """Deletes a group with its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        await self.wait_for_pending_commits(group_id)
        self.check_serving()
        if (group := self.groups.get(group_id)) is None:
            raise KafkaError(ErrorCode.group_id_not_found, f"no group {group_id!r}")
        if not group.is_empty:
            raise KafkaError(ErrorCode.non_empty_group, f"group {group_id!r} has members")
        if isinstance(group, ShareGroup):
            return await self.share_groups.delete_group(group)
        await wait_for_write(self._delete_group(group, [key for key, _ in self.offsets.group_commits(group_id)]))
        return None

    def _delete_group(self, group: ClassicGroup | ConsumerGroup | StreamsGroup, keys: list[OffsetCommitKey]) -> Write:
        """Writes tombstones for a group and its offsets, also those of open transactions. The group
        is removed at once, so that a member that joins now creates a new one. A classic group is
        restored if the write fails."""
        keys = list(dict.fromkeys((*keys, *self.pending_offsets.group_keys(group.id))))
        if isinstance(group, ConsumerGroup | StreamsGroup):
            try:
                if isinstance(group, ConsumerGroup):
                    self.consumer_groups.delete_empty_group(group)
                else:
                    self.streams_groups.delete_empty_group(group)
            except KafkaError as error:
                return self._completed_write(error.code)
            return self._write_tombstones(keys)
        del self.groups[group.id]
        self.classic_groups.close_group(group, ErrorCode.coordinator_not_available)
        records = self._tombstones(keys)
        if group.has_records:
            records.append(Record(self._runtime.now_ms(), encode_group_metadata_key(group.id), None))
        if not records:
            return self._completed_write(ErrorCode.none)
        write = self._writes.write_records(records, apply=partial(self._remove_offsets, keys))

        def restore(done: Write) -> None:
            if done.result() is not ErrorCode.none and self.state is ShardState.serving and group.id not in self.groups:
                group.state = GroupState.empty
                self.groups[group.id] = group

        write.add_done_callback(restore)
        return write

    def _completed_write(self, code: ErrorCode) -> Write:
        done = Write(loop=self._loop)
        done.set_result(code)
        return done

    async def expire_offsets(self, retention_ms: int) -> int:
        """Deletes expired offsets and groups, group by group. Returns the number of deleted
        offsets.
        """
        count = 0
        for group in list(self.groups.values()):
            if (
                isinstance(group, ShareGroup)  # has no offsets, and is deleted by administrators alone
                or self.groups.get(group.id) is not group
                or group.id in self._pending_commits
                or self.pending_offsets.has_group(group.id)
                or self.state is not ShardState.serving
            ):
                continue
            keys = expired_offsets(group, self.offsets, retention_ms=retention_ms, now_ms=self._runtime.now_ms())
            is_expired = group.is_empty and (not isinstance(group, ClassicGroup) or not group.pending_joins)
            if is_expired and len(keys) == sum(map(len, self.offsets.group_offsets(group.id).values())):
                error = await self._delete_group(group, keys)
            elif keys:
                error = await self._write_tombstones(keys)
            else:
                continue
            count += len(keys) if error is ErrorCode.none else 0
        return count

    async def delete_offsets_of_topic(self, topic: str, topic_id: UUID | None) -> None:
        """Deletes the commits for a deleted topic, and what share groups have read of it."""
        for group in list(self.groups.values()):
            if isinstance(group, ShareGroup) and topic_id is not None:
                await self.share_groups.delete_offsets_of_topic(group, topic_id)
        await self.delete_offsets(list(self.offsets.topic_keys(topic, topic_id)))
