"""A partition's leader as one share group sees it: reads records for its members, and has what they
acknowledge stored.

`SharePartition` decides; this carries it out: it loads the state from the share coordinator, stores
every change there before it counts, and lets locks expire.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.config.group_settings import BY_DURATION, duration_ms
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.replication.partition import READ_COMMITTED, Partition
from ottla_broker.replication.waiters import Waiters
from ottla_broker.share_groups.share_group_config import ShareDeliveryConfig
from ottla_broker.share_groups.share_partition import (
    Acknowledgement,
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
"""After which records whose release could not be stored are released again."""
FENCED: Final = frozenset(
    {ErrorCode.fenced_state_epoch, ErrorCode.fenced_leader_epoch, ErrorCode.unknown_topic_or_partition}
)
UNLIMITED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class ShareFetchLimits:
    """`enough`: records after which no further batch is delivered; `at_most`: records at most."""

    max_bytes: int
    enough: int
    at_most: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class DeliveredRecords:
    """Whole batches, of which the member has acquired these offsets."""

    records: Buffer
    acquired: list[AcquiredSpan]


class SharePartitionLeader:
    """`waiters` are called when records may be available. `is_closed`: another one has to take its
    place, because the partition's leader or the group's offsets have changed."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        states: ShareStateClient,
        config: Callable[[], ShareDeliveryConfig],
        now_ms: Callable[[], int],
    ) -> None:
        self.key = key
        self.partition = partition
        self.waiters = Waiters()
        self.is_closed = False
        self._states = states
        self._config = config
        self._now_ms = now_ms
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
        """Returns when the state is loaded; several callers share one attempt. KafkaError."""
        if self._loading is None:
            self._loading = self._loop.create_task(self._load())
        try:
            await asyncio.shield(self._loading)
        except KafkaError:
            self.close()
            raise

    async def _load(self) -> None:
        config = self._config()
        state = await self._states.read(self.key, self._epoch)
        self._state_epoch = state.state_epoch
        start_offset = state.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = await self._choose_start_offset(config)
        records = SharePartition(start_offset, config.delivery_count_limit, config.max_record_locks)
        records.restore(state.batches)
        self._check_leading()
        self._records = records

    async def _choose_start_offset(self, config: ShareDeliveryConfig) -> int:
        """Where the group begins, by `share.auto.offset.reset`. It is stored at once: a leader that
        takes over begins there, too."""
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
            raise KafkaError(ErrorCode.not_leader_or_follower, f"{self.partition!r} leads in another epoch")

    @property
    def is_idle(self) -> bool:
        """Nothing is acquired: it can be closed, and its state loaded again."""
        return self._records is not None and self._records.is_idle

    def _loaded(self) -> SharePartition:
        """Raises NOT_LEADER_OR_FOLLOWER when it is closed."""
        self._check_leading()
        if self._records is None:
            raise KafkaError(ErrorCode.not_leader_or_follower, f"share-partition {self.key} is not loaded")
        return self._records

    # -- delivering --------------------------------------------------------------------------------

    def has_enough(self, min_bytes: int) -> bool:
        """True if records are available for delivery: some again, or `min_bytes` of new ones."""
        records, log = self._loaded(), self.partition.log
        if not records.may_acquire:
            return False
        offset, end = records.fetch_offset, self.partition.readable_end(self._config().isolation)
        if records.has_available or offset < log.start:
            return True
        return offset < end and (min_bytes <= 1 or log.size_from(offset) >= min_bytes)

    def deliver(self, member_id: str, limits: ShareFetchLimits) -> DeliveredRecords | None:
        """Acquires records for the member and reads them; None when there are none. KafkaError."""
        records, partition = self._loaded(), self.partition
        log, config = partition.log, self._config()
        records.truncate_to(log.start)
        if not records.may_acquire:
            return None
        offset, end = records.fetch_offset, partition.readable_end(config.isolation)
        if offset >= end:
            return None
        data = log.read(offset, limits.max_bytes, up_to=end, at_least_one=True)
        if not data:
            return None
        readable = _readable_spans(log, data, config.isolation)
        now_ms = self._now_loop_ms()
        acquired = records.acquire(
            member_id,
            readable,
            deadline_ms=now_ms + config.record_lock_duration_ms,
            enough=limits.enough,
            at_most=limits.at_most,
        )
        if not readable:
            records.archive_to(max(header.next_offset for _, header in iter_batches(data)))
        self._schedule_expiry()
        if not acquired:
            return None
        return DeliveredRecords(_batches_of(data, acquired[0].first, acquired[-1].last), acquired)

    def _now_loop_ms(self) -> int:
        return round(self._loop.time() * 1000)

    # -- acknowledging -----------------------------------------------------------------------------

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> Awaitable[None]:
        """Changes the records' states at once; the result comes when that is stored. KafkaError of
        `SharePartition.acknowledge`, by the call itself, and of the share coordinator."""
        records = self._loaded()
        until_ms = self._now_loop_ms() + self._config().record_lock_duration_ms
        write = records.acknowledge(member_id, acknowledgements, renewed_until_ms=until_ms)
        if write is None:
            self._schedule_expiry()
        return self._store(records, write)

    async def release(self, member_id: str) -> None:
        """The member's session has ended. KafkaError when that could not be stored."""
        records = self._loaded()
        await self._store(records, records.release(member_id))

    async def _store(self, records: SharePartition, write: StateWrite | None) -> None:
        """Cancelling the caller, whose connection closed, does not cancel the write."""
        if write is None:
            return
        done: asyncio.Future[KafkaError | None] = self._loop.create_future()
        self._tasks.start(self._store_write(records, write, done))
        if (reason := await asyncio.shield(done)) is not None:
            raise reason

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
            if reason.code in FENCED:
                self.close()
            done.set_result(reason)
        else:
            records.commit(write.id)
            done.set_result(None)
        self._schedule_expiry()
        self.waiters.notify_all()

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
        if self.is_closed or self._records is None:
            return
        # The timer may be a fraction of a millisecond early.
        if (write := self._records.expire_locks(self._now_loop_ms() + 1)) is not None:
            logger.debug("share-partition %s: locks have expired", self.key)
            done: asyncio.Future[KafkaError | None] = self._loop.create_future()
            self._tasks.start(self._store_write(self._records, write, done))
        self._schedule_expiry()


def _readable_spans(log: PartitionLog, data: Buffer, isolation: int) -> list[Span]:
    """The batches whose records may be delivered: no control batches and, for read_committed, none
    of aborted transactions."""
    headers = [header for _, header in iter_batches(data)]
    aborted = []
    if isolation == READ_COMMITTED and headers:
        aborted = log.aborted_transactions(headers[0].base_offset, headers[-1].next_offset)
    return [
        Span(header.base_offset, header.last_offset)
        for header in headers
        if not header.is_control
        and not (
            header.is_transactional
            and any(
                one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                for one in aborted
            )
        )
    ]


def _batches_of(data: Buffer, first: int, last: int) -> Buffer:
    """The batches that hold these offsets, and those between."""
    inside = [
        (at, at + header.size)
        for at, header in iter_batches(data)
        if header.last_offset >= first and header.base_offset <= last
    ]
    return memoryview(data)[inside[0][0] : inside[-1][1]]
