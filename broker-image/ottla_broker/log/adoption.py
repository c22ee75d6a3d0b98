"""Adoption of a log that Apache Kafka wrote.

- Open transactions are aborted, because their coordinator is in the other cluster.
- Apache Kafka's cleaner leaves gaps between segments. This broker's leaves none, so that a gap
  shows records lost in a power failure (`LogCheckpoint.gapless`). Each gap is filled with an empty
  batch at the end of the segment before it, as both cleaners write them. From then on every gap is
  a loss.
"""

import logging
from itertools import pairwise

from ottla_broker.log.config import MAX_INT32
from ottla_broker.log.flush import is_checkpointed
from ottla_broker.log.indexes import CorruptSegment
from ottla_broker.log.log_state import LogState
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.segment import Segment
from ottla_broker.log.transaction_markers import build_abort_markers
from ottla_broker.log.validation import MAGIC
from ottla_broker.wire.batch import HEADER_SIZE, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader, pack_batch

logger = logging.getLogger(__name__)


async def adopt_log(log: PartitionLog, now_ms: int) -> None:
    """Aborts open transactions, fills gaps and syncs the log. Raises KafkaError:
    KAFKA_STORAGE_ERROR.
    """
    markers = build_abort_markers(log.producers, now_ms)
    for marker in markers:
        epoch = max(log.epochs.latest_epoch(), 0)
        log.append_as_leader(marker, leader_epoch=epoch, now_ms=now_ms, from_client=False)
    if markers:
        logger.warning("%s-%d: aborted %d open transactions", log.topic, log.partition, len(markers))
    fill_gaps(log)
    if log.failure is None and not is_checkpointed(log):
        await log.checkpoint()


def fill_gaps(log: LogState) -> None:
    """Makes each segment end where the next one begins, and syncs it. A gap that one batch cannot
    span (2³¹ offsets from the segment's base) stays.

    Raises KafkaError: KAFKA_STORAGE_ERROR when the disk fails. A corrupt segment takes the log
    offline.
    """
    for segment, following in pairwise(log.segments):
        try:
            end = _repair_and_find_end(log, segment)
            if end < following.base <= segment.base + MAX_INT32:
                _fill(log, segment, end, following.base)
        except CorruptSegment as error:
            log.storage_error("read", segment.path, error, segment.base)
            return
        except OSError as error:
            raise log.storage_error("filling of a gap", segment.path, error) from error
        finally:
            segment.unload_indexes()


def _repair_and_find_end(log: LogState, segment: Segment) -> int:
    try:
        return segment.next_offset()
    except CorruptSegment as error:
        # A loss of power may have cut off the empty batch that an earlier start wrote; no batch
        # with a record is so short.
        if error.path == segment.path and segment.size - error.position <= HEADER_SIZE:
            segment.file.truncate(error.position)
            segment.size = error.position
        segment.rebuild_indexes(log.config.index_interval_bytes)
        return segment.next_offset()


def _fill(log: LogState, segment: Segment, first: int, next_base: int) -> None:
    empty = BatchHeader(
        base_offset=first,
        length=0,
        leader_epoch=log.epochs.epoch_for_offset(first),
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=next_base - 1 - first,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        count=0,
    )
    batch = pack_batch(empty, b"")
    segment.recount_unindexed_bytes()
    segment.file.append((batch,))
    segment.index_batch(segment.size, len(batch), next_base - 1, NO_TIMESTAMP, log.config.index_interval_bytes)
    segment.save_indexes()
    segment.file.sync()
