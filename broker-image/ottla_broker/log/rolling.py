"""Closing a log's active segment and beginning the next one. `Segment.must_roll` decides when."""

from ottla_broker.log.indexes import CorruptSegment
from ottla_broker.log.log_state import LogState
from ottla_broker.log.producer_snapshots import encode_producer_snapshot
from ottla_broker.log.segment import Segment


def roll(log: LogState) -> None:
    """Starts a segment at the log's end, unless the active one is empty. Raises KafkaError:
    KAFKA_STORAGE_ERROR."""
    active = log.segments.active
    if active.size:
        with log.storage_errors("roll", active.path, log.end):
            roll_at(log, active.next_offset(), log.storage.runtime.now_ms())


def roll_at(log: LogState, base: int, now_ms: int) -> Segment:
    """Starts a segment at offset `base`. Raises OSError and CorruptSegment; then the old segment
    stays active.

    Segments follow each other without a gap: a hole at the log end belongs to the new one, unless
    it is too wide for the relative offsets of an index (31 bits). So a gap after a power failure
    shows that records are missing.
    """
    old = log.segments.active
    if log.flush.has_names_at_risk:
        # Otherwise a loss of power could keep the new segment's name and not the old one's: the
        # log would seem to begin at its end.
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
    except (OSError, CorruptSegment):
        # Recovery would take an empty last segment for the end of the log.
        segment.remove()
        raise
    if old.size:
        log.segments.add(segment)
    else:
        log.segments.replace([old], [segment])
        if old.base != base:
            old.remove()
    log.flush.creation_count += 1
    log.flush.has_rolled_segment = True
    return segment
