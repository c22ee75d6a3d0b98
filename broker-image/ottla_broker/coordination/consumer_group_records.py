"""The records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's own formats.

Source: `group-coordinator/src/main/resources/common/message/ConsumerGroup*.json` of Apache Kafka
4.1. Keys and values begin as those of `records.py`. Values are flexible in version 0, their only
one; a null value is a tombstone.

Kafka before 4.1 wrote a ConsumerGroupPartitionMetadata record with the partition counts of the
group's topics. Kafka 4.1 and Ottla write a hash into ConsumerGroupMetadata instead, and remove that
record when they find it.
"""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from ottla_broker.coordination.record_format import Field, flexible
from ottla_broker.coordination.record_types import RecordTypes
from ottla_broker.wire.message_writer import write_varint


class ConsumerGroupKey(NamedTuple):
    """Key of the record of a group's epoch."""

    group: str


class PartitionMetadataKey(NamedTuple):
    """Key of a group's ConsumerGroupPartitionMetadata record, which Kafka before 4.1 wrote."""

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


_CLASSIC_PROTOCOL: Final = flexible(ClassicProtocol, Field("string"), Field("bytes"))
_CLASSIC_MEMBER: Final = flexible(ClassicMemberMetadata, Field("int32"), Field(_CLASSIC_PROTOCOL))
TOPIC_PARTITIONS: Final = flexible(TopicPartitions, Field("uuid"), Field("int32", array=True))
_GROUP_EPOCH: Final = flexible(GroupEpochValue, Field("int32"), Field("int64", tag=0, default=0))
_MEMBER: Final = flexible(
    ConsumerMemberValue,
    Field("string", nullable=True),
    Field("string", nullable=True),
    Field("string"),
    Field("string"),
    Field("string", array=True),
    Field("string", nullable=True),
    Field("int32"),
    Field("string", nullable=True),
    # Kafka omits the field only for this default; it writes null for other members.
    Field(_CLASSIC_MEMBER, tag=0, default=ClassicMemberMetadata(0, ())),
)
_TARGET_ASSIGNMENT_EPOCH: Final = flexible(TargetAssignmentEpochValue, Field("int32"))
_TARGET_ASSIGNMENT: Final = flexible(TargetAssignmentValue, Field(TOPIC_PARTITIONS))
_CURRENT_ASSIGNMENT: Final = flexible(
    CurrentAssignmentValue,
    Field("int32"),
    Field("int32"),
    Field("int8"),
    Field(TOPIC_PARTITIONS),
    Field(TOPIC_PARTITIONS),
)
_REGULAR_EXPRESSION: Final = flexible(
    RegularExpressionValue, Field("string", array=True), Field("int64"), Field("int64")
)

_VERSION_EPOCHS_AND_STATE: Final = struct.Struct(">hiib")
_I32: Final = struct.Struct(">i")
_NO_UUID: Final = bytes(16)


def encode_current_assignment(value: CurrentAssignmentValue) -> bytes:
    """Does the same as `_CURRENT_ASSIGNMENT`, but faster: each rebalance writes one value for every
    member."""
    out = bytearray(_VERSION_EPOCHS_AND_STATE.pack(0, value.member_epoch, value.previous_member_epoch, value.state))
    for topics in (value.assigned, value.pending_revocation):
        write_varint(out, len(topics) + 1)
        for topic_id, partitions in topics:
            out += _NO_UUID if topic_id is None else topic_id.bytes
            write_varint(out, len(partitions) + 1)
            for partition in partitions:
                out += _I32.pack(partition)
            out.append(0)
    out.append(0)
    return bytes(out)


CONSUMER_GROUP_RECORDS: Final = RecordTypes[ConsumerGroupRecordKey, ConsumerGroupRecordValue](
    {
        ConsumerGroupKey: (3, _GROUP_EPOCH),
        PartitionMetadataKey: (4, None),
        ConsumerMemberKey: (5, _MEMBER),
        TargetAssignmentEpochKey: (6, _TARGET_ASSIGNMENT_EPOCH),
        TargetAssignmentKey: (7, _TARGET_ASSIGNMENT),
        CurrentAssignmentKey: (8, _CURRENT_ASSIGNMENT),
        RegularExpressionKey: (16, _REGULAR_EXPRESSION),
    },
    encoders={CurrentAssignmentKey: encode_current_assignment},
)
