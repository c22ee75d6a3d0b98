"""The records of share groups (KIP-932) in `__consumer_offsets`, in Kafka's own formats.

Source: `group-coordinator/src/main/resources/common/message/ShareGroup*.json` of Apache Kafka 4.1.
Keys begin with their type, and values with their version, as in `records.py`. Values have only
version 0, which is flexible; a null value is a tombstone.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla_broker.coordination.consumer_group_records import TopicPartitions
from ottla_broker.coordination.record_format import Field, RecordFormat
from ottla_broker.coordination.records import decode_value
from ottla_broker.wire.message_reader import MalformedMessage


class ShareMemberKey(NamedTuple):
    group: str
    member_id: str


class ShareGroupKey(NamedTuple):
    group: str


class ShareTargetEpochKey(NamedTuple):
    group: str


class ShareTargetKey(NamedTuple):
    group: str
    member_id: str


class ShareAssignmentKey(NamedTuple):
    group: str
    member_id: str


class StatePartitionsKey(NamedTuple):
    """Key of the record of the partitions whose share state has been initialized."""

    group: str


ShareGroupRecordKey = (
    ShareMemberKey | ShareGroupKey | ShareTargetEpochKey | ShareTargetKey | ShareAssignmentKey | StatePartitionsKey
)


class ShareMemberValue(NamedTuple):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


class ShareGroupEpochValue(NamedTuple):
    """`metadata_hash` changes with the subscribed topics, their ids and partition counts."""

    epoch: int
    metadata_hash: int


class ShareTargetEpochValue(NamedTuple):
    epoch: int


class ShareTargetValue(NamedTuple):
    topic_partitions: tuple[TopicPartitions, ...]


class ShareAssignmentValue(NamedTuple):
    """`state`: 0, stable, the only one that share groups have."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: tuple[TopicPartitions, ...]


class NamedTopicPartitions(NamedTuple):
    topic_id: UUID | None
    topic_name: str
    partitions: tuple[int, ...]


class NamedTopic(NamedTuple):
    topic_id: UUID | None
    topic_name: str


class StatePartitionsValue(NamedTuple):
    initializing: tuple[NamedTopicPartitions, ...]
    initialized: tuple[NamedTopicPartitions, ...]
    deleting: tuple[NamedTopic, ...]


ShareGroupRecordValue = (
    ShareMemberValue
    | ShareGroupEpochValue
    | ShareTargetEpochValue
    | ShareTargetValue
    | ShareAssignmentValue
    | StatePartitionsValue
)


def _flexible(record: Any, *fields: Field) -> RecordFormat[Any]:
    return RecordFormat(record, fields, latest=0, flexible_from=0)


_TOPIC_PARTITIONS: Final = _flexible(TopicPartitions, Field("uuid"), Field("int32", array=True))
_NAMED_PARTITIONS: Final = _flexible(NamedTopicPartitions, Field("uuid"), Field("string"), Field("int32", array=True))
_NAMED_TOPIC: Final = _flexible(NamedTopic, Field("uuid"), Field("string"))
_MEMBER: Final = _flexible(
    ShareMemberValue,
    Field("string", nullable=True),
    Field("string"),
    Field("string"),
    Field("string", array=True),
)
_ASSIGNMENT: Final = _flexible(
    ShareAssignmentValue, Field("int32"), Field("int32"), Field("int8"), Field(_TOPIC_PARTITIONS)
)
_STATE_PARTITIONS: Final = _flexible(
    StatePartitionsValue, Field(_NAMED_PARTITIONS), Field(_NAMED_PARTITIONS), Field(_NAMED_TOPIC)
)


class _RecordType(NamedTuple):
    number: int
    key: Callable[..., ShareGroupRecordKey]
    key_format: RecordFormat[Any]
    value_format: RecordFormat[Any]


def _record_type(number: int, key: type[ShareGroupRecordKey], value_format: RecordFormat[Any]) -> _RecordType:
    # A key's type stands where a value has its version.
    return _RecordType(
        number, key, RecordFormat(key, [Field("string")] * len(key._fields), latest=number), value_format
    )


_TYPES: Final = (
    _record_type(10, ShareMemberKey, _MEMBER),
    _record_type(11, ShareGroupKey, _flexible(ShareGroupEpochValue, Field("int32"), Field("int64"))),
    _record_type(12, ShareTargetEpochKey, _flexible(ShareTargetEpochValue, Field("int32"))),
    _record_type(13, ShareTargetKey, _flexible(ShareTargetValue, Field(_TOPIC_PARTITIONS))),
    _record_type(14, ShareAssignmentKey, _ASSIGNMENT),
    _record_type(15, StatePartitionsKey, _STATE_PARTITIONS),
)
_BY_NUMBER: Final[Mapping[int, _RecordType]] = {one.number: one for one in _TYPES}
_BY_KEY: Final[Mapping[object, _RecordType]] = {one.key: one for one in _TYPES}


def encode_share_group_key(key: ShareGroupRecordKey) -> bytes:
    kind = _BY_KEY[type(key)]
    return kind.key_format.write(key, kind.number)


def encode_share_group_value(key: ShareGroupRecordKey, value: ShareGroupRecordValue) -> bytes:
    return _BY_KEY[type(key)].value_format.write(value, 0)


def decode_share_group_key(key: bytes) -> ShareGroupRecordKey | None:
    """None for the key of another kind of record. Raises MalformedMessage when the key is cut
    off."""
    if len(key) < 2:
        raise MalformedMessage(f"a key of {len(key)} bytes has no type")
    kind = _BY_NUMBER.get(int.from_bytes(key[:2], "big", signed=True))
    return None if kind is None else kind.key_format.read(key, 2, kind.number)


def decode_share_group_value(key: ShareGroupRecordKey, value: bytes | None) -> ShareGroupRecordValue | None:
    """The value of a record with this key; None for a tombstone. Raises MalformedMessage."""
    if value is None:
        return None
    decoded: ShareGroupRecordValue = decode_value(_BY_KEY[type(key)].value_format, value)
    return decoded
