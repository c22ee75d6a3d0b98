"""One partition's log: Kafka's UnifiedLog. A leader or a follower appends to it; consumers,
followers and the broker itself read from it.

It belongs to the event loop's thread. An append waits there for the write into the page cache and,
where a new segment begins, possibly for a sync of the folder. A truncation waits for the device.
All other fsyncs run in another thread (`log.flush`). `log.recovery` opens it. Appending and reading
the tail, the hot paths, are here. The other operations are functions over `LogState`, in modules
named for them.
"""

from collections.abc import Sequence

from ottla_broker.log import flush, reading, retention, rolling, truncation
from ottla_broker.log.appending import write_batches
from ottla_broker.log.log_state import LogState
from ottla_broker.log.producer_rebuild import restore_recent_batches
from ottla_broker.log.producer_state import BatchMetadata
from ottla_broker.log.record_validation import validate_records
from ottla_broker.log.small_batches import JoinedAppend, append_small_batches
from ottla_broker.log.transaction_markers import read_end_marker
from ottla_broker.log.validation import (
    MAGIC,
    HeaderFields,
    LogAppendInfo,
    convert_batch,
    read_header_fields,
    refuse_magic,
    split_leader_batches,
    split_whole_batches,
    validate_base_offset,
    validate_client_batch,
    validate_crc,
    validate_size,
)
from ottla_broker.wire.batch import (
    CONTROL_FLAG,
    HEADER,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError


class PartitionLog(LogState):
    """The operations on a log, beside its state.

    It inherits the state's fields, because produce and fetch read a dozen of them: each would cost
    50 ns more through a property.
    """

    __slots__ = ()

    @property
    def recovery_point(self) -> int:
        return self.flush.recovery_point

    @property
    def size(self) -> int:
        """Bytes of all segments' batches."""
        return self.segments.size

    def size_from(self, offset: int) -> int:
        """Approximate number of bytes of the records from `offset` to the log's end."""
        first, *others = self.segments.from_offset(offset)
        return first.size_from(offset) + sum(segment.size for segment in others)

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which read_committed consumers read: the high watermark, or before it
        the first offset of a transaction that is open or whose marker is not replicated.
        """
        first = self.producers.first_unstable_offset
        return self.high_watermark if first is None else min(max(first, self.start), self.high_watermark)

    # --- appending

    def append_as_leader(
        self, records: Buffer, *, leader_epoch: int, now_ms: int, from_client: bool = True
    ) -> LogAppendInfo:
        """Checks, stamps and writes batches; a client may send one, a coordinator several. The
        bytes are copied.

        `now_ms`: wall time, for LogAppendTime, for the limits of timestamps and for rolling. Raises
        InvalidRecords or KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR. The batch with the error is not
        written; those of a coordinator before it are.
        """
        if self.failure is not None:
            raise self.failure
        size = len(records)
        fields = read_header_fields(records, size)
        if fields[1] + LOG_OVERHEAD != size:
            return self._append_several(records, leader_epoch, now_ms, from_client)
        config = self.config
        if fields[3] != MAGIC:  # before the size, as in Kafka, which finds batches by this byte
            refuse_magic(fields[3])
        if from_client:
            validate_base_offset(fields)
        validate_size(fields, config)
        validate_crc(records, 0, fields)
        if from_client:
            validate_client_batch(records, fields, config, now_ms)
        if self.validates_records and not fields[5] & CONTROL_FLAG:
            # Before the producer's sequence is checked, as in Kafka.
            validate_records(records, BatchHeader(*fields), config, now_ms)
        if fields[9] >= 0 and (sent := self._check_producer(records, fields, from_client)):
            # As in Kafka, the response to a duplicate has the timestamp of the stored batch, even
            # if the producer set it.
            return LogAppendInfo(
                sent.first_offset, sent.last_offset, sent.timestamp, self.start, True, sent.offset_delta + 1, 0
            )
        append_time = NO_TIMESTAMP
        if not self.appends_unchanged:
            if not fields[5] & CONTROL_FLAG:
                if config.message_timestamp_type == "LogAppendTime":
                    append_time = now_ms
                records = convert_batch(records, BatchHeader(*fields), config, now_ms=now_ms)
            size = len(records)
            fields = HEADER.unpack_from(records)
            validate_size(fields, config)
        if from_client and size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large, f"a batch of {size} bytes; segment.bytes allows {config.segment_bytes}"
            )
        first = self.end
        if leader_epoch != self.epochs.latest_epoch() and leader_epoch >= 0:
            self.epochs.assign(leader_epoch, first)
        write_batches(self, records, size, ((0, fields),), first, leader_epoch, now_ms)
        return LogAppendInfo(first, first + fields[6], append_time, self.start, False, fields[12], size)

    def _append_several(self, records: Buffer, leader_epoch: int, now_ms: int, from_client: bool) -> LogAppendInfo:
        if from_client:
            raise KafkaError(ErrorCode.invalid_record, "a produce request may hold one batch for each partition")
        size, found = split_whole_batches(records)
        if size != len(records):
            raise KafkaError(ErrorCode.corrupt_message, f"{len(records) - size} bytes after the last whole batch")
        total: LogAppendInfo | None = None
        for at, fields in found:
            batch = memoryview(records)[at : at + fields[1] + LOG_OVERHEAD]
            done = self.append_as_leader(batch, leader_epoch=leader_epoch, now_ms=now_ms, from_client=False)
            if total is None:
                total = done
            else:
                total.last_offset = done.last_offset
                total.record_count += done.record_count
                total.byte_count += done.byte_count
        # read_header_fields found a batch.
        assert total is not None
        return total

    def append_as_follower(self, records: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        """Writes what a leader sent, offsets and epochs as they are; a last batch that was cut off
        is left out. Without a batch to append, the offsets of the result are −1.

        `leader_epoch`: epoch of the leader that responded; a batch of a newer one is not appended.
        Raises KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE (offsets below the end of this log),
        KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None:
            raise self.failure
        size, batches = split_leader_batches(records, self.end, leader_epoch)
        if not batches:
            return LogAppendInfo(-1, -1, NO_TIMESTAMP, self.start, False, 0, 0)
        first, count = batches[0][1][0], sum(fields[12] for _, fields in batches)
        now_ms = self.storage.runtime.now_ms()
        for _, fields in batches:
            if fields[2] >= 0 and fields[2] != self.epochs.latest_epoch():
                self.epochs.assign(fields[2], fields[0])
        try:
            write_batches(self, memoryview(records)[:size], size, batches, None, leader_epoch, now_ms)
        except KafkaError:
            # Nothing of a new epoch was written, so the log knows nothing of it.
            self.epochs.truncate_from_end(self.end)
            raise
        return LogAppendInfo(first, self.end - 1, NO_TIMESTAMP, self.start, False, count, size)

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
            out_of_order = error.code is ErrorCode.out_of_order_sequence_number
            if not out_of_order or producer is None or producer.has_all_batches:
                raise
            # After a restart: the batch may be a duplicate of an older one than the snapshot's.
            restore_recent_batches(self, producer)
            return check(producer_id, epoch, sequence, delta, transactional=transactional, sequenced=from_client)

    def append_small_batches(self, batches: Sequence[bytearray], *, leader_epoch: int, now_ms: int) -> JoinedAppend:
        """See `log.small_batches`. It is compiled, so it cannot become a method by assignment."""
        return append_small_batches(self, batches, leader_epoch=leader_epoch, now_ms=now_ms)

    # --- reading

    def read(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool = True) -> Buffer:
        """Whole batches from the one that holds `offset`, or the first one after a hole. None of
        them ends above `up_to`. At most `max_bytes`, but with `at_least_one` the first batch is
        returned whatever its size. Empty when there is no such batch. Raises KafkaError:
        OFFSET_OUT_OF_RANGE outside of [start, end], KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None:
            raise self.failure
        if not self.start <= offset <= self.end:
            raise KafkaError(
                ErrorCode.offset_out_of_range, f"offset {offset}; the log holds {self.start} to {self.end}"
            )
        if offset >= up_to:
            return b""
        data = self.tail.read(offset, max_bytes, up_to, at_least_one)
        return reading.read_files(self, offset, max_bytes, up_to, at_least_one) if data is None else data

    aborted_transactions = reading.aborted_transactions
    offset_for_timestamp = reading.offset_for_timestamp
    offset_of_max_timestamp = reading.offset_of_max_timestamp

    # --- rolling and shortening

    roll = rolling.roll
    delete_records_before = retention.delete_records_before
    retention_offset = retention.retention_offset
    apply_retention = retention.apply_retention
    truncate_to = truncation.truncate_to
    truncate_fully_and_start_at = truncation.truncate_fully_and_start_at

    def clear_tail_cache(self) -> None:
        self.tail.clear()

    # --- durability

    wait_until_synced = flush.wait_until_synced
    checkpoint = flush.checkpoint

    @property
    def is_sync_due(self) -> bool:
        """True if flush.messages requires an fsync before the next acknowledgement."""
        return self.end - self.flush.flushed_offset >= self.config.flush_messages

    def seal(self) -> None:
        """Completes the active segment's indexes, as before a stop. Raises KafkaError:
        KAFKA_STORAGE_ERROR."""
        active = self.segments.active
        with self.storage_errors("write of an index", active.path, self.end):
            active.seal()

    def close(self) -> None:
        """Saves the indexes and closes the files. Call `checkpoint` first for a clean stop. Raises
        KafkaError: KAFKA_STORAGE_ERROR."""
        self.tail.clear()
        try:
            if self.failure is None:
                self.seal()
        finally:
            for segment in self.segments:
                segment.unload()
