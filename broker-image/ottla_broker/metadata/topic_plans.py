"""Plans for creating, growing and deleting topics: pure functions from the image and a request to
records.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

import msgspec

from ottla_broker.counted_nouns import count_noun
from ottla_broker.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from ottla_broker.metadata.reassignment import target_replicas
from ottla_broker.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord, TopicRecord
from ottla_broker.metadata.replica_placer import ReplicaPlacer, can_start_in_sync
from ottla_broker.metadata.topic_names import colliding_name, metric_name, validate_topic_name
from ottla_broker.wire.errors import ErrorCode, KafkaError

MAX_PARTITIONS_PER_REQUEST = 10_000  # of one topic; as in Kafka's controller


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create, with `partitions` and `replication_factor`, or with an `assignment`
    (partition → replicas).
    """

    name: str
    partitions: int
    replication_factor: int
    assignment: Mapping[int, Sequence[int]] = msgspec.field(default_factory=dict)
    config: Mapping[str, str] = msgspec.field(default_factory=dict)


class TopicPlanner:
    """Plans topics that are created in one commit: each takes the placement and the names of the
    earlier ones into account."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._placer = ReplicaPlacer(image)
        self._names: dict[str, str] = {}  # metric name → name

    def plan_creation(self, topic: NewTopic, topic_id: UUID) -> list[MetadataRecord]:
        """Raises TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT."""
        check_new_topic_name(self._image, topic.name, self._names)
        if topic.assignment:
            replicas = _validated_assignment(self._image, topic.assignment, first=0)
        else:
            if topic.partitions < 1:
                raise KafkaError(ErrorCode.invalid_partitions, f"{topic.partitions} partitions: a topic has at least 1")
            _check_partition_count(topic.partitions)
            replicas = self._placer.place_partitions(topic.partitions, topic.replication_factor)
        self._names[metric_name(topic.name)] = topic.name
        return [
            TopicRecord(topic.name, topic_id),
            *(self._placer.new_partition(topic_id, partition, members) for partition, members in enumerate(replicas)),
            *(ConfigRecord(TOPIC_RESOURCE, topic.name, key, topic.config[key]) for key in sorted(topic.config)),
        ]


def check_new_topic_name(image: MetadataImage, name: str, planned: Mapping[str, str] = MappingProxyType({})) -> None:
    """`planned`: topics of the same commit, by metric name. Raises TOPIC_ALREADY_EXISTS,
    INVALID_TOPIC_EXCEPTION.
    """
    validate_topic_name(name)
    if name in image.topics or planned.get(metric_name(name)) == name:
        raise KafkaError(ErrorCode.topic_already_exists, f"topic {name!r} already exists")
    if other := planned.get(metric_name(name)) or colliding_name(name, image.topics):
        raise KafkaError(
            ErrorCode.invalid_topic_exception,
            f"topic {name!r} collides with {other!r}: '.' and '_' are the same in metric names",
        )


def plan_partition_growth(
    image: MetadataImage, name: str, count: int, assignment: Sequence[Sequence[int]] | None
) -> list[MetadataRecord]:
    """Grows a topic to `count` partitions. Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR without an assignment, INVALID_REPLICA_ASSIGNMENT with one."""
    topic = existing_topic(image, name)
    current_count = len(topic.partitions)
    if count <= current_count:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"topic {name!r} has {count_noun(current_count, 'partition')}; {count} is not more, "
            "and none can be removed",
        )
    added_count = count - current_count
    _check_partition_count(added_count)
    factor = len(target_replicas(topic.partitions[0]))
    placer = ReplicaPlacer(image)
    if assignment is None:
        replicas = placer.place_partitions(added_count, factor)
    else:
        if len(assignment) != added_count:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"{count_noun(added_count, 'new partition')}, but the assignment has {len(assignment)}",
            )
        replicas = _validated_assignment(image, dict(enumerate(assignment, current_count)), first=current_count)
        if any(len(members) != factor for members in replicas):
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"topic {name!r} has {count_noun(factor, 'replica')} per partition",
            )
    return [placer.new_partition(topic.id, current_count + n, members) for n, members in enumerate(replicas)]


def plan_topic_deletion(image: MetadataImage, name: str) -> list[MetadataRecord]:
    return [RemoveTopicRecord(existing_topic(image, name).id)]


def existing_topic(image: MetadataImage, name: str) -> TopicImage:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
    return topic


def _check_partition_count(count: int) -> None:
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"{count} new partitions of one topic; at most {MAX_PARTITIONS_PER_REQUEST} are allowed at once",
        )


def _validated_assignment(
    image: MetadataImage, assignment: Mapping[int, Sequence[int]], first: int
) -> list[tuple[int, ...]]:
    """Raises INVALID_REPLICA_ASSIGNMENT."""
    if problem := _assignment_problem(image, assignment, first):
        raise KafkaError(ErrorCode.invalid_replica_assignment, problem)
    return [tuple(assignment[partition]) for partition in sorted(assignment)]


def _assignment_problem(image: MetadataImage, assignment: Mapping[int, Sequence[int]], first: int) -> str | None:
    """What is wrong with an assignment. A valid one names consecutive partitions from `first` on,
    each with the same number of distinct registered brokers, at least one of which can start in
    sync."""
    expected = list(range(first, first + len(assignment)))
    if sorted(assignment) != expected:
        return f"partitions {sorted(assignment)} are not {first} to {expected[-1]} without gaps"
    for partition, replicas in sorted(assignment.items()):
        if not replicas or len(set(replicas)) != len(replicas):
            return f"partition {partition}: replicas {list(replicas)} are empty or repeat a broker"
        if unknown := [broker for broker in replicas if broker not in image.brokers]:
            return f"partition {partition}: no broker {unknown[0]} is registered"
        if not any(can_start_in_sync(image.brokers[broker]) for broker in replicas):
            return f"partition {partition}: all of brokers {list(replicas)} are fenced or shutting down"
    if len({len(replicas) for replicas in assignment.values()}) > 1:
        return "every partition must have the same number of replicas"
    return None
