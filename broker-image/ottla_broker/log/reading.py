"""Reading a log from its files: batches by offset (those that are not in the tail in memory),
records by time (KIP-79, KIP-734), and aborted transactions.

If files cannot be read or batch headers are corrupt, every function raises KafkaError
KAFKA_STORAGE_ERROR. That takes the partition offline, unless the disk is full or file descriptors
are exhausted. Records that do not decompress or parse raise the KafkaError of `decode_batch` and
leave it online.
"""

import logging

from ottla_broker.log.indexes import AbortedTransaction, CorruptSegment, TimestampOffset
from ottla_broker.log.log_state import LogState
from ottla_broker.log.segment import Segment
from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.records import decode_batch

logger = logging.getLogger(__name__)


def read_files(log: LogState, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> Buffer:
    """Reads from the files, with the arguments and result of `PartitionLog.read`."""
    for at in range(log.segments.index_of_offset(offset), len(log.segments)):
        segment = log.segments[at]
        if segment.base >= up_to:
            break
        try:
            data = _read_segment(log, segment, offset, max_bytes, up_to, at_least_one)
        except (CorruptSegment, OSError) as error:
            raise log.storage_error("read", segment.path, error, offset) from error
        if segment is not log.segments.active:
            log.storage.keep_indexes(segment)
        if data is not None:
            return data
    return b""


def _read_segment(
    log: LogState, segment: Segment, offset: int, max_bytes: int, up_to: int, at_least_one: bool
) -> Buffer | None:
    try:
        return segment.read(offset, max_bytes, up_to, at_least_one)
    except CorruptSegment as error:
        logger.warning("rebuilding the indexes of %s, which may be corrupt: %s", segment.path, error)
        segment.rebuild_indexes(log.config.index_interval_bytes)
        return segment.read(offset, max_bytes, up_to, at_least_one)


def aborted_transactions(log: LogState, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """Aborted transactions that have records in [from_offset, to_offset)."""
    found: list[AbortedTransaction] = []
    for segment in log.segments.from_offset(from_offset):
        with log.storage_errors("read", segment.transactions.path, segment.base):
            entries = segment.transactions.entries()
        for entry in entries:
            if entry.last_offset >= from_offset and entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return found
    return found


def offset_for_timestamp(log: LogState, timestamp: int) -> TimestampOffset | None:
    """The first record at or after the log start whose timestamp (ms) is at least `timestamp`; None
    if all are older. Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    for segment in list(log.segments):
        with log.storage_errors("read", segment.path, segment.base):
            if segment.max_timestamp_and_offset.timestamp >= timestamp and (
                found := _search(segment, timestamp, log.start)
            ):
                return found
    return None


def offset_of_max_timestamp(log: LogState) -> TimestampOffset | None:
    """The record at or after the log start with the largest timestamp, the first of several; None
    without records. Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    ranked: list[tuple[int, Segment]] = []
    for segment in log.segments.from_offset(log.start):
        with log.storage_errors("read", segment.path, segment.base):
            ranked.append((segment.max_timestamp_and_offset.timestamp, segment))
    best: TimestampOffset | None = None
    # The record that a segment's indexes name may lie below the log start, or compaction removed
    # it: then another segment may have a larger one.
    for largest, segment in sorted(ranked, key=lambda one: -one[0]):
        if best is not None and largest < best.timestamp:
            break
        with log.storage_errors("read", segment.path, segment.base):
            found = _search(segment, largest, log.start) or _search_largest(segment, log.start)
        if found is not None and (best is None or (-found.timestamp, found.offset) < (-best.timestamp, best.offset)):
            best = found
    return best


def _search(segment: Segment, timestamp: int, start: int) -> TimestampOffset | None:
    """The segment's first record from offset `start` on whose timestamp is at least `timestamp`.
    Only batches that may hold it are parsed."""
    position = segment.offsets.lookup_position(segment.times.offset_before(timestamp))
    for at, header in segment.iter_headers(position):
        if header.max_timestamp < timestamp or header.last_offset < start:
            continue
        for record in decode_batch(segment.file.read(header.size, at), header):
            if record.timestamp_ms >= timestamp and record.offset >= start:
                return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
    return None


def _search_largest(segment: Segment, start: int) -> TimestampOffset | None:
    """The newest record from offset `start` on, by the records themselves."""
    best: TimestampOffset | None = None
    for at, header in segment.iter_headers(segment.offsets.lookup_position(start)):
        if header.last_offset < start or (best is not None and header.max_timestamp <= best.timestamp):
            continue
        for record in decode_batch(segment.file.read(header.size, at), header):
            if record.offset >= start and (best is None or record.timestamp_ms > best.timestamp):
                best = TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
    return best
