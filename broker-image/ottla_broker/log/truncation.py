"""Cutting a log's end off, as a follower does where its log diverges from its leader's (KIP-101),
and emptying it."""

from ottla_broker.log.log_state import LogState
from ottla_broker.log.producer_rebuild import rebuild_producer_states
from ottla_broker.log.segment import Segment


def truncate_to(log: LogState, offset: int) -> None:
    """Cuts off everything at and above `offset`, and the batch that holds it. If the first segment
    begins above `offset`, the log is emptied and starts at `offset`. Raises KafkaError:
    KAFKA_STORAGE_ERROR."""
    if offset >= log.end:
        return
    if offset < log.segments[0].base:
        truncate_fully_and_start_at(log, offset)
        return
    log.tail.clear()
    with log.storage_errors("truncation", log.directory, offset):
        keep = log.segments.index_of_offset(offset)
        _lower_recovery_point(log, log.segments[keep].indexed_end_below(offset))
        removed = list(log.segments)[keep + 1 :]
        if removed:
            log.segments.replace(removed, [])
            # From the end, so that a crash leaves no hole.
            for segment in reversed(removed):
                segment.remove()
        active = log.segments.active
        _end_at(log, active.truncate_to(offset))
        # Otherwise a loss of power could restore what was cut off, next to what replaced it.
        active.file.sync()
        log.snapshots.remove_above(log.end)
        before, log.producers = log.producers, rebuild_producer_states(log, log.end)
        log.producers.keep_unreplicated_transactions(before, log.end)
        log.producers.remove_replicated_transactions(log.high_watermark)


def truncate_fully_and_start_at(log: LogState, offset: int) -> None:
    """Drops every record: the log is empty, starts and ends at `offset`. Raises KafkaError:
    KAFKA_STORAGE_ERROR."""
    log.tail.clear()
    with log.storage_errors("truncation", log.directory, offset):
        _lower_recovery_point(log, 0)
        old = list(log.segments)
        for segment in reversed(old):
            segment.remove()
        now_ms = log.storage.runtime.now_ms()
        segment = Segment.create(log.storage.files, log.directory, offset, now_ms=now_ms)
        log.segments.replace(old, [segment])
        log.flush.creation_count += 1
        for snapshot in list(log.snapshots.offsets):
            log.snapshots.remove(snapshot)
        log.producers.clear()
        log.epochs.clear()
        log.start = offset
        log.high_watermark = offset
        _end_at(log, offset)


def _lower_recovery_point(log: LogState, offset: int) -> None:
    """Lowers the recovery point to `offset`: the end of a batch that stays, or 0.

    The checkpoint file is durable before anything is cut off. Otherwise a restart would assume that
    what replaces the old end is flushed.
    """
    if offset < log.flush.recovery_point:
        log.flush.truncate_to(offset)
        log.storage.write_recovery_points()


def _end_at(log: LogState, end: int) -> None:
    log.end = end
    log.flush.truncate_to(end)
    log.epochs.truncate_from_end(end)
    log.high_watermark = min(log.high_watermark, end)
    log.start = min(log.start, end)
    log.is_checkpoint_stale = True
