"""One partition of `__share_group_state`: loads the states of its share-partitions, changes them
and writes the records.

A change is applied in memory as soon as its record is in the leader's log, so that later changes
build on it. Methods return once it is replicated. After `updates_per_snapshot` updates of a
share-partition its whole state is written as a snapshot. Records before the oldest snapshot in use
are deleted periodically (`prune`); the topic is not compacted, because all updates of a
share-partition have the same key.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from ottla_broker.coordination.journal import Journal, JournalWriter, Write, wait_for_write
from ottla_broker.coordination.loading import ShardState, apply_records, check_shard_serving, load_state
from ottla_broker.runtime import Runtime
from ottla_broker.share_groups.share_group_config import ShareCoordinatorConfig
from ottla_broker.share_groups.share_state import (
    NO_START_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareState,
    StateUpdate,
    check_batches,
    combine_batches,
)
from ottla_broker.share_groups.share_state_records import (
    SNAPSHOT_TYPE,
    SnapshotValue,
    UpdateValue,
    decode_key,
    decode_snapshot,
    decode_update,
    encode_snapshot,
    encode_snapshot_key,
    encode_update,
    encode_update_key,
)
from ottla_broker.wire.batch import BatchHeader
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record

logger = logging.getLogger(__name__)


class PrunableJournal(Journal, Protocol):
    def delete_records_before(self, offset: int) -> None:
        """Deletes the records below `offset` that are replicated. Raises NOT_LEADER_OR_FOLLOWER."""
        ...


@dataclass(slots=True)
class _Entry:
    """`snapshot_offset`: an offset at or below that of the last snapshot record. `updates`: number
    of updates since."""

    state: ShareState
    snapshot_offset: int
    updates: int = 0


class ShareStateShard:
    def __init__(self, journal: PrunableJournal, runtime: Runtime, config: ShareCoordinatorConfig) -> None:
        self.partition = journal.partition
        self.state = ShardState.loading
        self._journal = journal
        self._runtime = runtime
        self._snapshot_interval = config.updates_per_snapshot
        self._writes = JournalWriter(journal, timeout_ms=config.write_timeout_ms)
        self._entries: dict[SharePartitionKey, _Entry] = {}

    # -- loading and closing -----------------------------------------------------------------------

    async def load(self) -> None:
        if not self._is_closed():
            self.state = await load_state(self._journal, self._load_steps(), self._is_closed)

    def _is_closed(self) -> bool:
        return self.state is ShardState.closed

    def _load_steps(self) -> Iterator[None]:
        for chunk in self._journal.read():
            yield from apply_records(chunk, self._apply_record)

    def _apply_record(self, header: BatchHeader, raw_key: bytes | None, value: bytes | None) -> None:
        found = None if raw_key is None or header.is_control else decode_key(raw_key)
        if found is None:
            return
        kind, key = found
        if kind == SNAPSHOT_TYPE:
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = _Entry(_state_of_snapshot(decode_snapshot(value)), header.base_offset)
        elif value is not None and (entry := self._entries.get(key)) is not None:
            # An update without an entry is of a share-partition that has been deleted since.
            update = decode_update(value)
            entry.state = _apply_update(
                entry.state,
                StateUpdate(
                    entry.state.state_epoch,
                    update.leader_epoch,
                    update.start_offset,
                    update.delivery_complete_count,
                    update.batches,
                ),
            )
            entry.updates += 1

    def close(self) -> None:
        """Called when this broker no longer leads the partition, is about to load it again, or
        stops."""
        self.state = ShardState.closed

    def check_serving(self) -> None:
        """Raises KafkaError unless the shard serves requests."""
        check_shard_serving(self.state)

    # -- the states --------------------------------------------------------------------------------

    def find(self, key: SharePartitionKey) -> ShareState | None:
        """The state; None if the share-partition was not initialized. Raises what `check_serving`
        raises."""
        self.check_serving()
        entry = self._entries.get(key)
        return None if entry is None else entry.state

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Creates the share-partition's state. Replaces one that has an earlier state epoch, and
        with a `start_offset` also one that has the same. Raises FENCED_STATE_EPOCH when the state
        has a later state epoch."""
        known = self.find(key)
        if known is not None and known.state_epoch > state_epoch:
            raise KafkaError(ErrorCode.fenced_state_epoch, f"{key}: state epoch {known.state_epoch} has begun")
        if known is not None and known.state_epoch == state_epoch and start_offset == NO_START_OFFSET:
            # The request is repeated, perhaps late: the group may have begun to read. Its state is
            # written again, so that the response waits until it is replicated.
            again = replace(known, snapshot_epoch=known.snapshot_epoch + 1)
            await wait_for_write(self._write_snapshots({key: again}))
            return
        created_ms = self._runtime.now_ms() if known is None else known.created_ms
        snapshot_epoch = 0 if known is None else known.snapshot_epoch + 1
        complete = UNKNOWN_COUNT if start_offset == NO_START_OFFSET else 0
        state = ShareState(snapshot_epoch, state_epoch, 0, start_offset, complete, created_ms=created_ms)
        await wait_for_write(self._write_snapshots({key: state}))

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """The state, for the partition's leader in `leader_epoch`. Leaders of earlier epochs can no
        longer read or write it. Raises FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION."""
        state = self._find_for_leader(key, leader_epoch)
        if leader_epoch > state.leader_epoch:
            update = StateUpdate(state.state_epoch, leader_epoch, NO_START_OFFSET, state.delivery_complete_count, ())
            await wait_for_write(self._write(key, update))
        return state

    async def write(self, key: SharePartitionKey, update: StateUpdate) -> None:
        """Returns when the update is replicated. Raises FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST."""
        check_batches(update.batches)
        state = self._find_for_leader(key, update.leader_epoch)
        if update.state_epoch != state.state_epoch:
            raise KafkaError(
                ErrorCode.fenced_state_epoch, f"{key}: state epoch {update.state_epoch}, here it is {state.state_epoch}"
            )
        await wait_for_write(self._write(key, update))

    async def delete(self, key: SharePartitionKey) -> None:
        """Returns when the deletion is replicated; at once for a share-partition that does not
        exist."""
        if self.find(key) is None:
            return
        write = self._writes.append_records([Record(self._runtime.now_ms(), encode_snapshot_key(key), None)])
        del self._entries[key]
        await wait_for_write(write)

    def _find_for_leader(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        if (state := self.find(key)) is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"share-partition {key} has not been initialized")
        if leader_epoch < state.leader_epoch:
            raise KafkaError(
                ErrorCode.fenced_leader_epoch, f"{key}: leader epoch {leader_epoch}, here it is {state.leader_epoch}"
            )
        return state

    # -- records -----------------------------------------------------------------------------------

    def _write(self, key: SharePartitionKey, update: StateUpdate) -> Write:
        entry = self._entries[key]
        state = _apply_update(entry.state, update)
        if entry.updates >= self._snapshot_interval:
            return self._write_snapshots({key: replace(state, snapshot_epoch=state.snapshot_epoch + 1)})
        value = UpdateValue(
            state.snapshot_epoch,
            update.leader_epoch,
            update.start_offset,
            update.batches,
            state.delivery_complete_count,
        )
        record = Record(self._runtime.now_ms(), encode_update_key(key), encode_update(value))
        write = self._writes.append_records([record])
        entry.state = state
        entry.updates += 1
        return write

    def _write_snapshots(self, states: dict[SharePartitionKey, ShareState]) -> Write:
        now_ms = self._runtime.now_ms()
        records = [
            Record(now_ms, encode_snapshot_key(key), encode_snapshot(_snapshot_of(state, now_ms)))
            for key, state in states.items()
        ]
        offset = self._journal.end
        write = self._writes.append_records(records)
        for key, state in states.items():
            self._entries[key] = _Entry(state, offset)
        return write

    async def prune(self) -> None:
        """Deletes records that no share-partition needs. Share-partitions whose snapshot is in the
        older half of the log get a new one first, because records after a snapshot in use cannot be
        deleted."""
        if self.state is not ShardState.serving or not self._entries:
            return
        oldest = min(entry.snapshot_offset for entry in self._entries.values())
        middle = oldest + (self._journal.end - oldest) // 2
        cold = {
            key: replace(entry.state, snapshot_epoch=entry.state.snapshot_epoch + 1)
            for key, entry in self._entries.items()
            if entry.snapshot_offset < middle - len(self._entries)
        }
        if cold:
            await wait_for_write(self._write_snapshots(cold))
        if not self._entries:  # all were deleted meanwhile
            return
        self._journal.delete_records_before(min(entry.snapshot_offset for entry in self._entries.values()))


def _apply_update(state: ShareState, update: StateUpdate) -> ShareState:
    """The state after the update. Its start offset never goes back: a leader has several updates in
    flight, and each has the start offset as it is without the others."""
    start_offset = max(state.start_offset, update.start_offset)
    return replace(
        state,
        leader_epoch=update.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=update.delivery_complete_count,
        batches=combine_batches(state.batches, update.batches, start_offset),
    )


def _snapshot_of(state: ShareState, now_ms: int) -> SnapshotValue:
    return SnapshotValue(
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.created_ms,
        now_ms,
        state.batches,
        state.delivery_complete_count,
    )


def _state_of_snapshot(value: SnapshotValue) -> ShareState:
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.batches,
        value.created_ms,
    )
