"""Producers as they were at an offset: the newest snapshot up to it, and the batch headers from there on."""

import logging
from typing import TYPE_CHECKING

from ottla_broker.log.producer_snapshot import CorruptProducerSnapshot, decode_producer_snapshot
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.snapshots import Snapshots
from ottla_broker.log.transaction_markers import read_end_marker
from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.wire.batch import BatchHeader, Buffer

if TYPE_CHECKING:
    from ottla_broker.log.segments import Segments
    from ottla_broker.log.storage import Storage

log = logging.getLogger(__name__)


def rebuild_producer_states(
    storage: "Storage", segments: "Segments", snapshots: Snapshots, start: int, end: int
) -> ProducerStates:
    """The producers just before offset `end`. Snapshots that cannot be read are removed. OSError, CorruptSegment."""
    now_ms = storage.runtime.now_ms()
    producers, since = newest_snapshot(snapshots, end, now_ms)
    since = max(since, start)
    if since >= end:
        return producers
    for segment in segments.since(since):
        if segment.base >= end or (found := segment.find(since)) is None:
            continue
        for position, header in segment.headers(found.position):
            if header.base_offset >= end:
                return producers
            if header.producer_id >= 0:
                data = segment.file.read(header.size, position) if header.is_control else b""
                replay_batch(producers, header, data, now_ms)
    return producers


def newest_snapshot(snapshots: Snapshots, up_to: int, now_ms: int) -> tuple[ProducerStates, int]:
    """The producers of the newest good snapshot at or below `up_to`, and its offset; (none, 0) without one."""
    while (offset := snapshots.newest_up_to(up_to)) is not None:
        try:
            return ProducerStates(decode_producer_snapshot(snapshots.read(offset), now_ms)), offset
        except CorruptProducerSnapshot as error:
            log.warning("%s: %s; removed, an older one serves", snapshots.path(offset), error)
            snapshots.remove(offset)
    return ProducerStates(), 0


def replay_batch(
    producers: ProducerStates, header: BatchHeader, data: Buffer, now_ms: int
) -> AbortedTransaction | None:
    """Notes one batch of a producer that is in the log; `data`: the whole batch, needed of control batches only."""
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
