"""Control batches: the end markers of transactions, as they are met while appending, replicating or recovering; and those for what nobody else can end."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla_broker.log.config import MAX_INT64
from ottla_broker.log.producer_state import Producer
from ottla_broker.wire.batch import BatchHeader, Buffer
from ottla_broker.wire.control import ControlType, control_type, coordinator_epoch, end_transaction_marker
from ottla_broker.wire.records import decode_batch


class Marker(NamedTuple):
    """`timestamp` in ms."""

    aborts: bool
    coordinator_epoch: int
    timestamp: int


def read_marker(batch: Buffer, header: BatchHeader) -> Marker | None:
    """The end marker in a control batch; None for control records of another kind (KRaft's) and for a batch that compaction has emptied.

    KafkaError: CORRUPT_MESSAGE.
    """
    records = decode_batch(batch, header)
    if not records:
        return None
    kind = control_type(records[0])
    if kind not in (ControlType.abort, ControlType.commit):
        return None
    return Marker(kind is ControlType.abort, coordinator_epoch(records[0]), records[0].timestamp_ms)


def abort_markers(producers: Iterable[Producer], now_ms: int, *, below: int = MAX_INT64) -> list[bytes]:
    """The batches that end what producers have begun below an offset and not ended, in place of a coordinator that is not in this cluster: nobody else could,
    and read_committed readers would wait for ever."""
    return [
        end_transaction_marker(
            False,
            max(producer.coordinator_epoch, 0),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp_ms=now_ms,
        )
        for producer in producers
        if 0 <= producer.transaction_start < below
    ]
