"""Reading a log from its files, where the tail in memory does not reach; and its transaction indexes."""

import logging
from typing import TYPE_CHECKING

from ottla_broker.log.segment import CorruptSegment, Segment
from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.wire.batch import Buffer

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


def read_files(log: "PartitionLog", offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> Buffer:
    """As `PartitionLog.read`. KafkaError: KAFKA_STORAGE_ERROR; what cannot be read takes the partition offline."""
    for at in range(log.segments.floor(offset), len(log.segments)):
        segment = log.segments[at]
        if segment.base >= up_to:
            break
        try:
            data = _read_segment(log, segment, offset, max_bytes, up_to, at_least_one)
        except CorruptSegment as error:
            raise log.corrupt(error, offset) from error
        except OSError as error:
            raise log.io_failed("read", segment.path, error) from error
        if segment is not log.segments.active:
            log.storage.reads(segment)
        if data is not None:
            return data
    return b""


def _read_segment(
    log: "PartitionLog", segment: Segment, offset: int, max_bytes: int, up_to: int, at_least_one: bool
) -> Buffer | None:
    try:
        return segment.read(offset, max_bytes, up_to, at_least_one)
    except CorruptSegment as error:
        logger.warning("%s; its indexes are built anew, to see whether the fault is theirs", error)
        segment.reindex(log.config.index_interval_bytes)
        return segment.read(offset, max_bytes, up_to, at_least_one)


def aborted(log: "PartitionLog", from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """Aborted transactions that have records in [from_offset, to_offset). KafkaError: KAFKA_STORAGE_ERROR."""
    found: list[AbortedTransaction] = []
    for segment in log.segments.since(from_offset):
        for entry in _aborted_in(log, segment):
            if entry.last_offset >= from_offset and entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return found
    return found


def _aborted_in(log: "PartitionLog", segment: Segment) -> list[AbortedTransaction]:
    try:
        return segment.transactions.entries()
    except ValueError as error:
        raise log.corrupt(error, segment.base) from error
    except OSError as error:
        raise log.io_failed("read", segment.transactions.path, error) from error
