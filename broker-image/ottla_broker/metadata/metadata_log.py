"""The metadata log of one broker: appends, commits, and the image built from the committed records.

Invariant: the image results from the records below the high watermark and from no others. So it is
never rolled back: a former leader truncates its log, and no broker has acted on the records that it
truncates.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.metadata_fetch import MetadataFetchRequest, MetadataFetchResponse, find_diverging_epoch
from ottla_broker.metadata.raft_rules import EpochAndOffset
from ottla_broker.metadata.records import MetadataRecord, decode_record, encode_record
from ottla_broker.metadata.snapshots import SnapshotStore
from ottla_broker.metadata.voter_history import VoterHistory, encode_voters_batch
from ottla_broker.metadata.voter_set import VoterSet
from ottla_broker.runtime import Runtime
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch, iter_records

READ_BYTES = 1 << 20


class CommittedLogDiverged(KafkaError):
    """A leader's log diverges from this broker's below the high watermark: two clusters were mixed,
    or a disk has lost synced data. Committed records are never truncated."""


class PendingCommit(msgspec.Struct, frozen=True):
    """Records that this broker appended as leader. `future` is done when they are committed."""

    first_offset: int
    records: Sequence[MetadataRecord]
    future: "asyncio.Future[MetadataDelta]"


@dataclass(eq=False, repr=False)
class MetadataLog:
    """`on_commit` is called after each change of the image but the load of a snapshot at start-up,
    before the commit's future is done."""

    partition_log: PartitionLog
    image: MetadataImage
    snapshots: SnapshotStore
    _runtime: Runtime
    on_commit: Callable[[MetadataDelta], None]
    voters: VoterHistory = field(default_factory=VoterHistory)
    records_read: int = 0  # from disk, since this broker started
    bytes_since_snapshot: int = 0
    _pending: deque[PendingCommit] = field(default_factory=deque)

    @property
    def high_watermark(self) -> int:
        return self.partition_log.high_watermark

    @property
    def end_offset(self) -> int:
        return self.partition_log.end

    @property
    def log_end(self) -> EpochAndOffset:
        end = self.partition_log.end
        before = self.snapshots.epoch_before(end) if end == self.partition_log.start else None
        return EpochAndOffset(self.partition_log.epochs.epoch_for_offset(end - 1) if before is None else before, end)

    def find_divergence(self, follower_end: EpochAndOffset) -> MetadataFetchResponse | None:
        """The response to a follower whose log is not a prefix of this one; None when it is.

        If the follower's log ends before the start of this one, the response names a snapshot.
        """
        start, offset = self.partition_log.start, follower_end.offset
        if offset < start or (offset == start > 0 and follower_end.epoch != self.snapshots.epoch_before(start)):
            return MetadataFetchResponse(log_start_offset=start, snapshot_id=self.snapshots.latest)
        diverging = find_diverging_epoch(self.partition_log.epochs, self.end_offset, follower_end)
        return None if diverging is None else MetadataFetchResponse(log_start_offset=start, diverging_epoch=diverging)

    async def wait_until_durable(self) -> EpochAndOffset:
        """The log end, once everything below it is on the device. Raises KAFKA_STORAGE_ERROR."""
        await self.partition_log.wait_until_synced(self.end_offset)
        return self.log_end

    def read_committed(self, request: MetadataFetchRequest) -> MetadataFetchResponse:
        """The response to a consumer. Raises KAFKA_STORAGE_ERROR."""
        log = self.partition_log
        if not log.start <= request.log_end.offset <= log.high_watermark:
            return MetadataFetchResponse(
                ErrorCode.offset_out_of_range, log.high_watermark, log.start, snapshot_id=self.snapshots.latest
            )
        records = bytes(log.read(request.log_end.offset, request.max_bytes, up_to=log.high_watermark))
        return MetadataFetchResponse(high_watermark=log.high_watermark, log_start_offset=log.start, records=records)

    def load_voters(self, from_offset: int) -> None:
        """Finds the voter sets in the log from an offset on, committed or not. Raises
        CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        while from_offset < self.end_offset:
            data = self.partition_log.read(from_offset, READ_BYTES, up_to=self.end_offset)
            self.voters.add_from_batches(data)
            from_offset = max([header.next_offset for _, header in iter_batches(data)], default=self.end_offset)

    # --- as leader

    def append_as_leader(self, records: Sequence[MetadataRecord], epoch: int) -> "asyncio.Future[MetadataDelta]":
        """Appends `records` as one batch; the future is done when they are committed. Raises
        KAFKA_STORAGE_ERROR.
        """
        now_ms = self._runtime.now_ms()
        batch = encode_batch([Record(now_ms, None, encode_record(record)) for record in records])
        appended = self.partition_log.append_as_leader(batch, leader_epoch=epoch, now_ms=now_ms, from_client=False)
        self.bytes_since_snapshot += len(batch)
        future: asyncio.Future[MetadataDelta] = asyncio.get_running_loop().create_future()
        self._pending.append(PendingCommit(appended.first_offset, records, future))
        return future

    def append_voters(self, voters: VoterSet, epoch: int) -> int:
        """Appends a voter set, which is in effect from now on. Returns the offset of its record.
        Raises KAFKA_STORAGE_ERROR.
        """
        now_ms = self._runtime.now_ms()
        batch = encode_voters_batch(voters, now_ms)
        appended = self.partition_log.append_as_leader(batch, leader_epoch=epoch, now_ms=now_ms, from_client=False)
        self.voters.add(appended.first_offset, voters)
        return appended.first_offset

    def fail_pending_commits(self) -> None:
        """Fails pending commits with NOT_CONTROLLER, because this broker is no longer the leader.
        The next leader may commit their records.
        """
        pending, self._pending = self._pending, deque()
        for commit in pending:
            if not commit.future.done():
                commit.future.set_exception(
                    KafkaError(ErrorCode.not_controller, "this broker is no longer the leader of the metadata log")
                )

    # --- as follower

    def append_as_follower(self, data: bytes, epoch: int) -> None:
        """Appends a leader's batches. Raises CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE,
        KAFKA_STORAGE_ERROR.
        """
        appended = self.partition_log.append_as_follower(data, leader_epoch=epoch)
        self.voters.add_from_batches(memoryview(data)[: appended.byte_count])
        self.bytes_since_snapshot += len(data)

    def truncate_to(self, offset: int) -> None:
        """Truncates records that the leader does not have. Raises CommittedLogDiverged when they
        were committed; KAFKA_STORAGE_ERROR.
        """
        if offset < self.high_watermark:
            raise CommittedLogDiverged(
                ErrorCode.unknown_server_error,
                f"the leader's metadata log diverges from this broker's at offset {offset}, below the high watermark "
                f"{self.high_watermark}: committed records are not truncated",
            )
        self.partition_log.truncate_to(offset)
        self.voters.truncate_to(self.end_offset)

    # --- commits

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Advances the high watermark, at most to the log end, and applies the records below it to
        the image. One that is lower than the known one is ignored. Raises what `apply_committed`
        raises.
        """
        new_high_watermark = min(high_watermark, self.end_offset)
        if new_high_watermark > self.high_watermark:
            self.partition_log.advance_high_watermark(new_high_watermark)
        self.apply_committed()

    def apply_committed(self) -> None:
        """Advances the image to the high watermark. Raises UNSUPPORTED_VERSION for records of a
        newer version; CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        while self.image.end_offset < self.high_watermark:
            own = self._pending[0] if self._pending else None
            if own is not None and own.first_offset <= self.image.end_offset:
                self._pending.popleft()
                numbered = zip(range(own.first_offset, own.first_offset + len(own.records)), own.records, strict=True)
                delta = self.image.apply_records(numbered)
                self.on_commit(delta)
                if not own.future.done():
                    own.future.set_result(delta)
            else:
                up_to = self.high_watermark if own is None else min(own.first_offset, self.high_watermark)
                for end, records in self._iter_commits(self.image.end_offset, up_to):
                    delta = self.image.apply_records(records)
                    self.image.end_offset = end
                    self.on_commit(delta)
                self.image.end_offset = max(self.image.end_offset, up_to)

    def _iter_commits(self, offset: int, up_to: int) -> Iterator[tuple[int, list[tuple[int, MetadataRecord]]]]:
        """Yields for each commit (the offset after it, its records with their offsets)."""
        while offset < up_to:
            data = self.partition_log.read(offset, READ_BYTES, up_to=up_to)
            if not data:
                return
            for at, header in iter_batches(data):
                offset = header.next_offset
                if header.is_control:
                    continue
                batch = iter_records(memoryview(data)[at : at + header.size])
                records = [(it.offset, decode_record(it.value)) for _, it in batch if it.value is not None]
                self.records_read += len(records)
                yield offset, records
