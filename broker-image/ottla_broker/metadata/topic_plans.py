"""What creating, growing and deleting topics means in records: pure functions from the image and a wish to records, or a refusal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

from ottla_broker.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from ottla_broker.metadata.reassignment import target_replicas
from ottla_broker.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord, TopicRecord
from ottla_broker.metadata.replica_placer import ReplicaPlacer, can_start_in_sync
from ottla_broker.metadata.topic_names import colliding_name, metric_name, validate_topic_name
from ottla_broker.wire.errors import ErrorCode, KafkaError

MAX_PARTITIONS_PER_REQUEST = (
    10_000  # in one request, as Kafka's controller bounds it (KIP-599 keeps a request's work bounded)
)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A wish. `partitions`/`replication_factor` must be positive, or `assignment` (partition → replicas) says both."""

    name: str
    partitions: int
    replication_factor: int
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)


class TopicPlanner:
    """Topics that are made in one commit: each is placed beside those before it, and refused where it collides with one of them."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._placer = ReplicaPlacer(image)
        self._names: dict[str, str] = {}  # as they are in metrics → as they are

    def plan_creation(self, topic: NewTopic, topic_id: UUID) -> list[MetadataRecord]:
        """TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT."""
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


def check_new_topic_name(image: MetadataImage, name: str, beside: Mapping[str, str] = MappingProxyType({})) -> None:
    """`beside`: topics of the same commit, by their names in metrics. TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION."""
    validate_topic_name(name)
    if name in image.topics or beside.get(metric_name(name)) == name:
        raise KafkaError(ErrorCode.topic_already_exists, f"topic {name!r} already exists")
    if other := beside.get(metric_name(name)) or colliding_name(name, image.topics):
        raise KafkaError(
            ErrorCode.invalid_topic_exception,
            f"topic {name!r} collides with {other!r}: '.' and '_' are the same in metric names",
        )


def plan_topic_creation(image: MetadataImage, topic: NewTopic, topic_id: UUID) -> list[MetadataRecord]:
    """One topic alone."""
    return TopicPlanner(image).plan_creation(topic, topic_id)


def plan_partition_growth(
    image: MetadataImage, name: str, count: int, assignment: Sequence[Sequence[int]] | None
) -> list[MetadataRecord]:
    """Records that bring a topic to `count` partitions. UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT."""
    topic = existing_topic(image, name)
    have = len(topic.partitions)
    if count <= have:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"topic {name!r} has {have} partitions; {count} is not more, and partitions cannot be taken away",
        )
    _check_partition_count(count - have)
    factor = len(target_replicas(topic.partitions[0]))
    site = ReplicaPlacer(image)
    if assignment is None:
        replicas = site.place_partitions(count - have, factor)
    else:
        if len(assignment) != count - have:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"{count - have} new partitions, but replicas are given for {len(assignment)}",
            )
        replicas = _validated_assignment(image, dict(enumerate(assignment, have)), first=have)
        if any(len(members) != factor for members in replicas):
            raise KafkaError(ErrorCode.invalid_replica_assignment, f"topic {name!r} has {factor} replicas a partition")
    return [site.new_partition(topic.id, have + n, members) for n, members in enumerate(replicas)]


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
            f"{count} partitions in one request; at most {MAX_PARTITIONS_PER_REQUEST} are allowed",
        )


def _validated_assignment(
    image: MetadataImage, assignment: Mapping[int, Sequence[int]], first: int
) -> list[tuple[int, ...]]:
    """A person's own assignment, checked: consecutive partitions, distinct brokers that are registered, one of which lives, the same number for each."""
    wanted = list(range(first, first + len(assignment)))
    if sorted(assignment) != wanted:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"partitions {sorted(assignment)} are not {first} to {wanted[-1]} without gaps",
        )
    for partition in wanted:
        members = assignment[partition]
        if not members or len(set(members)) != len(members):
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"partition {partition}: replicas {list(members)} are empty or repeat a broker",
            )
        if unknown := [broker for broker in members if broker not in image.brokers]:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment, f"partition {partition}: no broker {unknown[0]} is registered"
            )
        if not any(can_start_in_sync(image.brokers[broker]) for broker in members):
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"partition {partition}: all of brokers {list(members)} are fenced or about to stop",
            )
    if len({len(assignment[partition]) for partition in wanted}) > 1:
        raise KafkaError(ErrorCode.invalid_replica_assignment, "every partition must have the same number of replicas")
    return [tuple(assignment[partition]) for partition in wanted]
