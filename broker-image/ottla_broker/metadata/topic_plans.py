"""What creating, growing and deleting topics means in records: pure functions from the image and a wish to records, or a refusal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ottla_broker.metadata.image import TOPIC_RESOURCE, Image, TopicImage
from ottla_broker.metadata.placement import Place, least_loaded_start, place
from ottla_broker.metadata.records import ConfigRecord, MetadataRecord, PartitionRecord, RemoveTopic, TopicRecord
from ottla_broker.metadata.topic_names import check_topic_name, colliding_name
from ottla_broker.wire.errors import ErrorCode, KafkaError

MOST_PARTITIONS = 10_000  # in one request, as Kafka's controller bounds it (KIP-599 keeps a request's work bounded)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A wish. `partitions`/`replication_factor` must be positive, or `assignment` (partition → replicas) says both."""

    name: str
    partitions: int
    replication_factor: int
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)


def creation(image: Image, topic: NewTopic, topic_id: UUID) -> list[MetadataRecord]:
    """TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT."""
    check_topic_name(topic.name)
    if topic.name in image.topics:
        raise KafkaError(ErrorCode.topic_already_exists, f"topic {topic.name!r} already exists")
    if other := colliding_name(topic.name, image.topics):
        raise KafkaError(
            ErrorCode.invalid_topic_exception,
            f"topic {topic.name!r} collides with {other!r}: '.' and '_' are the same in metric names",
        )
    replicas = _given(image, topic.assignment, first=0) if topic.assignment else _placed(image, topic)
    return [
        TopicRecord(topic.name, topic_id),
        *(_new_partition(image, topic_id, partition, members) for partition, members in enumerate(replicas)),
        *(ConfigRecord(TOPIC_RESOURCE, topic.name, key, topic.config[key]) for key in sorted(topic.config)),
    ]


def growth(image: Image, name: str, count: int, assignment: Sequence[Sequence[int]] | None) -> list[MetadataRecord]:
    """Records that bring a topic to `count` partitions. UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT."""
    topic = existing(image, name)
    have = len(topic.partitions)
    if count <= have:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"topic {name!r} has {have} partitions; {count} is not more, and partitions cannot be taken away",
        )
    _check_count(count - have)
    factor = len(topic.partitions[0].replicas)
    if assignment is None:
        places = _places(image)
        _check_factor(factor, places)
        replicas: Sequence[Sequence[int]] = place(
            count - have, factor, places, start=have + topic.partitions[0].replicas[0]
        )
    else:
        if len(assignment) != count - have:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"{count - have} new partitions, but replicas are given for {len(assignment)}",
            )
        replicas = _given(image, dict(enumerate(assignment, have)), first=have)
        if any(len(members) != factor for members in replicas):
            raise KafkaError(ErrorCode.invalid_replica_assignment, f"topic {name!r} has {factor} replicas a partition")
    return [_new_partition(image, topic.id, have + n, members) for n, members in enumerate(replicas)]


def removal(image: Image, name: str) -> list[MetadataRecord]:
    return [RemoveTopic(existing(image, name).id)]


def existing(image: Image, name: str) -> TopicImage:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
    return topic


def _places(image: Image) -> list[Place]:
    return [Place(broker.id, broker.rack) for broker in image.alive_brokers()]


def _placed(image: Image, topic: NewTopic) -> list[tuple[int, ...]]:
    if topic.partitions < 1:
        raise KafkaError(ErrorCode.invalid_partitions, f"{topic.partitions} partitions: a topic has at least 1")
    _check_count(topic.partitions)
    places = _places(image)
    _check_factor(topic.replication_factor, places)
    leaders = Counter(p.leader for t in image.topics.values() for p in t.partitions.values())
    start = least_loaded_start(places, leaders)
    return place(topic.partitions, topic.replication_factor, places, start=start, shift=len(image.topics))


def _check_count(count: int) -> None:
    if count > MOST_PARTITIONS:
        raise KafkaError(
            ErrorCode.invalid_partitions, f"{count} partitions in one request; at most {MOST_PARTITIONS} are allowed"
        )


def _check_factor(factor: int, places: Sequence[Place]) -> None:
    if not 1 <= factor <= len(places):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"replication factor {factor}; between 1 and the {len(places)} live brokers is allowed",
        )


def _given(image: Image, assignment: Mapping[int, Sequence[int]], first: int) -> list[tuple[int, ...]]:
    """A person's own assignment, checked: consecutive partitions, distinct live brokers, the same number for each."""
    wanted = list(range(first, first + len(assignment)))
    if sorted(assignment) != wanted:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"partitions {sorted(assignment)} are not {first} to {wanted[-1]} without gaps",
        )
    alive = {broker.id for broker in image.alive_brokers()}
    for partition in wanted:
        members = assignment[partition]
        if not members or len(set(members)) != len(members):
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"partition {partition}: replicas {list(members)} are empty or repeat a broker",
            )
        if unknown := [broker for broker in members if broker not in alive]:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment, f"partition {partition}: no live broker has id {unknown[0]}"
            )
    if len({len(assignment[partition]) for partition in wanted}) > 1:
        raise KafkaError(ErrorCode.invalid_replica_assignment, "every partition must have the same number of replicas")
    return [tuple(assignment[partition]) for partition in wanted]


def _new_partition(image: Image, topic: UUID, partition: int, replicas: Sequence[int]) -> PartitionRecord:
    members = tuple(replicas)
    directories = tuple(image.brokers[broker].directories[0] for broker in members if image.brokers[broker].directories)
    return PartitionRecord(topic, partition, replicas=members, isr=members, leader=members[0], directories=directories)
