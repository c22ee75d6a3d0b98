"""Small batches of many clients, appended in one write. `ProduceTurn` has the figures.

The checks are those of `PartitionLog.append_as_leader`, in one loop over the batches, for batches
that pass them all and whose bytes the topic leaves as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla_broker.log.appending import write_batches
from ottla_broker.log.indexes import CorruptSegment
from ottla_broker.log.log_state import LogState
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.log.validation import MAGIC, HeaderFields
from ottla_broker.wire.batch import (
    ATTRIBUTES_OFFSET,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    Compression,
    stamp_offset_and_epoch,
)
from ottla_broker.wire.crc import crc32c
from ottla_broker.wire.errors import KafkaError


@dataclass(slots=True)
class JoinedAppend:
    """The batches that `append_small_batches` wrote: the first offset of each, and their records
    and bytes in all."""

    first_offsets: list[int] = field(default_factory=list)
    record_count: int = 0
    byte_count: int = 0


def append_small_batches(
    log: LogState, batches: Sequence[bytearray], *, leader_epoch: int, now_ms: int
) -> JoinedAppend:
    """Checks and stamps clients' batches, in place, and writes them in one piece. It stops before
    the first batch that is not valid, or that needs more than the checks here: that one and the
    rest are for `append_as_leader`, one by one. Batches that are not written may be stamped too,
    and `append_as_leader` rejects a stamped batch: the caller passes copies.

    Raises KAFKA_STORAGE_ERROR, with nothing written.
    """
    joined = JoinedAppend()
    config = log.config
    if log.failure is not None or log.validates_records or not log.appends_unchanged:
        return joined
    max_size = min(config.max_message_bytes, config.segment_bytes)
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    offsets, headers, producers = joined.first_offsets, [], set()
    end, position, largest_timestamp = log.end, 0, 0
    for batch in batches:
        size = len(batch)
        if not HEADER_SIZE <= size <= max_size:
            break
        fields = HEADER.unpack_from(batch)
        base, length, _, magic, crc, attributes, delta, _, timestamp, producer_id, _, _, count = fields
        if length + LOG_OVERHEAD != size or magic != MAGIC or base or not 0 <= timestamp <= latest_ms:
            break
        # No flags: append_as_leader handles transactions, control batches, LogAppendTime.
        if attributes > Compression.zstd or attributes < 0 or count != delta + 1 or count < 1:
            break
        if crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]) != crc:
            break
        if producer_id >= 0:
            # The producer's next batch can be checked only when this one is written.
            if producer_id in producers or not _accepts_next(log, fields):
                break
            producers.add(producer_id)
        headers.append((position, (end, *fields[1:])))
        offsets.append(end)
        stamp_offset_and_epoch(batch, 0, end, leader_epoch)
        end += count
        position += size
        largest_timestamp = max(largest_timestamp, timestamp)
    if not offsets or _must_roll(log, position, end - 1, largest_timestamp, now_ms):
        return JoinedAppend()
    if leader_epoch != log.epochs.latest_epoch() and leader_epoch >= 0:
        log.epochs.assign(leader_epoch, log.end)
    joined.record_count, joined.byte_count = end - log.end, position
    write_batches(log, b"".join(batches[: len(offsets)]), position, headers, None, leader_epoch, now_ms)
    return joined


def _must_roll(log: LogState, size: int, last_offset: int, timestamp: int, now_ms: int) -> bool:
    """True also if that cannot be determined; `append_as_leader` then reports the error. An empty
    segment takes its first batch alone, because its limits count from there.
    """
    try:
        active = log.segments.active
        return not active.size or active.must_roll(size, last_offset, timestamp, now_ms, log.config)
    except (CorruptSegment, OSError):
        return True


def _accepts_next(log: LogState, fields: HeaderFields) -> bool:
    """True if an idempotent producer's batch is the next one in its sequence."""
    _, _, _, _, _, _, delta, _, _, producer_id, epoch, sequence, _ = fields
    if sequence < 0 or producer_id >= FIRST_RESERVED_PRODUCER_ID:
        return False
    try:
        sent = log.producers.check_batch(producer_id, epoch, sequence, delta, transactional=False, sequenced=True)
    except KafkaError:
        return False
    return sent is None
