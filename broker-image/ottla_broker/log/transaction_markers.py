"""End transaction markers: the control batches that commit or abort a producer's transaction."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla_broker.log.config import MAX_INT64
from ottla_broker.log.producer_state import ProducerStateEntry
from ottla_broker.wire.batch import BatchHeader, Buffer
from ottla_broker.wire.control_records import (
    ControlRecordType,
    control_record_type,
    encode_end_transaction_marker,
    marker_coordinator_epoch,
)
from ottla_broker.wire.records import decode_batch


class EndTransactionMarker(NamedTuple):
    """`timestamp`: of the marker's record, in ms."""

    aborts: bool
    coordinator_epoch: int
    timestamp: int


def read_end_marker(batch: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """The end marker in a control batch; None in one that compaction has emptied, and for KRaft's
    control records.

    Raises KafkaError: CORRUPT_MESSAGE.
    """
    records = decode_batch(batch, header)
    if not records:
        return None
    kind = control_record_type(records[0])
    if kind not in (ControlRecordType.abort, ControlRecordType.commit):
        return None
    return EndTransactionMarker(
        kind is ControlRecordType.abort, marker_coordinator_epoch(records[0]), records[0].timestamp_ms
    )


def build_abort_markers(producers: Iterable[ProducerStateEntry], now_ms: int, *, below: int = MAX_INT64) -> list[bytes]:
    """Batches that abort the open transactions that began below an offset. They replace the markers
    of a coordinator in another cluster. Without them these transactions would never end, and
    read_committed consumers would wait forever.
    """
    return [
        encode_end_transaction_marker(
            False,
            max(producer.coordinator_epoch, 0),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp_ms=now_ms,
        )
        for producer in producers
        if 0 <= producer.current_txn_first_offset < below
    ]
