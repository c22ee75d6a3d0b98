"""Writing batches to the end of a log, as its leader and as a follower."""

from collections.abc import Sequence

from ottla_broker.log import rolling
from ottla_broker.log.config import MAX_INT32
from ottla_broker.log.indexes import CorruptSegment
from ottla_broker.log.log_state import LogState
from ottla_broker.log.producer_rebuild import replay_batch
from ottla_broker.log.validation import HeaderFields
from ottla_broker.wire.batch import (
    CONTROL_FLAG,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
    Buffer,
    parse_batch_header,
    stamp_offset_and_epoch,
)


def write_batches(
    log: LogState,
    records: Buffer,
    size: int,
    batches: Sequence[tuple[int, HeaderFields]],
    first: int | None,
    leader_epoch: int,
    now_ms: int,
) -> None:
    """Writes batches in one piece and updates the state from their headers. Raises KafkaError:
    KAFKA_STORAGE_ERROR.

    `first`: the offset of a single batch, which is stamped with it and `leader_epoch`; None: the
    batches have their offsets and epochs already.
    """
    config = log.config
    segment = log.segments.active
    last_fields = batches[-1][1]
    end = (last_fields[0] if first is None else first) + last_fields[6] + 1
    try:
        if segment.must_roll(size, end - 1, last_fields[8], now_ms, config):
            # The segment starts where the last one ends, or at the batches after a hole that no
            # relative offset spans.
            last_batch_end = segment.next_offset()
            base = last_batch_end if end - 1 - last_batch_end <= MAX_INT32 else batches[0][1][0]
            segment = rolling.roll_at(log, base, now_ms)
        arena = log.tail.arena_for(size, log.end)
        at = arena.used
        view = arena.view[at : at + size]
        view[:] = records
        if first is not None:
            stamp_offset_and_epoch(view, 0, first, leader_epoch)
        segment.file.append((view,))
    except (CorruptSegment, OSError) as error:
        raise log.storage_error("append", segment.path, error, log.end) from error
    arena.used = at + size
    interval = config.index_interval_bytes
    start = segment.size
    for position, fields in batches:
        base, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = fields
        if first is not None:
            base = first
        length += LOG_OVERHEAD
        arena.ends.append(base + delta + 1)
        arena.stops.append(at + position + length)
        segment.index_batch(start + position, length, base + delta, max_timestamp, interval)
        if producer_id >= 0:
            if attributes & CONTROL_FLAG:
                batch = view[position : position + length]
                header = parse_batch_header(batch)
                if (aborted := replay_batch(log.producers, header, batch, now_ms)) is not None:
                    segment.transactions.append(aborted)
            else:
                transactional = bool(attributes & TRANSACTIONAL_FLAG)
                log.producers.apply_batch(
                    producer_id, epoch, sequence, base, delta, max_timestamp, transactional, now_ms
                )
    log.end = end
    log.is_checkpoint_stale = True
