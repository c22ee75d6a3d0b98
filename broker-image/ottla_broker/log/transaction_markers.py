"""Control batches: the end markers of transactions, as they are met while appending, replicating or recovering; and those for what nobody else can end."""

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
    """`timestamp` in ms."""

    aborts: bool
    coordinator_epoch: int
    timestamp: int


def read_end_marker(batch: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """The end marker in a control batch; None for control records of another kind (KRaft's) and for a batch that compaction has emptied.

    KafkaError: CORRUPT_MESSAGE.
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
    """The batches that end what producers have begun below an offset and not ended, in place of a coordinator that is not in this cluster: nobody else could,
    and read_committed readers would wait for ever."""
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
