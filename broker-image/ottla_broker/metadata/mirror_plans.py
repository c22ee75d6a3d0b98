"""Plans for mirrored topics, which have the records of another cluster's topic at the same offsets.
Pure.

Invariants:
- A topic that a mirror creates is mirrored from its creation, by a record of the same commit. So no
  producer writes before the source's records arrive.
- A source's leader epoch is in the metadata before one of its records is in a log. So a leader can
  name the epoch of its last record, and the source can tell whether it still has that record.
- A failover is one record in the log that also elects leaders. So no successor of a leader that
  accepts producers' records still fetches from the source.
- A topic becomes mirrored only while its mirror replicates, so a failover covers all topics of the
  mirror.
- The offset at which a topic with records of its own joins its source's log is committed together
  with a new leader epoch. So the leader truncates its log before a follower fetches in that epoch.
  It truncates only if the mirror has `on.divergence=Truncate`.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ottla_broker.config import MIRROR_ON_DIVERGENCE, MIRROR_ROLE, REPLICATE, TRUNCATE
from ottla_broker.metadata.appended_sources import AppendedSourceDescription, carried_source_records, mirroring_obstacle
from ottla_broker.metadata.image import MIRROR_RESOURCE, MetadataImage, TopicImage
from ottla_broker.metadata.records import (
    MetadataRecord,
    MirroredPartitionRecord,
    MirroredTopicRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from ottla_broker.metadata.topic_plans import NewTopic, TopicPlanner
from ottla_broker.wire.errors import ErrorCode, KafkaError

NO_OFFSET = -1


class NewMirroredTopic(msgspec.Struct, frozen=True):
    """A topic to mirror. `source_id`, `source_topic`: id and name of the source's topic; `sources`:
    those that are appended to the source's topic."""

    mirror: str
    name: str
    source_topic: str
    source_id: UUID
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = msgspec.field(default_factory=dict)
    origins: tuple[str, ...] = ()
    sources: tuple[AppendedSourceDescription, ...] = ()


class MirrorReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The mirroring state of a partition as its leader reports it to the controller, as JSON in the
    value of a config of the resource type `mirrored topic`.

    Fields as in MirroredPartitionRecord. `epochs` None: unchanged; `source_id`: the source
    whose records are appended (AppendedPartitionRecord), None with identical offsets; `cut`: number
    of offsets of this log at or above `joined`.
    """

    broker_id: int = msgspec.field(name="broker")
    topic_id: UUID
    partition: int
    leader_epoch: int
    epochs: tuple[tuple[int, int], ...] | None = None
    stopped: str = ""
    source_id: UUID | None = None
    end: int = NO_OFFSET
    source_end: int = NO_OFFSET
    joined: int = NO_OFFSET
    cut: int = 0


# --- queries


def active_mirrored_topics(image: MetadataImage, mirror: str) -> Iterable[MirroredTopicRecord]:
    """The topics of this mirror that have not failed over."""
    return [topic for topic in image.mirrored_topics.values() if topic.mirror == mirror and not topic.failed_over]


def active_mirrored_topic_names(image: MetadataImage, mirror: str) -> list[str]:
    return sorted(image.topic_names[topic.topic] for topic in active_mirrored_topics(image, mirror))


def mirrored_partition(image: MetadataImage, topic_id: UUID, partition: int) -> MirroredPartitionRecord:
    return image.mirrored_partitions.get((topic_id, partition)) or MirroredPartitionRecord(topic_id, partition)


def is_topic_joined(image: MetadataImage, topic: TopicImage) -> bool:
    """For a topic that has not failed over: True if every partition has joined its source, so that
    the offset up to which both logs are identical is known. True also for a topic that was never
    mirrored.
    """
    mirrored = image.mirrored_topics.get(topic.id)
    return mirrored is None or not any(
        is_awaiting_join(mirrored, mirrored_partition(image, topic.id, partition)) for partition in topic.partitions
    )


def is_awaiting_join(topic: MirroredTopicRecord, partition: MirroredPartitionRecord) -> bool:
    """For a topic that has not failed over: True if the partition had records of its own and has
    not joined its source. The caller checks `failed_over`.
    """
    return partition.end != NO_OFFSET or (topic.adopted and partition.joined == NO_OFFSET)


def failback_obstacle(image: MetadataImage, topic: TopicImage, mirrored: MirroredTopicRecord) -> str:
    """The reason why a topic that has failed over cannot be mirrored again; empty if it can."""
    partitions = [mirrored_partition(image, topic.id, partition) for partition in topic.partitions]
    if any(partition.end == NO_OFFSET for partition in partitions):
        return "it is still failing over"
    if mirrored.adopted and any(partition.joined == NO_OFFSET for partition in partitions):
        return "it failed over before it was known up to which offset it is identical to its source"
    return mirroring_obstacle(image, topic.id)


def read_only_message(topic: str, mirror: str) -> str:
    return (
        f"topic {topic!r} is mirrored by {mirror!r} and can be changed only at its source until the mirror fails over"
    )


def produce_rejection(image: MetadataImage, topic_id: UUID, name: str) -> KafkaError:
    """The error for producers of a topic that is not writable."""
    if (mirrored := image.active_mirror(topic_id)) is not None:
        return KafkaError(ErrorCode.invalid_topic_exception, read_only_message(name, mirrored.mirror))
    return KafkaError(
        ErrorCode.not_enough_replicas,
        f"{name} is failing over: its in-sync replicas do not have all mirrored records yet",
    )


def check_mirror_replicates(image: MetadataImage, mirror: str) -> None:
    """Raises INVALID_REQUEST unless the mirror replicates, because no later failover would make a
    new topic of it writable.
    """
    settings = image.configs.get((MIRROR_RESOURCE, mirror))
    if settings is None:
        raise KafkaError(ErrorCode.invalid_request, f"mirror {mirror!r} no longer exists")
    if (role := settings.get(MIRROR_ROLE.name, REPLICATE)) != REPLICATE:
        raise KafkaError(ErrorCode.invalid_request, f"mirror {mirror!r} does not replicate: its role is {role}")


def check_leader(image: MetadataImage, report: MirrorReport) -> PartitionRecord:
    """Returns the partition. Raises UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION;
    FENCED_LEADER_EPOCH when the sender does not lead it in this epoch.
    """
    state = image.partition(report.topic_id, report.partition)
    if state is None:
        is_topic_known = image.topic_by_id(report.topic_id) is not None
        raise KafkaError(ErrorCode.unknown_topic_or_partition if is_topic_known else ErrorCode.unknown_topic_id)
    if (state.leader, state.leader_epoch) != (report.broker_id, report.leader_epoch):
        raise KafkaError(
            ErrorCode.fenced_leader_epoch, f"broker {state.leader} (-1: none) leads in epoch {state.leader_epoch}"
        )
    return state


# --- plans


def plan_mirrored_topic(planner: TopicPlanner, new: NewMirroredTopic, topic_id: UUID) -> list[MetadataRecord]:
    """Plans the creation of a mirrored topic. Raises the errors of `TopicPlanner.plan_creation`."""
    topic = NewTopic(new.name, new.partitions, new.replication_factor, config=new.config)
    return [
        *planner.plan_creation(topic, topic_id),
        MirroredTopicRecord(topic_id, new.mirror, new.source_topic, new.source_id, origins=new.origins),
        *carried_source_records(MetadataImage(), topic_id, new.sources),
    ]


def plan_recreation(image: MetadataImage, new: NewMirroredTopic, topic_id: UUID, old_id: UUID) -> list[MetadataRecord]:
    """Replaces the mirrored topic `old_id` by a new one of the same name. Raises UNKNOWN_TOPIC_ID
    when it was deleted or has failed over; the errors of `TopicPlanner.plan_creation`."""
    name = image.topic_names.get(old_id)
    if name != new.name or image.active_mirror(old_id) is None:
        raise KafkaError(ErrorCode.unknown_topic_id, f"{new.name!r} is not the mirrored topic to recreate")
    image_without_topic = MetadataImage(
        topics={other: topic for other, topic in image.topics.items() if other != name},
        brokers=image.brokers,
    )
    return [RemoveTopicRecord(old_id), *plan_mirrored_topic(TopicPlanner(image_without_topic), new, topic_id)]


def plan_report(image: MetadataImage, report: MirrorReport) -> list[MetadataRecord]:
    """Plans the records of a leader's report. Raises the errors of `check_leader`;
    INVALID_TOPIC_EXCEPTION when the topic is not mirrored; INVALID_REQUEST when `report` has an
    end and the topic has not failed over; for a partition that joins, the errors of `_plan_join`.
    """
    state = check_leader(image, report)
    topic = image.mirrored_topics.get(report.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.invalid_topic_exception, "the topic is not mirrored")
    before = mirrored_partition(image, report.topic_id, report.partition)
    if report.joined != NO_OFFSET:
        return _plan_join(image, state, topic, before, report)
    if report.end != NO_OFFSET and not topic.failed_over:
        raise KafkaError(ErrorCode.invalid_request, "the topic has not failed over")
    after = replace(
        before,
        epochs=before.epochs if report.epochs is None else report.epochs,
        stopped=report.stopped or before.stopped,
        end=before.end if report.end == NO_OFFSET else report.end,
        end_epoch=before.end_epoch if report.end == NO_OFFSET else state.leader_epoch,
        source_end=before.source_end if report.source_end == NO_OFFSET else report.source_end,
    )
    return [] if after == before else [after]


def _plan_join(
    image: MetadataImage,
    state: PartitionRecord,
    topic: MirroredTopicRecord,
    before: MirroredPartitionRecord,
    report: MirrorReport,
) -> list[MetadataRecord]:
    """Plans the join of a partition to its source. Raises INVALID_REQUEST for a partition that does
    not join; POLICY_VIOLATION if records would be truncated without `on.divergence=Truncate`. A
    repeated report starts another leader epoch, in which a leader that has not truncated yet starts
    again.
    """
    is_waiting = is_awaiting_join(topic, before)
    if topic.failed_over or not (is_waiting or before.joined == report.joined):
        raise KafkaError(ErrorCode.invalid_request, "the partition does not join its source, or not at this offset")
    if report.cut and is_waiting:
        _check_may_truncate(image, topic.mirror)
    epochs = before.epochs if report.epochs is None else report.epochs
    return [
        MirroredPartitionRecord(
            before.topic,
            before.partition,
            epochs,
            before.stopped,
            joined=report.joined,
            joined_epoch=state.leader_epoch,
        ),
        replace(state, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1),
    ]


def _check_may_truncate(image: MetadataImage, mirror: str) -> None:
    """Raises POLICY_VIOLATION unless the settings of the mirror allow truncation."""
    if image.configs.get((MIRROR_RESOURCE, mirror), {}).get(MIRROR_ON_DIVERGENCE.name) != TRUNCATE:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"mirror {mirror!r} may not truncate diverging records without {MIRROR_ON_DIVERGENCE.name}={TRUNCATE}",
        )


def plan_origins(
    image: MetadataImage, topic_id: UUID, origins: tuple[str, ...], sources: tuple[AppendedSourceDescription, ...]
) -> list[MetadataRecord]:
    """Updates the clusters through which a mirrored topic's records come, and its carried sources.
    Raises UNKNOWN_TOPIC_ID when the topic is no longer mirrored."""
    mirrored = image.active_mirror(topic_id)
    if mirrored is None:
        raise KafkaError(ErrorCode.unknown_topic_id, "the topic is no longer mirrored")
    changed: list[MetadataRecord] = [] if mirrored.origins == origins else [replace(mirrored, origins=origins)]
    return [*changed, *carried_source_records(image, topic_id, sources)]


def plan_failback(image: MetadataImage, new: NewMirroredTopic, topic_id: UUID) -> list[MetadataRecord]:
    """A topic that has failed over is mirrored again. Raises UNKNOWN_TOPIC_ID when it has not
    failed over; INVALID_REQUEST when `failback_obstacle` is not empty; POLICY_VIOLATION without
    `on.divergence=Truncate`, because it may have records of its own.
    """
    topic, mirrored = image.topic_by_id(topic_id), image.mirrored_topics.get(topic_id)
    if topic is None or mirrored is None or not mirrored.failed_over:
        raise KafkaError(ErrorCode.unknown_topic_id, "it is not a mirrored topic that has failed over")
    if obstacle := failback_obstacle(image, topic, mirrored):
        raise KafkaError(ErrorCode.invalid_request, obstacle)
    _check_may_truncate(image, mirrored.mirror)
    mirrored_again = replace(mirrored, failed_over=False, adopted=False, origins=new.origins)
    return [mirrored_again, *carried_source_records(image, topic_id, new.sources)]


def plan_adoption(image: MetadataImage, new: NewMirroredTopic, topic_id: UUID) -> list[MetadataRecord]:
    """A topic with records of its own becomes mirrored. Raises UNKNOWN_TOPIC_ID when it was
    deleted; INVALID_TOPIC_EXCEPTION when it is mirrored already, or has active sources."""
    topic = image.topic_by_id(topic_id)
    if topic is None or topic.name != new.name:
        raise KafkaError(ErrorCode.unknown_topic_id, f"{new.name!r} is not the topic to mirror")
    if image.active_mirror(topic_id) is not None:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"{new.name!r} is already mirrored")
    if obstacle := mirroring_obstacle(image, topic_id):
        raise KafkaError(ErrorCode.invalid_topic_exception, obstacle)
    before = image.mirrored_topics.get(topic_id)
    has_same_source = before is not None and before.source_id == new.source_id
    partitions = [
        mirrored_partition(image, topic_id, partition)
        for partition in topic.partitions
        if (topic_id, partition) in image.mirrored_partitions
    ]
    return [
        MirroredTopicRecord(topic_id, new.mirror, new.source_topic, new.source_id, adopted=True, origins=new.origins),
        *(_adopted_partition(partition, has_same_source) for partition in partitions),
        *carried_source_records(image, topic_id, new.sources),
    ]


def _adopted_partition(before: MirroredPartitionRecord, has_same_source: bool) -> MirroredPartitionRecord:
    """Keeps the offset of the last failover if the source is the same as before: both logs are
    identical up to there, and the source may know an earlier offset only.
    """
    if not has_same_source:
        return MirroredPartitionRecord(before.topic, before.partition)
    return MirroredPartitionRecord(
        before.topic, before.partition, before.epochs, end=before.end, end_epoch=before.end_epoch
    )


def plan_failover(image: MetadataImage, mirror: str) -> list[MetadataRecord]:
    """Makes every topic of this mirror writable."""
    return [replace(topic, failed_over=True) for topic in active_mirrored_topics(image, mirror)]
