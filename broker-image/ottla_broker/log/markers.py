"""Control batches: the end markers of transactions, as they are met while appending, replicating or recovering."""

from typing import NamedTuple

from ottla_broker.wire.batch import BatchHeader, Buffer
from ottla_broker.wire.control import ControlType, control_type, coordinator_epoch
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
