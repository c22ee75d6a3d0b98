"""The records of share groups (KIP-932) in `__consumer_offsets`, in Kafka's own formats.

Source: `group-coordinator/src/main/resources/common/message/ShareGroup*.json` of Apache Kafka 4.1.
Keys begin with their type, and values with their version, as in `records.py`. Values have only
version 0, which is flexible; a null value is a tombstone.
"""

from typing import Final, NamedTuple
from uuid import UUID

from ottla_broker.coordination.consumer_group_records import TOPIC_PARTITIONS, TopicPartitions
from ottla_broker.coordination.record_format import Field, flexible
from ottla_broker.coordination.record_types import RecordTypes


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
    """Key of the record of the partitions whose share state is initialized or being initialized."""

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


_NAMED_PARTITIONS: Final = flexible(NamedTopicPartitions, Field("uuid"), Field("string"), Field("int32", array=True))
_NAMED_TOPIC: Final = flexible(NamedTopic, Field("uuid"), Field("string"))
_MEMBER: Final = flexible(
    ShareMemberValue,
    Field("string", nullable=True),
    Field("string"),
    Field("string"),
    Field("string", array=True),
)
_ASSIGNMENT: Final = flexible(
    ShareAssignmentValue, Field("int32"), Field("int32"), Field("int8"), Field(TOPIC_PARTITIONS)
)
_STATE_PARTITIONS: Final = flexible(
    StatePartitionsValue, Field(_NAMED_PARTITIONS), Field(_NAMED_PARTITIONS), Field(_NAMED_TOPIC)
)

SHARE_GROUP_RECORDS: Final = RecordTypes[ShareGroupRecordKey, ShareGroupRecordValue](
    {
        ShareMemberKey: (10, _MEMBER),
        ShareGroupKey: (11, flexible(ShareGroupEpochValue, Field("int32"), Field("int64"))),
        ShareTargetEpochKey: (12, flexible(ShareTargetEpochValue, Field("int32"))),
        ShareTargetKey: (13, flexible(ShareTargetValue, Field(TOPIC_PARTITIONS))),
        ShareAssignmentKey: (14, _ASSIGNMENT),
        StatePartitionsKey: (15, _STATE_PARTITIONS),
    }
)
