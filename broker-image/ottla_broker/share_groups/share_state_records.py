"""The records of `__share_group_state`, in Kafka's own formats.

Source: `share-coordinator/src/main/resources/common/message/Share*.json` of Apache Kafka 4.2, whose
tagged fields older versions ignore. A snapshot holds the whole state of a share-partition; an
update holds the changes since the last snapshot or update. A snapshot without a value deletes the
share-partition. A key begins with its type as i16, a value with its version as i16.
"""

from typing import Final, NamedTuple
from uuid import UUID

from ottla_broker.coordination.record_format import Field, RecordFormat, flexible
from ottla_broker.coordination.records import decode_value
from ottla_broker.share_groups.share_state import UNKNOWN_COUNT, SharePartitionKey, StateBatch
from ottla_broker.wire.message_reader import MalformedMessage

SNAPSHOT_TYPE: Final = 0
UPDATE_TYPE: Final = 1


class SnapshotValue(NamedTuple):
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    created_ms: int
    written_ms: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int


class UpdateValue(NamedTuple):
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int


class _RawKey(NamedTuple):
    group_id: str
    topic_id: UUID | None
    partition: int


_KEY: Final = RecordFormat(_RawKey, [Field("string"), Field("uuid"), Field("int32")], latest=UPDATE_TYPE)
_BATCH: Final = flexible(StateBatch, Field("int64"), Field("int64"), Field("int8"), Field("int16"))
_SNAPSHOT: Final = flexible(
    SnapshotValue,
    Field("int32"),
    Field("int32"),
    Field("int32"),
    Field("int64"),
    Field("int64"),
    Field("int64"),
    Field(_BATCH),
    Field("int32", tag=0, default=UNKNOWN_COUNT),
)
_UPDATE: Final = flexible(
    UpdateValue,
    Field("int32"),
    Field("int32"),
    Field("int64"),
    Field(_BATCH),
    Field("int32", tag=0, default=UNKNOWN_COUNT),
)


def encode_snapshot_key(key: SharePartitionKey) -> bytes:
    return _KEY.write(_RawKey(*key), SNAPSHOT_TYPE)


def encode_update_key(key: SharePartitionKey) -> bytes:
    return _KEY.write(_RawKey(*key), UPDATE_TYPE)


def decode_key(key: bytes) -> tuple[int, SharePartitionKey] | None:
    """The type and the share-partition; None for a record of another type. Raises
    MalformedMessage."""
    if len(key) < 2:
        raise MalformedMessage(f"a key of {len(key)} bytes has no type")
    kind = int.from_bytes(key[:2], "big", signed=True)
    if kind not in (SNAPSHOT_TYPE, UPDATE_TYPE):
        return None
    raw = _KEY.read(key, 2, kind)
    return kind, SharePartitionKey(raw.group_id, raw.topic_id or UUID(int=0), raw.partition)


def encode_snapshot(value: SnapshotValue) -> bytes:
    return _SNAPSHOT.write(value, 0)


def encode_update(value: UpdateValue) -> bytes:
    return _UPDATE.write(value, 0)


def decode_snapshot(value: bytes) -> SnapshotValue:
    """Raises MalformedMessage, also for an unknown version: ignoring it would lose
    acknowledgements."""
    return decode_value(_SNAPSHOT, value)


def decode_update(value: bytes) -> UpdateValue:
    """Like `decode_snapshot`."""
    return decode_value(_UPDATE, value)
