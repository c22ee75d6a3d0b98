"""Closing a log's active segment and beginning the next one."""

from typing import TYPE_CHECKING

from ottla_broker.log.producer_snapshot import encode_producer_snapshot
from ottla_broker.log.segment import Segment

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog


def roll(log: "PartitionLog") -> None:
    """At the log's end; nothing happens when the active segment is empty. KafkaError: KAFKA_STORAGE_ERROR."""
    active = log.segments.active
    if active.size:
        try:
            roll_at(log, active.next_offset(), log.storage.runtime.now_ms())
        except OSError as error:
            raise log.io_failed("roll", active.path, error) from error


def roll_at(log: "PartitionLog", base: int, now_ms: int) -> Segment:
    """Segments follow each other without a gap (a hole at the log's end belongs to the new one), so that after a loss of power a gap
    tells that something is missing. OSError, and the old segment goes on."""
    old = log.segments.active
    if log.flush.names_at_risk:
        # Or a loss of power might keep the new segment's name and not the old one's: a log that seems to begin at its end.
        log.storage.disk.sync_directory(log.directory)
    jitter = min(log.config.segment_jitter_ms, log.config.roll_ms)
    segment = Segment.create(
        log.storage.files,
        log.directory,
        base,
        now_ms=now_ms,
        jitter_ms=log.storage.runtime.random.randrange(jitter) if jitter else 0,
    )
    try:
        old.seal()
        log.snapshots.write(base, encode_producer_snapshot(log.producers))
    except OSError:
        # Left behind, the new one would look, after a crash, like a log that ends here.
        segment.remove()
        raise
    if old.size:
        log.segments.add(segment)
    else:
        log.segments.replace([old], [segment])
        if old.base != base:
            old.remove()
    log.flush.new_names += 1
    log.storage.rolled.append(log)
    return segment
