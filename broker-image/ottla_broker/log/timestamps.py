"""Finding offsets by time: the time index says where to look, batches are parsed only at the end (KIP-79, KIP-734)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla_broker.log.segment import CorruptSegment, Segment
from ottla_broker.log.time_index import TimestampOffset
from ottla_broker.wire.records import decode_batch

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog


def offset_for_time(log: "PartitionLog", timestamp: int) -> TimestampOffset | None:
    """The first record at or after the log start whose timestamp (ms) is at least `timestamp`. KafkaError: KAFKA_STORAGE_ERROR."""
    for segment in list(log.segments):
        with _told(log, segment):
            if segment.largest.timestamp >= timestamp and (found := _search(segment, timestamp, log.start)):
                return found
    return None


def max_timestamp(log: "PartitionLog") -> TimestampOffset | None:
    """The record at or after the log start with the largest timestamp, the first of several. KafkaError: KAFKA_STORAGE_ERROR."""
    ranked: list[tuple[int, Segment]] = []
    for segment in log.segments.since(log.start):
        with _told(log, segment):
            ranked.append((segment.largest.timestamp, segment))
    best: TimestampOffset | None = None
    # What a segment's indexes call its largest may lie below the log start, or compaction took it: then another may have a larger one.
    for largest, segment in sorted(ranked, key=lambda one: -one[0]):
        if best is not None and largest < best.timestamp:
            break
        with _told(log, segment):
            found = _search(segment, largest, log.start) or _largest_left(segment, log.start)
        if found is not None and (best is None or (-found.timestamp, found.offset) < (-best.timestamp, best.offset)):
            best = found
    return best


@contextmanager
def _told(log: "PartitionLog", segment: Segment) -> Iterator[None]:
    """What cannot be read takes the partition offline."""
    try:
        yield
    except CorruptSegment as error:
        raise log.corrupt(error, segment.base) from error
    except OSError as error:
        raise log.io_failed("read", segment.path, error) from error


def _largest_left(segment: Segment, start: int) -> TimestampOffset | None:
    """By the records themselves; of a batch, when it may hold a larger one than those before it."""
    best: TimestampOffset | None = None
    for at, header in segment.headers(segment.offsets.floor(start)):
        if header.last_offset < start or (best is not None and header.max_timestamp <= best.timestamp):
            continue
        for record in decode_batch(segment.file.read(header.size, at), header):
            if record.offset >= start and (best is None or record.timestamp_ms > best.timestamp):
                best = TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
    return best


def _search(segment: Segment, timestamp: int, start: int) -> TimestampOffset | None:
    position = segment.offsets.floor(segment.times.offset_before(timestamp))
    for at, header in segment.headers(position):
        if header.max_timestamp < timestamp or header.last_offset < start:
            continue
        for record in decode_batch(segment.file.read(header.size, at), header):
            if record.timestamp_ms >= timestamp and record.offset >= start:
                return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
    return None
