"""What Apache Kafka has written in a partition's folder becomes a log of ours.

- Transactions that are open there are aborted: their coordinator stayed behind.
- Its cleaner leaves gaps between segments. Ours does not, so that a gap tells what a loss of power took (`recovery.Known`): each is filled with an empty
  batch at the end of the segment before it, as both cleaners write them. So whatever a later recovery has to go by, a gap is a loss.
"""

import logging
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ottla_broker.log.config import MAX_INT32
from ottla_broker.log.segment import CorruptSegment, Segment
from ottla_broker.log.transaction_markers import build_abort_markers
from ottla_broker.wire.batch import HEADER_SIZE, NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader, pack_batch

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

NO_TIME: Final = -1


async def take_over(foreign: "PartitionLog", now_ms: int) -> None:
    """Nothing of it is lost from here on. KafkaError: KAFKA_STORAGE_ERROR."""
    markers = build_abort_markers(foreign.producers, now_ms)
    for marker in markers:
        epoch = max(foreign.epochs.latest_epoch(), 0)
        foreign.append_as_leader(marker, leader_epoch=epoch, now_ms=now_ms, from_client=False)
    if markers:
        log.warning("%s-%d: %d transactions that were open are aborted", foreign.topic, foreign.partition, len(markers))
    fill_gaps(foreign)
    if foreign.failed is None and not foreign.flush.clean:
        await foreign.flush.checkpoint()


def fill_gaps(foreign: "PartitionLog") -> None:
    """Until each segment ends where the next one begins, on the device. KafkaError: KAFKA_STORAGE_ERROR."""
    for segment, following in pairwise(foreign.segments):
        try:
            end = _end(foreign, segment)
            if end < following.base <= segment.base + MAX_INT32:
                _fill(foreign, segment, end, following.base)
        except CorruptSegment as error:
            foreign.corrupt(error, segment.base)
            return
        except OSError as error:
            raise foreign.io_failed("filling of a gap", segment.path, error) from error
        finally:
            segment.unload_indexes()


def _end(foreign: "PartitionLog", segment: Segment) -> int:
    try:
        return segment.next_offset()
    except CorruptSegment as error:
        # A loss of power may have taken the end of what an earlier start filled in; no batch with a record in it is so short.
        if error.path == segment.path and segment.size - error.position <= HEADER_SIZE:
            segment.file.truncate(error.position)
            segment.size = error.position
        segment.reindex(foreign.config.index_interval_bytes)
        return segment.next_offset()


def _fill(foreign: "PartitionLog", segment: Segment, first: int, next_base: int) -> None:
    empty = BatchHeader(
        base_offset=first,
        length=0,
        leader_epoch=foreign.epochs.epoch_for_offset(first),
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=next_base - 1 - first,
        base_timestamp=NO_TIME,
        max_timestamp=NO_TIME,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        count=0,
    )
    batch = pack_batch(empty, b"")
    segment.note_unindexed()
    segment.file.append((batch,))
    segment.added(segment.size, len(batch), next_base - 1, NO_TIME, foreign.config.index_interval_bytes)
    segment.save_indexes()
    segment.file.sync()
