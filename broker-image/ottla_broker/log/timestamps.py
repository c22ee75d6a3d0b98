"""Finding offsets by time: the time index says where to look, batches are parsed only at the end (KIP-79, KIP-734)."""

from typing import TYPE_CHECKING

from ottla_broker.log.segment import CorruptSegment, Segment
from ottla_broker.log.time_index import TimestampOffset
from ottla_broker.wire.records import decode_batch

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog


def offset_for_time(log: "PartitionLog", timestamp: int) -> TimestampOffset | None:
    """The first record at or after the log start whose timestamp (ms) is at least `timestamp`."""
    for segment in list(log.segments):
        try:
            if segment.largest.timestamp >= timestamp and (found := _search(segment, timestamp, log.start)):
                return found
        except CorruptSegment as error:
            raise log.corrupt(error, segment.base) from error
        except OSError as error:
            raise log.io_failed("read", segment.path, error) from error
    return None


def max_timestamp(log: "PartitionLog") -> TimestampOffset | None:
    """The record with the largest timestamp of all, the first of several."""
    best: Segment | None = None
    for segment in log.segments:
        if segment.size and (best is None or segment.largest.timestamp > best.largest.timestamp):
            best = segment
    return None if best is None else offset_for_time(log, best.largest.timestamp)


def _search(segment: Segment, timestamp: int, start: int) -> TimestampOffset | None:
    position = segment.offsets.floor(segment.times.offset_before(timestamp))
    for at, header in segment.headers(position):
        if header.max_timestamp < timestamp or header.last_offset < start:
            continue
        for record in decode_batch(segment.file.read(header.size, at), header):
            if record.timestamp_ms >= timestamp and record.offset >= start:
                return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
    return None
