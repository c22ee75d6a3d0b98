"""The records of streams groups (KIP-1071) in `__consumer_offsets`, in Kafka's own formats.

Source: `group-coordinator/src/main/resources/common/message/StreamsGroup*.json` of Apache Kafka
4.2, whose tagged fields Kafka 4.1 ignores. Keys begin with their type, and values with their
version, as in `records.py`.
"""

from typing import Final, NamedTuple

from ottla_broker.coordination.record_format import Field, flexible
from ottla_broker.coordination.record_types import RecordTypes


class StreamsGroupKey(NamedTuple):
    group: str


class StreamsMemberKey(NamedTuple):
    group: str
    member_id: str


class StreamsTargetEpochKey(NamedTuple):
    group: str


class StreamsTargetKey(NamedTuple):
    group: str
    member_id: str


class StreamsCurrentKey(NamedTuple):
    group: str
    member_id: str


class StreamsTopologyKey(NamedTuple):
    group: str


StreamsRecordKey = (
    StreamsGroupKey
    | StreamsMemberKey
    | StreamsTargetEpochKey
    | StreamsTargetKey
    | StreamsCurrentKey
    | StreamsTopologyKey
)


class KeyValue(NamedTuple):
    key: str
    value: str


class StreamsEpochValue(NamedTuple):
    """`validated_topology_epoch`: epoch of the topology whose topics were last validated; −1: none.
    `assignment_configs`: the assignor's configs when the epoch began."""

    epoch: int
    metadata_hash: int
    validated_topology_epoch: int = -1
    assignment_configs: tuple[KeyValue, ...] = ()


class UserEndpoint(NamedTuple):
    """Host and port at which the application serves queries of its state."""

    host: str
    port: int


class StreamsMemberValue(NamedTuple):
    group_instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    user_endpoint: UserEndpoint | None
    client_tags: tuple[KeyValue, ...]


class StreamsTargetEpochValue(NamedTuple):
    epoch: int


class TaskIds(NamedTuple):
    subtopology_id: str
    partitions: tuple[int, ...]


class AssignedTaskIds(NamedTuple):
    """`assignment_epochs`: the member epoch in which each of the partitions was assigned; None for
    standby and warm-up tasks, and in records of Kafka 4.1."""

    subtopology_id: str
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = None


class StreamsTargetValue(NamedTuple):
    active: tuple[TaskIds, ...]
    standby: tuple[TaskIds, ...]
    warmup: tuple[TaskIds, ...]


class StreamsCurrentValue(NamedTuple):
    """`state`: a StreamsMemberState."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    active: tuple[AssignedTaskIds, ...]
    standby: tuple[AssignedTaskIds, ...]
    warmup: tuple[AssignedTaskIds, ...]
    active_pending_revocation: tuple[AssignedTaskIds, ...]
    standby_pending_revocation: tuple[AssignedTaskIds, ...]
    warmup_pending_revocation: tuple[AssignedTaskIds, ...]


class InternalTopic(NamedTuple):
    """`partitions`: 0 for the number that follows from the topology. `replication_factor`: 0 for
    the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[KeyValue, ...]


class CopartitionGroup(NamedTuple):
    """Topics that need the same number of partitions, by their indexes in the subtopology's
    lists."""

    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]


class Subtopology(NamedTuple):
    """A part of the application. Its task N reads partition N of each of its source topics."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    changelog_topics: tuple[InternalTopic, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    copartition_groups: tuple[CopartitionGroup, ...]


class StreamsTopologyValue(NamedTuple):
    epoch: int
    subtopologies: tuple[Subtopology, ...]


StreamsRecordValue = (
    StreamsEpochValue
    | StreamsMemberValue
    | StreamsTargetEpochValue
    | StreamsTargetValue
    | StreamsCurrentValue
    | StreamsTopologyValue
)


_STRING, _STRINGS = Field("string"), Field("string", array=True)
_OPTIONAL, _INT32 = Field("string", nullable=True), Field("int32")
_INT16S = Field("int16", array=True)
_KEY_VALUE: Final = flexible(KeyValue, _STRING, _STRING)
_ENDPOINT: Final = flexible(UserEndpoint, _STRING, Field("uint16"))
_TASKS: Final = Field(flexible(TaskIds, _STRING, Field("int32", array=True)))
_ASSIGNED: Final = Field(
    flexible(AssignedTaskIds, _STRING, Field("int32", array=True), Field("int32", array=True, nullable=True, tag=0))
)
_INTERNAL_TOPIC: Final = flexible(InternalTopic, _STRING, _INT32, Field("int16"), Field(_KEY_VALUE))
_COPARTITION_GROUP: Final = flexible(CopartitionGroup, _INT16S, _INT16S, _INT16S)
_SUBTOPOLOGY: Final = flexible(
    Subtopology,
    _STRING,
    _STRINGS,
    _STRINGS,
    Field(_INTERNAL_TOPIC),
    _STRINGS,
    Field(_INTERNAL_TOPIC),
    Field(_COPARTITION_GROUP),
)
_GROUP_EPOCH: Final = flexible(
    StreamsEpochValue,
    _INT32,
    Field("int64"),
    Field("int32", tag=0, default=-1),
    Field(_KEY_VALUE, tag=1, array=True, default=()),
)
_MEMBER: Final = flexible(
    StreamsMemberValue,
    _OPTIONAL,
    _OPTIONAL,
    _STRING,
    _STRING,
    _INT32,
    _INT32,
    _STRING,
    Field(_ENDPOINT, single=True),
    Field(_KEY_VALUE),
)

STREAMS_GROUP_RECORDS: Final = RecordTypes[StreamsRecordKey, StreamsRecordValue](
    {
        StreamsGroupKey: (17, _GROUP_EPOCH),
        StreamsMemberKey: (19, _MEMBER),
        StreamsTargetEpochKey: (20, flexible(StreamsTargetEpochValue, _INT32)),
        StreamsTargetKey: (21, flexible(StreamsTargetValue, _TASKS, _TASKS, _TASKS)),
        StreamsCurrentKey: (22, flexible(StreamsCurrentValue, _INT32, _INT32, Field("int8"), *(_ASSIGNED,) * 6)),
        StreamsTopologyKey: (23, flexible(StreamsTopologyValue, _INT32, Field(_SUBTOPOLOGY))),
    }
)
