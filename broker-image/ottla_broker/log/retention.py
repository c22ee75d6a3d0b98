"""Deleting a log's oldest records: by time, by size, by DeleteRecords.

Time and size delete whole segments, never above the high watermark. DeleteRecords raises the log
start offset, and the next retention deletes the segments below it. Files are renamed to `.deleted`
and removed after `file.delete.delay.ms`, so that readers that have them open can finish.
"""

from collections.abc import Sequence
from itertools import pairwise

from ottla_broker.log import file_names
from ottla_broker.log.config import LogConfig
from ottla_broker.log.log_state import LogState
from ottla_broker.log.rolling import roll
from ottla_broker.log.segment import Segment
from ottla_broker.wire.errors import ErrorCode, KafkaError


def delete_records_before(log: LogState, offset: int) -> int:
    """Advances the log start offset to `offset`, if that is higher. Returns the log start offset.
    Raises KafkaError: OFFSET_OUT_OF_RANGE above the high watermark or below 0."""
    if offset > log.high_watermark or offset < 0:
        raise KafkaError(
            ErrorCode.offset_out_of_range, f"cannot delete up to {offset}: the high watermark is {log.high_watermark}"
        )
    if offset > log.start:
        log.raise_start(offset)
    return log.start


def apply_retention(log: LogState, now_ms: int) -> int:
    """Deletes the segments that expired by time or size or lie below the log start.

    Returns how many. Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    if log.failure is not None:
        return 0
    with log.storage_errors("retention", log.directory, log.start):
        expired = max(_below_start(log), _expired(log, log.config, now_ms), key=len)
        if expired:
            if len(expired) == len(log.segments):
                roll(log)
            log.segments.replace(expired, [])
            for segment in expired:
                mark_deleted(log, segment, now_ms)
            if (first := log.segments[0].base) > log.start:
                log.raise_start(first)
    return len(expired)


def retention_offset(log: LogState, config: LogConfig, now_ms: int) -> int:
    """The offset below which these settings' time and size would delete everything; at most the
    high watermark. Raises OSError, CorruptSegment."""
    count = len(_expired(log, config, now_ms))
    if count == len(log.segments):
        return log.end
    return max(log.segments[count].base, log.start) if count else log.start


def _below_start(log: LogState) -> list[Segment]:
    return [old for old, new in pairwise(log.segments) if new.base <= log.start]


def _expired(log: LogState, config: LogConfig, now_ms: int) -> list[Segment]:
    if not config.cleanup_delete:
        return []
    return max(_older_than_retention_ms(log, config, now_ms), _above_retention_bytes(log, config), key=len)


def _deletable(log: LogState) -> list[Segment]:
    """Segments wholly below the high watermark, oldest first; an empty active one stays."""
    segments = list(log.segments)
    ends = [*(segment.base for segment in segments[1:]), log.end]
    return [segment for segment, end in zip(segments, ends, strict=True) if end <= log.high_watermark and segment.size]


def _older_than_retention_ms(log: LogState, config: LogConfig, now_ms: int) -> list[Segment]:
    expired: list[Segment] = []
    if config.retention_ms < 0:
        return expired
    for segment in _deletable(log):
        newest = segment.max_timestamp_and_offset.timestamp
        if newest < 0:
            newest = log.storage.disk.modified_ms(segment.path)
        if now_ms - newest <= config.retention_ms:
            break
        expired.append(segment)
    return expired


def _above_retention_bytes(log: LogState, config: LogConfig) -> list[Segment]:
    expired: list[Segment] = []
    if config.retention_bytes < 0:
        return expired
    surplus = log.segments.size - config.retention_bytes
    for segment in _deletable(log):
        if surplus < segment.size:
            break
        surplus -= segment.size
        expired.append(segment)
    return expired


def mark_deleted(log: LogState, segment: Segment, now_ms: int) -> None:
    """Renames a segment's files to `.deleted`, and its snapshot if no other segment starts
    there."""
    segment.unload()
    disk = log.storage.disk
    paths = list(segment.paths)
    if segment.base in log.snapshots.offsets and segment.base not in log.segments.bases:
        log.snapshots.offsets.remove(segment.base)
        paths.append(log.snapshots.path(segment.base))
    due_ms = now_ms + log.config.file_delete_delay_ms
    for path in paths:
        if disk.exists(path):
            disk.rename(path, path + file_names.DELETED)
            log.files_to_delete.append((due_ms, path + file_names.DELETED))


def take_files_to_delete(log: LogState, now_ms: int) -> Sequence[str]:
    """Takes the paths whose delay is over; the caller removes them off the event loop's thread."""
    due = [path for due_ms, path in log.files_to_delete if due_ms <= now_ms]
    if due:
        log.files_to_delete = [(due_ms, path) for due_ms, path in log.files_to_delete if due_ms > now_ms]
    return due
