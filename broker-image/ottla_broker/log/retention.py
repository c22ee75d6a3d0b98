"""What a log lets go: by time, by size, by DeleteRecords.

The first two drop whole segments from the front, never above the high watermark; the third raises the log start, and the segments below
it follow. Files are renamed to `.deleted` and unlinked after `file.delete.delay.ms`, so that a reader under way finishes.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

from ottla_broker.log import file_names
from ottla_broker.log.config import LogConfig
from ottla_broker.log.segment import Segment
from ottla_broker.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla_broker.log.partition_log import PartitionLog


def delete_records_before(log: "PartitionLog", offset: int) -> int:
    if offset > log.high_watermark or offset < 0:
        raise KafkaError(
            ErrorCode.offset_out_of_range, f"cannot delete up to {offset}: the high watermark is {log.high_watermark}"
        )
    if offset > log.start:
        raise_start(log, offset)
    return log.start


def raise_start(log: "PartitionLog", offset: int) -> None:
    """The log now starts at `offset`; what is below may not be read any more."""
    log.start = offset
    log.epochs.truncate_from_start(offset)
    log.high_watermark = max(log.high_watermark, offset)
    log.producers.remove_replicated_transactions(offset)
    log.touched = True


def apply_retention(log: "PartitionLog", now_ms: int) -> int:
    if log.failed is not None:
        return 0
    dropped = 0
    try:
        condemned = _below_start(log)
        if log.config.cleanup_delete:
            condemned = max(condemned, _too_old(log, log.config, now_ms), _too_much(log, log.config), key=len)
        if condemned:
            dropped = len(condemned)
            if len(condemned) == len(log.segments):
                log.roll()
            drop(log, condemned, now_ms)
            if (first := log.segments[0].base) > log.start:
                raise_start(log, first)
    except OSError as error:
        raise log.io_failed("retention", log.directory, error) from error
    return dropped


def retention_offset(log: "PartitionLog", config: LogConfig, now_ms: int) -> int:
    """The offset below which time and size, by these settings, would let everything go; at most the high watermark. OSError."""
    if not config.cleanup_delete:
        return log.start
    condemned = max(_too_old(log, config, now_ms), _too_much(log, config), key=len)
    behind = len(condemned)
    if behind == len(log.segments):
        return log.end
    return max(log.segments[behind].base, log.start) if behind else log.start


def _deletable(log: "PartitionLog") -> "list[Segment]":
    """Segments wholly below the high watermark, oldest first; an empty active one stays."""
    segments = list(log.segments)
    ends = [*(segment.base for segment in segments[1:]), log.end]
    return [segment for segment, end in zip(segments, ends, strict=True) if end <= log.high_watermark and segment.size]


def _below_start(log: "PartitionLog") -> "list[Segment]":
    segments = list(log.segments)
    return [old for old, new in pairwise(segments) if new.base <= log.start]


def _too_old(log: "PartitionLog", config: LogConfig, now_ms: int) -> "list[Segment]":
    retention = config.retention_ms
    if retention < 0:
        return []
    condemned: list[Segment] = []
    for segment in _deletable(log):
        newest = segment.largest.timestamp
        if newest < 0:
            newest = log.storage.disk.modified_ms(segment.path)
        if now_ms - newest <= retention:
            break
        condemned.append(segment)
    return condemned


def _too_much(log: "PartitionLog", config: LogConfig) -> "list[Segment]":
    surplus = log.size - config.retention_bytes
    condemned: list[Segment] = []
    if config.retention_bytes < 0:
        return condemned
    for segment in _deletable(log):
        if surplus < segment.size:
            break
        surplus -= segment.size
        condemned.append(segment)
    return condemned


def drop(log: "PartitionLog", segments: "Sequence[Segment]", now_ms: int) -> None:
    """Takes segments out of the log; their files are renamed now and removed later."""
    log.segments.replace(segments, [])
    for segment in segments:
        retire(log, segment, now_ms)


def retire(log: "PartitionLog", segment: Segment, now_ms: int) -> None:
    """Renames a segment's files to `.deleted`, its snapshot too when no other segment starts there."""
    segment.unload()
    disk = log.storage.disk
    paths = list(segment.paths)
    if segment.base in log.snapshots.offsets and segment.base not in log.segments.bases:
        log.snapshots.offsets.remove(segment.base)
        paths.append(log.snapshots.path(segment.base))
    due = now_ms + log.config.file_delete_delay_ms
    for path in paths:
        if disk.exists(path):
            disk.rename(path, path + file_names.DELETED)
            log.retired.append((due, path + file_names.DELETED))


def remove_retired(log: "PartitionLog", now_ms: int) -> list[str]:
    """Paths of files whose delay is over; the caller unlinks them off the protocol's thread."""
    due = [path for when, path in log.retired if when <= now_ms]
    if due:
        log.retired = [(when, path) for when, path in log.retired if when > now_ms]
    return due
