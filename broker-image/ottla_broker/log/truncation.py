"""Cutting a log's end off, as a follower does when its leader's log parts from its own (KIP-101), and starting it anew elsewhere."""

from typing import TYPE_CHECKING

from ottla_broker.log.producer_rebuild import rebuild_producer_states
from ottla_broker.log.segment import CorruptSegment, Segment

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog


def truncate_to(log: "PartitionLog", offset: int) -> None:
    """Cuts off everything at and above `offset`, and the batch that holds it. KafkaError: KAFKA_STORAGE_ERROR."""
    if offset >= log.end:
        return
    if offset < log.segments[0].base:
        truncate_fully_and_start_at(log, offset)
        return
    log.clear_tail_cache()
    try:
        keep = log.segments.floor(offset)
        _lower_recovery_point(log, log.segments[keep].indexed_below(offset))
        gone = [log.segments[at] for at in range(keep + 1, len(log.segments))]
        if gone:
            log.segments.replace(gone, [])
            for segment in reversed(gone):  # from the end, so that a crash leaves no hole
                segment.remove()
        active = log.segments.active
        _ends_at(log, active.truncate_to(offset))
        active.file.sync()  # so that what was cut off does not come back after a loss of power, beside what replaced it
        log.snapshots.remove_above(log.end)
        log.producers = rebuild_producer_states(log.storage, log.segments, log.snapshots, log.start, log.end)
        log.producers.remove_replicated_transactions(log.high_watermark)
    except CorruptSegment as error:
        raise log.corrupt(error, offset) from error
    except OSError as error:
        raise log.io_failed("truncation", log.directory, error) from error


def truncate_fully_and_start_at(log: "PartitionLog", offset: int) -> None:
    """Drops every record; the log is empty, starts and ends at `offset`. KafkaError: KAFKA_STORAGE_ERROR."""
    log.clear_tail_cache()
    try:
        _lower_recovery_point(log, 0)
        old = list(log.segments)
        for segment in reversed(old):
            segment.remove()
        now_ms = log.storage.runtime.now_ms()
        segment = Segment.create(log.storage.files, log.directory, offset, now_ms=now_ms)
        log.segments.replace(old, [segment])
        log.flush.new_names += 1
        for snapshot in list(log.snapshots.offsets):
            log.snapshots.remove(snapshot)
        log.producers.clear()
        log.epochs.clear()
        log.start = offset
        log.high_watermark = offset
        _ends_at(log, offset)
    except OSError as error:
        raise log.io_failed("truncation", log.directory, error) from error


def _lower_recovery_point(log: "PartitionLog", offset: int) -> None:
    """To the end of a batch that is known to stay: an end in a hole would protect bytes that are not there."""
    if offset < log.recovery_point:
        log.flush.truncated(offset)
        log.storage.write_recovery_points()


def _ends_at(log: "PartitionLog", end: int) -> None:
    log.end = end
    log.flush.truncated(end)
    log.epochs.truncate_from_end(end)
    log.high_watermark = min(log.high_watermark, end)
    log.start = min(log.start, end)
    log.touched = True
