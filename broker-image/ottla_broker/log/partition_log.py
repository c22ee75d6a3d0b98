"""One partition's log: what a leader or a follower appends to, and what everyone reads from.

Belongs to the protocol's thread and never waits for a device there, but for the write into the page cache; fsync runs in
`log.flush`, off that thread. Opening is in `log.recovery`; rolling, reading of files, retention and truncation in files of these names.
"""

import logging
from collections.abc import Sequence
from typing import Final

from ottla_broker.log import reading, retention, rolling, timestamps, truncation
from ottla_broker.log.config import MAX_INT32, LogConfig
from ottla_broker.log.flush import Flush
from ottla_broker.log.opened import Opened
from ottla_broker.log.producer_rebuild import replay_batch
from ottla_broker.log.producer_state import BatchMetadata
from ottla_broker.log.recall import recall
from ottla_broker.log.rewrite import check_keys, rewritten
from ottla_broker.log.storage import Storage, is_full
from ottla_broker.log.tail_cache import TailCache
from ottla_broker.log.time_index import TimestampOffset
from ottla_broker.log.transaction_markers import read_end_marker
from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.log.validation import (
    HeaderFields,
    LogAppendInfo,
    check_from_zero,
    check_size,
    fields_at,
    from_leader,
    no_segment_holds,
    split_whole_batches,
    validate_client_batch,
    validate_crc,
)
from ottla_broker.wire.batch import (
    CONTROL_FLAG,
    HEADER,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    parse_batch_header,
    stamp_offset_and_epoch,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

NO_TIME: Final = -1


class PartitionLog:
    """See the module. Offsets count records; `end` is the next one to be written."""

    __slots__ = (
        "_plain",
        "_tail",
        "config",
        "directory",
        "end",
        "epochs",
        "failed",
        "flush",
        "high_watermark",
        "partition",
        "producers",
        "retired",
        "segments",
        "snapshots",
        "start",
        "storage",
        "topic",
        "topic_id",
        "touched",
        "truncations",
    )

    def __init__(
        self, topic: str, partition: int, directory: str, config: LogConfig, storage: Storage, opened: Opened
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.topic_id = opened.topic_id
        self.storage = storage
        self.segments = opened.segments
        self.start = opened.start
        self.end = opened.end
        self.high_watermark = opened.start
        self.epochs = opened.epochs
        self.producers = opened.producers
        self.snapshots = opened.snapshots
        self.flush = Flush(self, opened.recovery_point)
        self.failed: KafkaError | None = None
        for flaw in opened.flaws:
            log.warning("%s-%d: %s", topic, partition, flaw)
        if opened.failed is not None:
            self.fail(KafkaError(ErrorCode.kafka_storage_error, opened.failed))
        self.retired: list[tuple[int, str]] = []  # (when to remove it, ms; path) of files renamed to .deleted
        self.touched = True  # changed since the last checkpoint; set anew by whoever changes anything
        self.truncations = 0
        self._tail = TailCache(storage.tails)
        self.set_config(config)

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic}-{self.partition} [{self.start}, {self.end})>"

    def set_config(self, config: LogConfig) -> None:
        self.config = config
        # The hot path asks one question: may a client's batch be written as it came?
        self._plain = (
            config.compression_type == "producer"
            and config.message_timestamp_type == "CreateTime"
            and not config.cleanup_compact
        )

    @property
    def recovery_point(self) -> int:
        return self.flush.recovery_point

    @property
    def size(self) -> int:
        """Bytes of all segments' batches."""
        return self.segments.size

    def size_from(self, offset: int) -> int:
        """About how many bytes lie at and above `offset`."""
        first, *others = self.segments.since(offset)
        return first.size_above(offset) + sum(segment.size for segment in others)

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop: the first open (or not yet replicated) transaction, or the high watermark."""
        first = self.producers.first_unstable_offset
        return self.high_watermark if first is None else min(max(first, self.start), self.high_watermark)

    def advance_high_watermark(self, offset: int) -> None:
        """Replication's word; also takes it back after a truncation."""
        self.high_watermark = min(max(offset, self.start), self.end)
        self.producers.remove_replicated_transactions(self.high_watermark)
        self.touched = True

    # --- appending

    def append_as_leader(
        self, records: Buffer, *, leader_epoch: int, now_ms: int, from_client: bool = True
    ) -> LogAppendInfo:
        """Checks, stamps and writes batches; a client may send one, a coordinator several. The bytes are copied.

        `now_ms`: wall time, for LogAppendTime, the window of timestamps and rolling. KafkaError, with nothing written: CORRUPT_MESSAGE,
        MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        if self.failed is not None:
            raise self.failed
        size = len(records)
        fields = fields_at(records, 0, size)
        if fields[1] + LOG_OVERHEAD != size:
            return self._append_several(records, leader_epoch, now_ms, from_client)
        if from_client:
            check_from_zero(fields)
        check_size(fields, self.config)
        validate_crc(records, 0, fields)
        if from_client:
            validate_client_batch(fields, self.config, now_ms)
        if not self._plain and self.config.cleanup_compact and not fields[5] & CONTROL_FLAG:
            check_keys(records, BatchHeader(*fields))  # before the producer's sequence is looked at, as in Kafka
        if fields[9] >= 0 and (sent := self._check_producer(records, fields, from_client)):
            # Beside a duplicate the batch's own time is told, as Kafka does whoever has set it.
            return LogAppendInfo(
                sent.first_offset, sent.last_offset, sent.timestamp, self.start, True, 1, sent.offset_delta + 1, 0
            )
        append_time = NO_TIME
        if not self._plain:
            records, append_time = self._as_the_topic_wants(records, fields, now_ms)
            size = len(records)
            fields = HEADER.unpack_from(records)
            check_size(fields, self.config)
        if from_client and size > self.config.segment_bytes:
            raise no_segment_holds(size, self.config)
        first = self.end
        last = first + fields[6]
        if leader_epoch != self.epochs.latest_epoch() and leader_epoch >= 0:
            self.epochs.assign(leader_epoch, first)
        self._write(records, size, ((0, fields),), first, leader_epoch, now_ms)
        return LogAppendInfo(first, last, append_time, self.start, False, 1, fields[12], size)

    def _append_several(self, records: Buffer, leader_epoch: int, now_ms: int, from_client: bool) -> LogAppendInfo:
        if from_client:
            raise KafkaError(ErrorCode.invalid_record, "a produce request may hold one batch for each partition")
        size, found = split_whole_batches(records)
        if size != len(records):
            raise KafkaError(ErrorCode.corrupt_message, f"{len(records) - size} bytes behind the last whole batch")
        total: LogAppendInfo | None = None
        for at, fields in found:
            batch = memoryview(records)[at : at + fields[1] + LOG_OVERHEAD]
            done = self.append_as_leader(batch, leader_epoch=leader_epoch, now_ms=now_ms, from_client=False)
            if total is None:
                total = done
            else:
                total.last_offset = done.last_offset
                total.batch_count += 1
                total.record_count += done.record_count
                total.byte_count += done.byte_count
        assert total is not None  # fields_at found one
        return total

    def append_as_follower(self, records: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        """Writes what a leader sent, offsets and epochs as they are; a last batch that was cut off is left out.

        `leader_epoch`: of the leader that was asked; a batch from a newer one is not taken. KafkaError: CORRUPT_MESSAGE,
        OFFSET_OUT_OF_RANGE (offsets below the end of this log), KAFKA_STORAGE_ERROR.
        """
        if self.failed is not None:
            raise self.failed
        size, taken = from_leader(records, self.end, leader_epoch)
        if not taken:
            return LogAppendInfo(-1, -1, NO_TIME, self.start, False, 0, 0, 0)
        first, count = taken[0][1][0], sum(fields[12] for _, fields in taken)
        now_ms = self.storage.runtime.now_ms()
        for _, fields in taken:
            if fields[2] >= 0 and fields[2] != self.epochs.latest_epoch():
                self.epochs.assign(fields[2], fields[0])
        try:
            self._write(memoryview(records)[:size], size, taken, None, leader_epoch, now_ms)
        except KafkaError:
            self.epochs.truncate_from_end(self.end)  # of an epoch of which nothing was written nothing is known
            raise
        return LogAppendInfo(first, self.end - 1, NO_TIME, self.start, False, len(taken), count, size)

    def _check_producer(self, records: Buffer, fields: HeaderFields, from_client: bool) -> BatchMetadata | None:
        _, _, _, _, _, attributes, delta, _, _, producer_id, epoch, sequence, _ = fields
        if attributes & CONTROL_FLAG:
            if (marker := read_end_marker(records, BatchHeader(*fields))) is not None:
                self.producers.check_marker(producer_id, epoch, marker.coordinator_epoch)
            return None
        transactional = bool(attributes & TRANSACTIONAL_FLAG)
        check = self.producers.check_batch
        try:
            return check(producer_id, epoch, sequence, delta, transactional=transactional, sequenced=from_client)
        except KafkaError as error:
            producer = self.producers.get(producer_id)
            if error.code is not ErrorCode.out_of_order_sequence_number or producer is None or producer.recalled:
                raise
            recall(self, producer)  # after a restart: older batches than the snapshot's may be asked for
            return check(producer_id, epoch, sequence, delta, transactional=transactional, sequenced=from_client)

    def _as_the_topic_wants(self, records: Buffer, fields: HeaderFields, now_ms: int) -> tuple[Buffer, int]:
        header = BatchHeader(*fields)
        if header.is_control:
            return records, NO_TIME
        append_time = now_ms if self.config.message_timestamp_type == "LogAppendTime" else NO_TIME
        return rewritten(records, header, self.config, now_ms=now_ms), append_time

    def _write(
        self,
        records: Buffer,
        size: int,
        batches: Sequence[tuple[int, HeaderFields]],
        first: int | None,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Writes batches in one piece and takes note of them. `first`: where a leader numbers them from; None: numbered already."""
        config = self.config
        segment = self.segments.active
        largest = batches[-1][1]
        end = (largest[0] if first is None else first) + largest[6] + 1
        try:
            full = segment.unindexed > config.index_interval_bytes and segment.indexes_full(config.segment_index_bytes)
            if full or segment.must_roll(
                size,
                end - 1,
                largest[8],
                now_ms=now_ms,
                segment_bytes=config.segment_bytes,
                segment_ms=config.roll_ms,
            ):
                # A hole that no relative offset spans: the segment starts where the batches do.
                recorded = segment.next_offset()
                base = recorded if end - 1 - recorded <= MAX_INT32 else batches[0][1][0]
                segment = rolling.roll_at(self, base, now_ms)
            arena = self._tail.room(size, self.end)
            at = arena.used
            view = arena.view[at : at + size]
            view[:] = records
            if first is not None:
                stamp_offset_and_epoch(view, 0, first, leader_epoch)
            segment.file.append((view,))
        except OSError as error:
            raise self.io_failed("append", segment.path, error) from error
        arena.used = at + size
        interval = config.index_interval_bytes
        start = segment.size
        for position, fields in batches:
            base, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = fields
            if first is not None:
                base = first
            length += LOG_OVERHEAD
            arena.ends.append(base + delta + 1)
            arena.stops.append(at + position + length)
            segment.added(start + position, length, base + delta, max_timestamp, interval)
            if producer_id >= 0:
                if attributes & CONTROL_FLAG:
                    batch = view[position : position + length]
                    if (aborted := replay_batch(self.producers, parse_batch_header(batch), batch, now_ms)) is not None:
                        segment.transactions.append(aborted)
                else:
                    transactional = bool(attributes & TRANSACTIONAL_FLAG)
                    self.producers.apply_batch(
                        producer_id, epoch, sequence, base, delta, max_timestamp, transactional, now_ms
                    )
        self.end = end
        self.touched = True

    def roll(self) -> None:
        """Starts a new segment at the log's end; nothing happens when the active one is empty. KafkaError: KAFKA_STORAGE_ERROR."""
        rolling.roll(self)

    # --- reading

    def read(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool = True) -> Buffer:
        """Whole batches, from the one that holds `offset` (or the first one behind a hole) on; none that ends above `up_to`.

        At most `max_bytes`, but the first batch is returned whatever its size when `at_least_one`. Empty when nothing is to be had.
        KafkaError: OFFSET_OUT_OF_RANGE outside of [start, end], KAFKA_STORAGE_ERROR.
        """
        if self.failed is not None:
            raise self.failed
        if not self.start <= offset <= self.end:
            raise KafkaError(
                ErrorCode.offset_out_of_range, f"offset {offset}; the log holds {self.start} to {self.end}"
            )
        if offset >= up_to:
            return b""
        data = self._tail.read(offset, max_bytes, up_to, at_least_one)
        return reading.read_files(self, offset, max_bytes, up_to, at_least_one) if data is None else data

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that have records in [from_offset, to_offset), for read_committed readers."""
        return reading.aborted(self, from_offset, to_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with a timestamp (ms) of at least `timestamp`; None when there is none."""
        return timestamps.offset_for_time(self, timestamp)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; None for an empty log."""
        return timestamps.max_timestamp(self)

    # --- shortening

    def delete_records_before(self, offset: int) -> int:
        """Raises the log start; returns it. Segments wholly below go with the next retention. OFFSET_OUT_OF_RANGE above the high
        watermark."""
        return retention.delete_records_before(self, offset)

    def apply_retention(self, now_ms: int) -> int:
        """Drops segments that time, size or the log start condemn; returns how many. Files go after file.delete.delay.ms."""
        return retention.apply_retention(self, now_ms)

    def truncate_to(self, offset: int) -> None:
        """Cuts off everything at and above `offset`; epochs and producers are as they were there."""
        truncation.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        truncation.truncate_fully_and_start_at(self, offset)

    def clear_tail_cache(self) -> None:
        self._tail.clear()

    # --- durability

    async def wait_until_synced(self, offset: int) -> None:
        """Returns when everything below `offset` that is still in the log is on stable storage; all who wait share one fsync.
        KafkaError: KAFKA_STORAGE_ERROR."""
        await self.flush.synced(offset)

    @property
    def is_sync_due(self) -> bool:
        """Whether flush.messages wants an fsync before the next acknowledgement."""
        return self.end - self.flush.flushed >= self.config.flush_messages

    def seal(self) -> None:
        """Completes the active segment's indexes, as before a stop. KafkaError: KAFKA_STORAGE_ERROR."""
        try:
            self.segments.active.seal()
        except OSError as error:
            raise self.io_failed("write of an index", self.segments.active.path, error) from error

    def close(self) -> None:
        """Writes what is only in memory (indexes) and gives up files. `flush.checkpoint` first for a clean stop."""
        self.clear_tail_cache()
        try:
            if self.failed is None:
                self.seal()
        finally:
            for segment in self.segments:
                segment.unload()

    # --- failing

    def io_failed(self, doing: str, path: str, error: OSError) -> KafkaError:
        """The refusal for an I/O error. A full disk only refuses; anything else takes the partition offline."""
        reason = KafkaError(ErrorCode.kafka_storage_error, f"{doing} of {path} failed: {error.strerror or error}")
        if not is_full(error):
            self.fail(reason)
        return reason

    def corrupt(self, error: ValueError, offset: int) -> KafkaError:
        reason = KafkaError(ErrorCode.kafka_storage_error, f"{error}, near offset {offset}")
        self.fail(reason)
        return reason

    def fail(self, reason: KafkaError) -> None:
        if self.failed is None:
            log.error("%s-%d is offline: %s", self.topic, self.partition, reason.message)
            self.failed = reason
