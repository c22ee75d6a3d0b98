"""The metadata log as every broker keeps it: what is appended, what is committed, and the image that follows what is committed.

Invariant: the image is the fold of the records below the high watermark, and of nothing else. So it never has to be taken back: a leader that
was deposed truncates its log, and no broker has acted on what is cut off.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.metadata_fetch import MetadataFetchRequest, MetadataFetchResponse, find_diverging_epoch
from ottla_broker.metadata.quorum_rules import EpochAndOffset
from ottla_broker.metadata.records import MetadataRecord, decode_record, encode_record
from ottla_broker.metadata.snapshots import SnapshotStore
from ottla_broker.runtime import Runtime
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch, iter_records

READ_BYTES = 1 << 20


class CommittedLogDiverged(KafkaError):
    """A leader's log parts from this broker's where it was committed: two clusters share a register, or a disk has lost what it had been told to
    keep. Nothing that was committed is taken back."""


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """Records that this broker appended as leader, and who waits for them."""

    first_offset: int
    records: Sequence[MetadataRecord]
    future: "asyncio.Future[MetadataDelta]"


class MetadataLog:
    """`publish` is called with what was committed, right after the image was changed, before the committer goes on."""

    def __init__(
        self,
        partition_log: PartitionLog,
        image: MetadataImage,
        snapshots: SnapshotStore,
        runtime: Runtime,
        on_commit: Callable[[MetadataDelta], None],
    ) -> None:
        self.log = partition_log
        self.image = image
        self.snapshots = snapshots
        self.publish = on_commit
        self.records_read = 0  # from the disk, since this broker started
        self.bytes_since_snapshot = 0
        self._runtime = runtime
        self._pending: deque[PendingCommit] = deque()

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def log_end(self) -> EpochAndOffset:
        """How far the log goes."""
        end = self.log.end
        before = self.snapshots.epoch_before(end) if end == self.log.start else None
        return EpochAndOffset(self.log.epochs.epoch_for_offset(end - 1) if before is None else before, end)

    def find_divergence(self, asked: EpochAndOffset) -> MetadataFetchResponse | None:
        """What to tell a broker whose log, which goes as far as `asked`, is not a beginning of this one; None when it is.

        The beginning of this log may be a snapshot: whoever has not exactly what that stands for is to take it.
        """
        start = self.log.start
        if asked.offset < start or (asked.offset == start > 0 and asked.epoch != self.snapshots.epoch_before(start)):
            return MetadataFetchResponse(log_start_offset=start, snapshot_id=self.snapshots.latest)
        parting = find_diverging_epoch(self.log.epochs, self.log.end, asked)
        return None if parting is None else MetadataFetchResponse(log_start_offset=start, diverging_epoch=parting)

    async def wait_until_durable(self) -> EpochAndOffset:
        """How far it goes on the device, after everything in it was brought there. KAFKA_STORAGE_ERROR."""
        await self.log.wait_until_synced(self.log.end)
        return self.log_end

    def read_committed(self, ask: MetadataFetchRequest) -> MetadataFetchResponse:
        """A consumer sees what is committed. KafkaError: KAFKA_STORAGE_ERROR."""
        log = self.log
        if not log.start <= ask.log_end.offset <= log.high_watermark:
            return MetadataFetchResponse(
                ErrorCode.offset_out_of_range, log.high_watermark, log.start, snapshot_id=self.snapshots.latest
            )
        records = bytes(log.read(ask.log_end.offset, ask.max_bytes, up_to=log.high_watermark))
        return MetadataFetchResponse(high_watermark=log.high_watermark, log_start_offset=log.start, records=records)

    def read_for_new_leader(self, ask: MetadataFetchRequest) -> MetadataFetchResponse:
        """The leader of the epoch promised takes over whatever this log has more than its own."""
        if (elsewhere := self.find_divergence(ask.log_end)) is not None:
            return elsewhere
        records = bytes(self.log.read(ask.log_end.offset, ask.max_bytes, up_to=self.log.end))
        return MetadataFetchResponse(log_start_offset=self.log.start, records=records)

    # --- as leader

    def append_as_leader(self, records: Sequence[MetadataRecord], epoch: int) -> "asyncio.Future[MetadataDelta]":
        """All of `records` or none (one batch); done when they are committed. KAFKA_STORAGE_ERROR when the disk refuses."""
        now_ms = self._runtime.now_ms()
        batch = encode_batch([Record(now_ms, None, encode_record(record)) for record in records])
        appended = self.log.append_as_leader(batch, leader_epoch=epoch, now_ms=now_ms, from_client=False)
        self.bytes_since_snapshot += len(batch)
        waiter: asyncio.Future[MetadataDelta] = asyncio.get_running_loop().create_future()
        self._pending.append(PendingCommit(appended.first_offset, records, waiter))
        return waiter

    def fail_pending_commits(self) -> None:
        """Whoever waits for a commit is told that this broker leads no longer; what becomes of the records is for the next leader to say."""
        pending, self._pending = self._pending, deque()
        for one in pending:
            if not one.future.done():
                one.future.set_exception(KafkaError(ErrorCode.not_controller, "this broker leads no longer"))

    # --- as follower

    def append_as_follower(self, data: bytes, epoch: int) -> None:
        """Appends what a leader sent. CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR."""
        self.log.append_as_follower(data, leader_epoch=epoch)
        self.bytes_since_snapshot += len(data)

    def truncate_to(self, offset: int) -> None:
        """Cuts off what a leader does not have. Parted when that was committed."""
        if offset < self.log.high_watermark:
            raise CommittedLogDiverged(
                ErrorCode.unknown_server_error,
                f"the leader's metadata log parts from this broker's at offset {offset}, which was committed here up to "
                f"{self.log.high_watermark}: it is not taken back",
            )
        self.log.truncate_to(offset)

    # --- what is committed

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Everything below is committed: applies it to the image, in order. A lower mark than the one known says nothing."""
        committed = min(high_watermark, self.log.end)
        if committed > self.log.high_watermark:
            self.log.advance_high_watermark(committed)
        self.apply_committed()

    def apply_committed(self) -> None:
        """Brings the image to the high watermark. UNSUPPORTED_VERSION when the log holds records of a newer version."""
        while self.image.end_offset < self.log.high_watermark:
            own = self._pending[0] if self._pending else None
            if own is not None and own.first_offset <= self.image.end_offset:
                self._pending.popleft()
                numbered = zip(range(own.first_offset, own.first_offset + len(own.records)), own.records, strict=True)
                changes = self.image.apply_records(numbered)
                self.publish(changes)
                if not own.future.done():
                    own.future.set_result(changes)
            else:
                up_to = self.log.high_watermark if own is None else min(own.first_offset, self.log.high_watermark)
                for end, records in self._iter_commits(self.image.end_offset, up_to):
                    changes = self.image.apply_records(records)
                    self.image.end_offset = end
                    self.publish(changes)
                self.image.end_offset = max(self.image.end_offset, up_to)

    def _iter_commits(self, offset: int, up_to: int) -> Iterator[tuple[int, list[tuple[int, MetadataRecord]]]]:
        """Commit by commit, as they were made: (the offset after it, its records with theirs)."""
        while offset < up_to:
            data = self.log.read(offset, READ_BYTES, up_to=up_to)
            if not data:
                return
            for at, header in iter_batches(data):
                offset = header.next_offset
                if header.is_control:
                    continue
                found = iter_records(memoryview(data)[at : at + header.size])
                records = [
                    (record.offset, decode_record(record.value)) for _, record in found if record.value is not None
                ]
                self.records_read += len(records)
                yield offset, records
