"""Producer state rebuilt from what is on disk: the newest snapshot up to an offset, and the batch
headers from there on.

A snapshot has the last batch of each producer, as Kafka's have. A client that had several batches
in flight when the broker stopped may send an older one again. So before such a duplicate is refused
as out of sequence, `restore_recent_batches` finds the others in the log.
"""

import logging
from typing import Final

from ottla_broker.log.indexes import AbortedTransaction, CorruptSegment
from ottla_broker.log.log_state import LogState
from ottla_broker.log.producer_snapshots import CorruptProducerSnapshot, ProducerSnapshots, decode_producer_snapshot
from ottla_broker.log.producer_state import (
    BATCHES_TO_RETAIN,
    SEQUENCE_COUNT,
    BatchMetadata,
    ProducerStateEntry,
    ProducerStates,
)
from ottla_broker.log.transaction_markers import read_end_marker
from ottla_broker.wire.batch import BatchHeader, Buffer
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

SEARCH_BYTES: Final = 16 << 20
"""Bytes of log before a producer's last batch that are searched for its older ones."""


def rebuild_producer_states(log: LogState, end: int) -> ProducerStates:
    """The producers just before offset `end`. Unreadable snapshots are removed. Raises OSError,
    CorruptSegment."""
    now_ms = log.storage.runtime.now_ms()
    producers, since = _load_newest_snapshot(log.snapshots, end, now_ms)
    since = max(since, log.start)
    if since >= end:
        return producers
    for segment in log.segments.from_offset(since):
        if segment.base >= end or (found := segment.find_batch(since)) is None:
            continue
        for position, header in segment.iter_headers(found.position):
            if header.base_offset >= end:
                return producers
            if header.producer_id >= 0:
                data = segment.file.read(header.size, position) if header.is_control else b""
                try:
                    replay_batch(producers, header, data, now_ms)
                except KafkaError as error:
                    raise CorruptSegment(segment.path, position, str(error)) from error
    return producers


def _load_newest_snapshot(snapshots: ProducerSnapshots, up_to: int, now_ms: int) -> tuple[ProducerStates, int]:
    """The producers of the newest readable snapshot at or below `up_to`, and its offset; (none, 0)
    without one."""
    while (offset := snapshots.newest_up_to(up_to)) is not None:
        try:
            return ProducerStates(decode_producer_snapshot(snapshots.read(offset), now_ms)), offset
        except CorruptProducerSnapshot as error:
            logger.warning("removing %s, an older snapshot or the log replaces it: %s", snapshots.path(offset), error)
            snapshots.remove(offset)
    return ProducerStates(), 0


def replay_batch(
    producers: ProducerStates, header: BatchHeader, data: Buffer, now_ms: int
) -> AbortedTransaction | None:
    """Applies a batch that is in the log. `data`: the whole batch, needed for control batches only.

    Returns the entry for the transaction index when the batch aborts a transaction, else None.
    Raises KafkaError: CORRUPT_MESSAGE for a control batch that does not parse.
    """
    if not header.is_control:
        producers.apply_batch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset_delta,
            header.max_timestamp,
            header.is_transactional,
            now_ms,
        )
        return None
    marker = read_end_marker(data, header)
    if marker is None:
        return None
    return producers.apply_marker(
        header.producer_id,
        header.producer_epoch,
        header.base_offset,
        marker.timestamp,
        marker.coordinator_epoch,
        aborted=marker.aborts,
        now_ms=now_ms,
    )


def restore_recent_batches(log: LogState, producer: ProducerStateEntry) -> None:
    """Completes `producer.batches` from the batch headers in the log. Raises KafkaError:
    KAFKA_STORAGE_ERROR."""
    producer.has_all_batches = True
    if not producer.batches:
        return
    batches: list[BatchMetadata] = []
    last = producer.batches[-1].last_offset
    budget = SEARCH_BYTES
    at = log.segments.index_of_offset(last)
    while at >= 0 and budget > 0 and len(batches) < BATCHES_TO_RETAIN:
        segment = log.segments[at]
        stop = segment.offsets.lookup_position(last) + log.config.max_message_bytes
        start = segment.offsets.batch_boundary(max(min(stop, segment.size) - budget, 0), last)
        with log.storage_errors("read", segment.path, last):
            batches = [
                BatchMetadata(
                    (header.base_sequence + header.last_offset_delta) % SEQUENCE_COUNT,
                    header.last_offset,
                    header.last_offset_delta,
                    header.max_timestamp,
                )
                for _, header in segment.iter_headers(start)
                if (header.producer_id, header.producer_epoch) == (producer.producer_id, producer.epoch)
                and header.base_sequence >= 0
                and header.last_offset <= last
            ] + batches
        budget -= segment.size - start
        at -= 1
    if batches:
        producer.batches.clear()
        producer.batches.extend(batches[-BATCHES_TO_RETAIN:])
