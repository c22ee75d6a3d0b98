"""Control records: their types, and the markers that end transactions (KIP-98).

Their keys and values have fixed binary layouts.
"""

import struct
from enum import IntEnum
from typing import Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch

_KEY: Final = struct.Struct(">hh")  # version, type
_END_TRANSACTION: Final = struct.Struct(">hi")  # version, coordinator epoch


class ControlRecordType(IntEnum):
    """KRaft's own types are named so that a partition folder from Apache Kafka can be read."""

    abort = 0
    commit = 1
    leader_change = 2
    snapshot_header = 3
    snapshot_footer = 4
    kraft_version = 5
    kraft_voters = 6
    unknown = -1


_TYPES: Final = frozenset(ControlRecordType)


def encode_end_transaction_marker(
    commit: bool,
    coordinator_epoch: int,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    is_log_append_time: bool = False,
) -> bytes:
    """The control batch that ends a producer's transaction in a partition. `is_log_append_time`:
    whether the partition's batches are of type LogAppendTime.
    """
    kind = ControlRecordType.commit if commit else ControlRecordType.abort
    marker = Record(timestamp_ms, control_record_key(kind), _END_TRANSACTION.pack(0, coordinator_epoch))
    return encode_batch(
        [marker],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        log_append_time_ms=timestamp_ms if is_log_append_time else None,
    )


def control_record_key(kind: ControlRecordType) -> bytes:
    return _KEY.pack(0, kind)


def control_record_type(record: Record) -> ControlRecordType:
    """`unknown` for types of later Kafka versions. Raises KafkaError: CORRUPT_MESSAGE if the key is
    too short.
    """
    if record.key is None or len(record.key) < _KEY.size:
        raise KafkaError(ErrorCode.corrupt_message, f"the key of a control record is shorter than {_KEY.size} bytes")
    kind = _KEY.unpack_from(record.key)[1]
    return ControlRecordType(kind) if kind in _TYPES else ControlRecordType.unknown


def marker_coordinator_epoch(record: Record) -> int:
    """Epoch of the transaction coordinator that wrote an abort or commit marker; −1 if the marker
    has none.
    """
    if record.value is None or len(record.value) < _END_TRANSACTION.size:
        return -1
    return int(_END_TRANSACTION.unpack_from(record.value)[1])
