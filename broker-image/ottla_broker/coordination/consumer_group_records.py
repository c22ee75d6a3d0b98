"""The records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's own formats.

Source: `group-coordinator/src/main/resources/common/message/ConsumerGroup*.json` of Apache Kafka
4.1. Keys and values begin as those of `records.py`. Values are flexible in version 0, their only
one; a null value is a tombstone.

Kafka before 4.1 wrote a ConsumerGroupPartitionMetadata record with the partition counts of the
group's topics. Kafka 4.1 and Ottla write a hash into ConsumerGroupMetadata instead, and remove that
record when they find it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla_broker.coordination.record_format import Field, RecordFormat
from ottla_broker.coordination.records import decode_value
from ottla_broker.wire.message_reader import MalformedMessage


class ConsumerGroupKey(NamedTuple):
    """Key of the record of a group's epoch and, before Kafka 4.1, of its partition metadata."""

    group: str


class PartitionMetadataKey(NamedTuple):
    group: str


class TargetAssignmentEpochKey(NamedTuple):
    group: str


class ConsumerMemberKey(NamedTuple):
    group: str
    member_id: str


class TargetAssignmentKey(NamedTuple):
    group: str
    member_id: str


class CurrentAssignmentKey(NamedTuple):
    group: str
    member_id: str


class RegularExpressionKey(NamedTuple):
    group: str
    regular_expression: str


ConsumerGroupRecordKey = (
    ConsumerGroupKey
    | PartitionMetadataKey
    | TargetAssignmentEpochKey
    | ConsumerMemberKey
    | TargetAssignmentKey
    | CurrentAssignmentKey
    | RegularExpressionKey
)


class GroupEpochValue(NamedTuple):
    """`metadata_hash` changes with the subscribed topics, their ids and partition counts."""

    epoch: int
    metadata_hash: int


class ClassicProtocol(NamedTuple):
    name: str
    metadata: bytes


class ClassicMemberMetadata(NamedTuple):
    """A member that uses the classic protocol."""

    session_timeout_ms: int
    supported_protocols: tuple[ClassicProtocol, ...]


class ConsumerMemberValue(NamedTuple):
    group_instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMemberMetadata | None


class TargetAssignmentEpochValue(NamedTuple):
    epoch: int


class TopicPartitions(NamedTuple):
    topic_id: UUID | None
    partitions: tuple[int, ...]


class TargetAssignmentValue(NamedTuple):
    topic_partitions: tuple[TopicPartitions, ...]


class CurrentAssignmentValue(NamedTuple):
    """`state`: a MemberState."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: tuple[TopicPartitions, ...]
    pending_revocation: tuple[TopicPartitions, ...]


class RegularExpressionValue(NamedTuple):
    """`version`: of the metadata in which the topics were found. `resolved_ms`: wall clock."""

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


ConsumerGroupRecordValue = (
    GroupEpochValue
    | ConsumerMemberValue
    | TargetAssignmentEpochValue
    | TargetAssignmentValue
    | CurrentAssignmentValue
    | RegularExpressionValue
)


_CLASSIC_PROTOCOL: Final = RecordFormat(ClassicProtocol, [Field("string"), Field("bytes")], latest=0, flexible_from=0)
_CLASSIC_MEMBER: Final = RecordFormat(
    ClassicMemberMetadata,
    [Field("int32"), Field(_CLASSIC_PROTOCOL)],
    latest=0,
    flexible_from=0,
)
_TOPIC_PARTITIONS: Final = RecordFormat(
    TopicPartitions, [Field("uuid"), Field("int32", array=True)], latest=0, flexible_from=0
)
_GROUP_EPOCH: Final = RecordFormat(
    GroupEpochValue, [Field("int32"), Field("int64", tag=0, default=0)], latest=0, flexible_from=0
)
_MEMBER: Final = RecordFormat(
    ConsumerMemberValue,
    [
        Field("string", nullable=True),
        Field("string", nullable=True),
        Field("string"),
        Field("string"),
        Field("string", array=True),
        Field("string", nullable=True),
        Field("int32"),
        Field("string", nullable=True),
        # Kafka leaves the field out only for this value, so it writes null, too.
        Field(_CLASSIC_MEMBER, tag=0, default=ClassicMemberMetadata(0, ())),
    ],
    latest=0,
    flexible_from=0,
)
_TARGET_ASSIGNMENT_EPOCH: Final = RecordFormat(TargetAssignmentEpochValue, [Field("int32")], latest=0, flexible_from=0)
_TARGET_ASSIGNMENT: Final = RecordFormat(TargetAssignmentValue, [Field(_TOPIC_PARTITIONS)], latest=0, flexible_from=0)
_CURRENT_ASSIGNMENT: Final = RecordFormat(
    CurrentAssignmentValue,
    [
        Field("int32"),
        Field("int32"),
        Field("int8"),
        Field(_TOPIC_PARTITIONS),
        Field(_TOPIC_PARTITIONS),
    ],
    latest=0,
    flexible_from=0,
)
_REGULAR_EXPRESSION: Final = RecordFormat(
    RegularExpressionValue,
    [Field("string", array=True), Field("int64"), Field("int64")],
    latest=0,
    flexible_from=0,
)


class _RecordType(NamedTuple):
    number: int
    key: Callable[..., ConsumerGroupRecordKey]
    key_format: RecordFormat[Any]
    value_format: RecordFormat[Any] | None


def _record_type(number: int, key: type[ConsumerGroupRecordKey], value_format: RecordFormat[Any] | None) -> _RecordType:
    fields = [Field("string")] * len(key._fields)
    # A key's type stands where a value has its version.
    return _RecordType(number, key, RecordFormat(key, fields, latest=number), value_format)


_TYPES: Final = (
    _record_type(3, ConsumerGroupKey, _GROUP_EPOCH),
    _record_type(4, PartitionMetadataKey, None),
    _record_type(5, ConsumerMemberKey, _MEMBER),
    _record_type(6, TargetAssignmentEpochKey, _TARGET_ASSIGNMENT_EPOCH),
    _record_type(7, TargetAssignmentKey, _TARGET_ASSIGNMENT),
    _record_type(8, CurrentAssignmentKey, _CURRENT_ASSIGNMENT),
    _record_type(16, RegularExpressionKey, _REGULAR_EXPRESSION),
)
_BY_NUMBER: Final[Mapping[int, _RecordType]] = {one.number: one for one in _TYPES}
_BY_KEY: Final[Mapping[object, _RecordType]] = {one.key: one for one in _TYPES}


def encode_consumer_group_key(key: ConsumerGroupRecordKey) -> bytes:
    kind = _BY_KEY[type(key)]
    return kind.key_format.write(key, kind.number)


def encode_consumer_group_value(key: ConsumerGroupRecordKey, value: ConsumerGroupRecordValue) -> bytes:
    value_format = _BY_KEY[type(key)].value_format
    assert value_format is not None, f"{key} is only ever removed"
    return value_format.write(value, 0)


def decode_consumer_group_key(key: bytes) -> ConsumerGroupRecordKey | None:
    """None for the key of another kind of record. Raises MalformedMessage for a truncated key."""
    if len(key) < 2:
        raise MalformedMessage(f"a key of {len(key)} bytes has no type")
    kind = _BY_NUMBER.get(int.from_bytes(key[:2], "big", signed=True))
    return None if kind is None else kind.key_format.read(key, 2, kind.number)


def decode_record(key: ConsumerGroupRecordKey, value: bytes | None) -> ConsumerGroupRecordValue | None:
    """The value of a record with this key; None for a tombstone, and for partition metadata, which
    is not read. Raises MalformedMessage."""
    value_format = _BY_KEY[type(key)].value_format
    if value is None or value_format is None:
        return None
    decoded: ConsumerGroupRecordValue = decode_value(value_format, value)
    return decoded
