"""The leader of one share-partition: reads records for the group's members, and stores their
acknowledgements.

`SharePartition` decides, and `SharePartitionLeader` does the I/O: it loads the state from the share
coordinator, stores every write of `SharePartition` there before it takes effect, and runs the timer
of locks. That a record is acquired is not stored.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Final, Protocol

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.config.group_settings import BY_DURATION, duration_ms
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.replication.partition import READ_COMMITTED, Partition
from ottla_broker.replication.waiters import Waiters
from ottla_broker.share_groups.dead_letters import DeadLetterConfig, DeadLetters
from ottla_broker.share_groups.share_group_config import ShareDeliveryConfig
from ottla_broker.share_groups.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredSpan,
    SharePartition,
    Span,
    StateWrite,
)
from ottla_broker.share_groups.share_state import NO_START_OFFSET, SharePartitionKey, StateUpdate
from ottla_broker.share_groups.share_state_client import ShareStateClient
from ottla_broker.wire.batch import Buffer, iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""After a change of state could not be stored: how long records stay locked at least, and the pause
before the archiving of dead letters is tried again."""
SUPERSEDED_ERRORS: Final = frozenset({ErrorCode.fenced_state_epoch, ErrorCode.fenced_leader_epoch})
"""Another leader of the partition, or an administrator, has changed the share-partition's state
meanwhile."""
FENCED_ERRORS: Final = SUPERSEDED_ERRORS | {ErrorCode.unknown_topic_or_partition}
"""After these, this leader can store nothing more."""
UNLIMITED: Final = 1 << 62
EXTRA_BYTES: Final = 16 << 10
"""Read in addition to what records take on average, because records differ in size."""


@dataclass(frozen=True, slots=True)
class ShareFetchLimits:
    """`enough`: number of records after which no further batch is delivered. `at_most`: largest
    number of records."""

    max_bytes: int
    enough: int
    at_most: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class DeliveredRecords:
    """`records`: whole batches. `acquired`: the offsets in them that the member has acquired."""

    records: Buffer
    acquired: list[AcquiredSpan]


class DeadLetterQueue(Protocol):
    def config_of(self, group_id: str) -> DeadLetterConfig: ...

    async def write(self, group_id: str, source: Partition, letters: DeadLetters) -> None:
        """Returns when the dead letters are written or given up."""
        ...


class SharePartitionLeader:
    """`waiters`: called when records may be available, and when the SharePartitionLeader is closed.
    `is_closed`: only a new SharePartitionLeader can serve the share-partition, because the
    partition's leader or the group's offsets have or may have changed, or loading has failed."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        states: ShareStateClient,
        read_config: Callable[[], ShareDeliveryConfig],
        is_in_session: Callable[[], bool],
        now_ms: Callable[[], int],
        dead_letters: DeadLetterQueue,
    ) -> None:
        self.key = key
        self.partition = partition
        self.waiters = Waiters()
        self.is_closed = False
        self._states = states
        self._read_config = read_config
        self._config = read_config()
        self._is_in_session = is_in_session
        self._now_ms = now_ms
        self._dead_letters = dead_letters
        self._epoch = partition.leader_epoch
        self._state_epoch = 0
        self._records: SharePartition | None = None
        self._loop = asyncio.get_running_loop()
        self._loading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = BackgroundTasks()
        partition.read_waiters.add(self._on_partition_changed)

    # -- loading and closing -----------------------------------------------------------------------

    async def load(self) -> None:
        """Returns when the state is loaded; concurrent callers share one attempt. If loading fails,
        closes this SharePartitionLeader and raises KafkaError."""
        if self._loading is None:
            self._loading = self._loop.create_task(self._load())
        try:
            await asyncio.shield(self._loading)
        except KafkaError as reason:
            self.close()
            raise _as_client_error(reason) from reason

    async def _load(self) -> None:
        config = self._config
        state = await self._states.read(self.key, self._epoch)
        self._state_epoch = state.state_epoch
        start_offset = state.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = await self._choose_start_offset(config)
        records = SharePartition(start_offset, config.delivery_count_limit, config.max_record_locks)
        records.restore(state.batches)
        self._check_leading()
        self._records = records
        self._start_dead_letters(records)

    async def _choose_start_offset(self, config: ShareDeliveryConfig) -> int:
        """The offset at which the group begins, by `share.auto.offset.reset`. Stores it first, so
        that a later leader begins at the same offset.
        """
        partition, log = self.partition, self.partition.log
        await partition.wait_in_epoch(partition.read_waiters, lambda: partition.has_reached_epoch_start)
        reset = config.auto_offset_reset
        start_offset = log.start if reset == "earliest" else partition.readable_end(config.isolation)
        if reset.startswith(BY_DURATION):
            found = log.offset_for_timestamp(self._now_ms() - duration_ms(reset.removeprefix(BY_DURATION)))
            if found is not None:
                start_offset = min(found.offset, start_offset)
        update = StateUpdate(self._state_epoch, self._epoch, start_offset, 0, ())
        await self._states.write(self.key, update)
        return start_offset

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.partition.read_waiters.remove(self._on_partition_changed)
            if self._timer is not None:
                self._timer.cancel()
            self.waiters.notify_all()

    def _on_partition_changed(self) -> None:
        if not self.partition.is_leader or self.partition.leader_epoch != self._epoch:
            self.close()
        else:
            self.waiters.notify_all()

    def _check_leading(self) -> None:
        if self.is_closed or not self.partition.is_leader or self.partition.leader_epoch != self._epoch:
            raise KafkaError(ErrorCode.not_leader_or_follower, f"the leader of share-partition {self.key} is closed")

    @property
    def is_idle(self) -> bool:
        """True if no record is acquired, and none waits for its dead letter. Then this
        SharePartitionLeader can be closed, and a new one can load the state."""
        return self._records is not None and self._records.is_idle

    def _loaded_records(self) -> SharePartition:
        """The records, with the limits that the group's configs now have. Raises
        NOT_LEADER_OR_FOLLOWER when the share-partition is closed or not loaded yet."""
        self._check_leading()
        if self._records is None:
            raise KafkaError(ErrorCode.not_leader_or_follower, f"share-partition {self.key} is not loaded")
        records, config = self._records, self._read_config()
        self._config = config
        records.max_deliveries, records.max_in_flight = config.delivery_count_limit, config.max_record_locks
        records.has_dead_letters = bool(self._dead_letters.config_of(self.key.group_id).topic)
        return records

    # -- delivering --------------------------------------------------------------------------------

    def has_enough(self, min_bytes: int) -> bool:
        """True if `deliver` may find enough: a delivered record is available again, `min_bytes` of
        new records are readable, or the next records were deleted. Raises NOT_LEADER_OR_FOLLOWER.
        """
        records, log = self._loaded_records(), self.partition.log
        if not records.may_acquire:
            return False
        offset, end = records.fetch_offset, self.partition.readable_end(self._config.isolation)
        if records.has_available or offset < log.start:
            return True
        return offset < end and (min_bytes <= 1 or log.size_from(offset) >= min_bytes)

    def deliver(self, member_id: str, limits: ShareFetchLimits) -> DeliveredRecords | None:
        """Reads records and acquires them for the member; None when none is available. Raises
        KafkaError: NOT_LEADER_OR_FOLLOWER also after the broker's session with the controller has
        ended. Another broker may lead since then, and what it has stored as acknowledged would be
        delivered again.
        """
        if not self._is_in_session():
            raise KafkaError(ErrorCode.not_leader_or_follower, "the broker's session with the controller has ended")
        records, partition = self._loaded_records(), self.partition
        log, config = partition.log, self._config
        records.truncate_to(log.start)
        end = partition.readable_end(config.isolation)
        while records.may_acquire and (offset := records.fetch_offset) < end:
            data = log.read(offset, self._bytes_to_read(offset, limits), up_to=end, at_least_one=True)
            if not data:
                return None
            readable = _readable_spans(log, data, config.isolation)
            if (first := next(readable, None)) is None:
                records.archive_to(max(header.next_offset for _, header in iter_batches(data)))
                continue
            acquired = records.acquire(
                member_id,
                chain((first,), readable),
                deadline_ms=self._now_loop_ms() + config.record_lock_duration_ms,
                enough=limits.enough,
                at_most=limits.at_most,
            )
            self._schedule_expiry()
            if not acquired:
                return None
            return DeliveredRecords(_batches_of(data, acquired[0].first, acquired[-1].last), acquired)
        return None

    def _bytes_to_read(self, offset: int, limits: ShareFetchLimits) -> int:
        """About the size of `enough` records, so that a fetch for a few records does not read
        `max_bytes`."""
        log = self.partition.log
        average = log.size_from(offset) / max(log.end - offset, 1)
        return min(limits.max_bytes, EXTRA_BYTES + math.ceil(limits.enough * average))

    def _now_loop_ms(self) -> int:
        return round(self._loop.time() * 1000)

    # -- acknowledging -----------------------------------------------------------------------------

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> Awaitable[None]:
        """Begins the change of the records' states at once; the awaitable completes when it is
        stored. The call itself raises what `SharePartition.acknowledge` raises,
        NOT_LEADER_OR_FOLLOWER, and INVALID_RECORD_STATE for a renewal that the group does not
        allow. The awaitable raises the share coordinator's KafkaError."""
        records = self._loaded_records()
        if not self._config.may_renew and any(AcknowledgeType.renew in one.types for one in acknowledgements):
            raise KafkaError(ErrorCode.invalid_record_state, "share.renew.acknowledge.enable of the group is false")
        until_ms = self._now_loop_ms() + self._config.record_lock_duration_ms
        write = records.acknowledge(member_id, acknowledgements, renewed_until_ms=until_ms)
        if write is None:
            self._schedule_expiry()
        return self._store(records, write)

    async def release(self, member_id: str) -> None:
        """Makes the member's records available again after the end of its session, or archives
        those that were delivered as often as allowed. Raises KafkaError when that could not be
        stored."""
        records = self._loaded_records()
        await self._store(records, records.release(member_id))

    async def _store(self, records: SharePartition, write: StateWrite | None) -> None:
        """Returns when the write is stored. A cancelled caller, such as that of a closed
        connection, does not cancel the write."""
        if write is None:
            return
        done: asyncio.Future[KafkaError | None] = self._loop.create_future()
        self._tasks.start(self._store_write(records, write, done))
        if (reason := await asyncio.shield(done)) is not None:
            raise _as_client_error(reason)

    async def _store_write(
        self, records: SharePartition, write: StateWrite, done: "asyncio.Future[KafkaError | None]"
    ) -> None:
        update = StateUpdate(
            self._state_epoch, self._epoch, write.start_offset, write.delivery_complete_count, write.batches
        )
        try:
            await self._states.write(self.key, update)
        except KafkaError as reason:
            logger.info("share-partition %s: a change could not be stored: %s", self.key, reason)
            records.abort(write.id, self._now_loop_ms() + RETRY_MS)
            if reason.code in FENCED_ERRORS:
                self.close()
            done.set_result(reason)
        else:
            records.commit(write.id)
            done.set_result(None)
            self._start_dead_letters(records)
        self._schedule_expiry()
        self.waiters.notify_all()

    # -- dead letters ------------------------------------------------------------------------------

    def _start_dead_letters(self, records: SharePartition) -> None:
        for letters in records.take_dead_letters():
            self._tasks.start(self._write_dead_letters(records, letters))

    async def _write_dead_letters(self, records: SharePartition, letters: DeadLetters) -> None:
        """Archives the records once their dead letters are written or given up."""
        await self._dead_letters.write(self.key.group_id, self.partition, letters)
        while not self.is_closed:
            try:
                await self._store(records, records.archive_dead_letters(letters))
                return
            except KafkaError:  # logged
                await asyncio.sleep(RETRY_MS / 1000)

    # -- locks -------------------------------------------------------------------------------------

    def _schedule_expiry(self) -> None:
        if self.is_closed or self._records is None:
            return
        deadline_ms = self._records.next_deadline_ms
        if deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer.when() * 1000 <= deadline_ms:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline_ms / 1000, self._expire_locks)

    def _expire_locks(self) -> None:
        self._timer = None
        try:
            records = self._loaded_records()
        except KafkaError:  # another leader restores the states without the locks
            return
        # The timer may be a fraction of a millisecond early.
        if (write := records.expire_locks(self._now_loop_ms() + 1)) is not None:
            logger.debug("share-partition %s: locks have expired", self.key)
            done: asyncio.Future[KafkaError | None] = self._loop.create_future()
            self._tasks.start(self._store_write(records, write, done))
        self._schedule_expiry()


def _as_client_error(reason: KafkaError) -> KafkaError:
    """Clients know no epochs of share state. They look for the leader again, as with Kafka 4.3."""
    if reason.code in SUPERSEDED_ERRORS:
        return KafkaError(ErrorCode.not_leader_or_follower, reason.message)
    return reason


def _readable_spans(log: PartitionLog, data: Buffer, isolation: int) -> Iterator[Span]:
    """The offsets of each batch whose records may be delivered: of every batch but control batches
    and, for read_committed, those of aborted transactions. Batches are parsed while the caller
    iterates.
    """
    aborted = []
    if isolation == READ_COMMITTED:
        headers = [header for _, header in iter_batches(data)]
        aborted = log.aborted_transactions(headers[0].base_offset, headers[-1].next_offset)
    for _, header in iter_batches(data):
        is_aborted = header.is_transactional and any(
            one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
            for one in aborted
        )
        if not header.is_control and not is_aborted:
            yield Span(header.base_offset, header.last_offset)


def _batches_of(data: Buffer, first: int, last: int) -> Buffer:
    """The bytes from the batch with offset `first` to the batch with offset `last`."""
    headers = takewhile(lambda found: found[1].base_offset <= last, iter_batches(data))
    inside = [(at, at + header.size) for at, header in headers if header.last_offset >= first]
    return memoryview(data)[inside[0][0] : inside[-1][1]]
