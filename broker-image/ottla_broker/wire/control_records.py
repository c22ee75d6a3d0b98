"""Control batches: what they say, and the ones that end transactions (KIP-98). Key and value of their records have layouts of their own."""

import struct
from enum import IntEnum
from typing import Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch

_CONTROL_KEY: Final = struct.Struct(">hh")  # version, type
_END_TRANSACTION: Final = struct.Struct(">hi")  # version, coordinator epoch


class ControlRecordType(IntEnum):
    """What a control record says; the types that KRaft's own log adds are named so that a folder from Apache Kafka
    reads."""

    abort = 0
    commit = 1
    leader_change = 2
    snapshot_header = 3
    snapshot_footer = 4
    kraft_version = 5
    kraft_voters = 6
    unknown = -1


def encode_end_transaction_marker(
    commit: bool,
    coordinator_epoch: int,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a producer's transaction in a partition (KIP-98)."""
    kind = ControlRecordType.commit if commit else ControlRecordType.abort
    marker = Record(timestamp_ms, _CONTROL_KEY.pack(0, kind), _END_TRANSACTION.pack(0, coordinator_epoch))
    return encode_batch(
        [marker],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_record_type(record: Record) -> ControlRecordType:
    """What a record of a control batch says; `unknown` for types of a later Kafka. CORRUPT_MESSAGE when its key is too
    short."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise KafkaError(ErrorCode.corrupt_message, "a control record's key takes four bytes")
    kind = _CONTROL_KEY.unpack_from(record.key)[1]
    return ControlRecordType(kind) if kind in _CONTROL_TYPES else ControlRecordType.unknown


_CONTROL_TYPES: Final = frozenset(ControlRecordType)


def marker_coordinator_epoch(record: Record) -> int:
    """Epoch of the transaction coordinator that wrote an abort or commit marker; −1 when the marker does not say."""
    if record.value is None or len(record.value) < _END_TRANSACTION.size:
        return -1
    return int(_END_TRANSACTION.unpack_from(record.value)[1])
