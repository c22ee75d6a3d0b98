"""What mirrors mean in records: pure functions from the image and a wish to records, or a refusal.

Invariants:
- A topic is a copy from its first moment: what makes it says so in the same commit. So nobody can write to it before its source's records come.
- A source's leader epoch is in the metadata before a record of it is in a log. So whoever leads can tell the source of which epoch its last
  record is, and the source can tell whether it still has that record.
- A failover is one record in the one log that also says who leads. So a leader that takes producers' records has no successor that would still
  copy the source's.
- What becomes a copy becomes one while its mirror replicates: a failover opens all that there are.
- Where a topic that had records of its own joins its source's log is said in the same commit that begins a new leader epoch. So what is cut off is cut by a leader of whom
  nobody has fetched yet; and nothing is without consent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ottla_broker.config import MIRROR_ON_DIVERGENCE, MIRROR_ROLE, REPLICATE, TRUNCATE
from ottla_broker.metadata.appended_sources import CarriedSource, appending_obstacle, carried_source_records
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


@dataclass(frozen=True, slots=True)
class NewMirroredTopic:
    """A topic that is to be made as a copy. `source_id`: of the source's topic, whose name is `source_topic`; `sources`: that are
    appended to that."""

    mirror: str
    name: str
    source_topic: str
    source_id: UUID
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)
    origins: tuple[str, ...] = ()
    sources: tuple[CarriedSource, ...] = ()


class MirrorReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `broker` says, who leads a copied partition in `leader_epoch`. As for the others, see MirroredPartition; `epochs` None: as known. `source_id`:
    of which source, where records are appended (AppendedPartition).
    It comes to the controller as a value of the config resource `mirrored topic`, in JSON."""

    broker_id: int
    topic_id: UUID
    partition: int
    leader_epoch: int
    epochs: tuple[tuple[int, int], ...] | None = None
    stopped: str = ""
    source_id: UUID | None = None
    end: int = NO_OFFSET
    source_end: int = NO_OFFSET
    joined: int = NO_OFFSET
    cut: int = 0  # offsets that are here beyond `joined`


def check_mirror_replicates(image: MetadataImage, mirror: str) -> None:
    """INVALID_REQUEST when it does not any more: what became its copy now would be closed, and nobody would open it."""
    settings = image.configs.get((MIRROR_RESOURCE, mirror))
    if settings is None:
        raise KafkaError(ErrorCode.invalid_request, f"there is no mirror {mirror!r} any more")
    if (role := settings.get(MIRROR_ROLE.name, REPLICATE)) != REPLICATE:
        raise KafkaError(ErrorCode.invalid_request, f"mirror {mirror!r} does not replicate: its role is {role}")


def plan_mirrored_topic(made: TopicPlanner, wish: NewMirroredTopic, topic_id: UUID) -> list[MetadataRecord]:
    """The errors of `NewTopics.creation`."""
    topic = NewTopic(wish.name, wish.partitions, wish.replication_factor, config=wish.config)
    return [
        *made.plan_creation(topic, topic_id),
        MirroredTopicRecord(topic_id, wish.mirror, wish.source_topic, wish.source_id, origins=wish.origins),
        *carried_source_records(MetadataImage(), topic_id, wish.sources),
    ]


def plan_recreation(image: MetadataImage, wish: NewMirroredTopic, topic_id: UUID, old_id: UUID) -> list[MetadataRecord]:
    """The copy `old_id` is thrown away for a new one of the same name. UNKNOWN_TOPIC_ID when it is there no more, or no copy any more."""
    name = image.topic_names.get(old_id)
    if name != wish.name or image.active_mirror(old_id) is None:
        raise KafkaError(ErrorCode.unknown_topic_id, f"{wish.name!r} is not the copy that was to be made anew")
    without = MetadataImage(
        topics={other: topic for other, topic in image.topics.items() if other != name},
        brokers=image.brokers,
    )
    return [RemoveTopicRecord(old_id), *plan_mirrored_topic(TopicPlanner(without), wish, topic_id)]


def check_leader(image: MetadataImage, told: MirrorReport) -> PartitionRecord:
    """The partition, which who tells leads. UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH when somebody else leads, or leads anew."""
    state = image.partition(told.topic_id, told.partition)
    if state is None:
        code = ErrorCode.unknown_topic_or_partition if image.topic_by_id(told.topic_id) else ErrorCode.unknown_topic_id
        raise KafkaError(code)
    if (state.leader, state.leader_epoch) != (told.broker_id, told.leader_epoch):
        raise KafkaError(ErrorCode.fenced_leader_epoch, f"broker {state.leader} leads in epoch {state.leader_epoch}")
    return state


def plan_report(image: MetadataImage, told: MirrorReport) -> list[MetadataRecord]:
    """The errors of `led`; INVALID_TOPIC_EXCEPTION when the topic is no copy."""
    state = check_leader(image, told)
    topic = image.mirrored_topics.get(told.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.invalid_topic_exception, "the topic is no copy")
    before = mirrored_partition(image, told.topic_id, told.partition)
    if told.joined != NO_OFFSET:
        return _plan_join(image, state, topic, before, told)
    if told.end != NO_OFFSET and not topic.failed_over:
        raise KafkaError(ErrorCode.invalid_request, "the topic does not fail over")
    after = replace(
        before,
        epochs=before.epochs if told.epochs is None else told.epochs,
        stopped=told.stopped or before.stopped,
        end=before.end if told.end == NO_OFFSET else told.end,
        end_epoch=before.end_epoch if told.end == NO_OFFSET else state.leader_epoch,
        source_end=before.source_end if told.source_end == NO_OFFSET else told.source_end,
    )
    return [] if after == before else [after]


def plan_origins(
    image: MetadataImage, topic_id: UUID, origins: tuple[str, ...], sources: tuple[CarriedSource, ...]
) -> list[MetadataRecord]:
    """The copy's records come by way of these clusters now, and from these sources. UNKNOWN_TOPIC_ID when it is no copy any more."""
    known = image.active_mirror(topic_id)
    if known is None:
        raise KafkaError(ErrorCode.unknown_topic_id, "the topic is no copy any more")
    changed: list[MetadataRecord] = [] if known.origins == origins else [replace(known, origins=origins)]
    return [*changed, *carried_source_records(image, topic_id, sources)]


def _plan_join(
    image: MetadataImage,
    state: PartitionRecord,
    topic: MirroredTopicRecord,
    before: MirroredPartitionRecord,
    told: MirrorReport,
) -> list[MetadataRecord]:
    """INVALID_REQUEST for what is not to be joined; POLICY_VIOLATION without consent to cut. Told again, it begins another epoch: a leader who had not
    cut yet begins in it."""
    waits = is_awaiting_join(topic, before)
    if topic.failed_over or not (waits or before.joined == told.joined):
        raise KafkaError(ErrorCode.invalid_request, "the partition is not to be joined to its source's, or not there")
    if told.cut and waits and not _may_truncate(image, topic.mirror):
        raise KafkaError(ErrorCode.policy_violation, f"mirror {topic.mirror!r} may not cut anything off")
    epochs = before.epochs if told.epochs is None else told.epochs
    return [
        MirroredPartitionRecord(
            before.topic,
            before.partition,
            epochs,
            before.stopped,
            joined=told.joined,
            joined_epoch=state.leader_epoch,
        ),
        replace(state, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1),
    ]


def _may_truncate(image: MetadataImage, mirror: str) -> bool:
    return image.configs.get((MIRROR_RESOURCE, mirror), {}).get(MIRROR_ON_DIVERGENCE.name) == TRUNCATE


def plan_failback(image: MetadataImage, wish: NewMirroredTopic, topic_id: UUID) -> list[MetadataRecord]:
    """A copy that has failed over becomes one again. UNKNOWN_TOPIC_ID when it is none; INVALID_REQUEST while it fails over; POLICY_VIOLATION without consent
    to cut off what it has of its own."""
    topic, copy = image.topic_by_id(topic_id), image.mirrored_topics.get(topic_id)
    if topic is None or copy is None or not copy.failed_over:
        raise KafkaError(ErrorCode.unknown_topic_id, "it is no copy that has failed over")
    if why := failback_obstacle(image, topic, copy):
        raise KafkaError(ErrorCode.invalid_request, why)
    if not _may_truncate(image, copy.mirror):
        raise KafkaError(ErrorCode.policy_violation, f"mirror {copy.mirror!r} may not cut anything off")
    taken_back = replace(copy, failed_over=False, adopted=False, origins=wish.origins)
    return [taken_back, *carried_source_records(image, topic_id, wish.sources)]


def failback_obstacle(image: MetadataImage, topic: TopicImage, copy: MirroredTopicRecord) -> str:
    """Why a copy that has failed over cannot become one again; empty when it can."""
    known = [mirrored_partition(image, topic.id, partition) for partition in topic.partitions]
    if any(one.end == NO_OFFSET for one in known):
        return "it is failing over still"
    if copy.adopted and any(one.joined == NO_OFFSET for one in known):
        return "it failed over before it was known up to where it and its source are one log"
    return appending_obstacle(image, topic.id)


def plan_adoption(image: MetadataImage, wish: NewMirroredTopic, topic_id: UUID) -> list[MetadataRecord]:
    """A topic with records of its own becomes a copy: from now on it takes its source's only. UNKNOWN_TOPIC_ID when it is there no more;
    INVALID_TOPIC_EXCEPTION when it is a copy already, or records are appended to it."""
    topic = image.topic_by_id(topic_id)
    if topic is None or topic.name != wish.name:
        raise KafkaError(ErrorCode.unknown_topic_id, f"{wish.name!r} is not the topic that was to become a copy")
    if image.active_mirror(topic_id) is not None:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"{wish.name!r} is a copy already")
    if why := appending_obstacle(image, topic_id):
        raise KafkaError(ErrorCode.invalid_topic_exception, why)
    known = [one for one in topic.partitions if (topic_id, one) in image.mirrored_partitions]
    before = image.mirrored_topics.get(topic_id)
    again = before is not None and before.source_id == wish.source_id
    return [
        MirroredTopicRecord(
            topic_id, wish.mirror, wish.source_topic, wish.source_id, adopted=True, origins=wish.origins
        ),
        *(_adopted(mirrored_partition(image, topic_id, partition), again) for partition in known),
        *carried_source_records(image, topic_id, wish.sources),
    ]


def _adopted(before: MirroredPartitionRecord, again: bool) -> MirroredPartitionRecord:
    """`again`: it was a copy of the same topic. Then where it failed over says as much about the two logs as what the source says, and may be later."""
    if not again:
        return MirroredPartitionRecord(before.topic, before.partition)
    return MirroredPartitionRecord(
        before.topic, before.partition, before.epochs, end=before.end, end_epoch=before.end_epoch
    )


def is_topic_joined(image: MetadataImage, topic: TopicImage) -> bool:
    """Whether every partition of a copy goes on where its source's log does."""
    copy = image.mirrored_topics.get(topic.id)
    return copy is None or not any(
        is_awaiting_join(copy, mirrored_partition(image, topic.id, partition)) for partition in topic.partitions
    )


def is_awaiting_join(copy: MirroredTopicRecord, known: MirroredPartitionRecord) -> bool:
    """Whether nobody has said yet where a partition of a copy, which has not failed over, goes on: it had records of its own."""
    return known.end != NO_OFFSET or (copy.adopted and known.joined == NO_OFFSET)


def plan_failover(image: MetadataImage, mirror: str) -> list[MetadataRecord]:
    """Opens every copy of this mirror for writing."""
    return [replace(topic, failed_over=True) for topic in active_mirrored_topics(image, mirror)]


def active_mirrored_topics(image: MetadataImage, mirror: str) -> Iterable[MirroredTopicRecord]:
    """Those that have not failed over."""
    return [topic for topic in image.mirrored_topics.values() if topic.mirror == mirror and not topic.failed_over]


def active_mirrored_topic_names(image: MetadataImage, mirror: str) -> list[str]:
    """Names of topics that have not failed over, sorted."""
    return sorted(image.topic_names[topic.topic] for topic in active_mirrored_topics(image, mirror))


def mirrored_partition(image: MetadataImage, topic_id: UUID, partition: int) -> MirroredPartitionRecord:
    return image.mirrored_partitions.get((topic_id, partition)) or MirroredPartitionRecord(topic_id, partition)


def read_only_message(topic: str, mirror: str) -> str:
    """Why a client may not change a copy."""
    return f"topic {topic!r} is a copy that mirror {mirror!r} keeps; it is changed at its source only, until the mirror fails over"


def produce_rejection(image: MetadataImage, topic_id: UUID, name: str) -> KafkaError:
    """Why a producer's records are not taken."""
    if (copy := image.active_mirror(topic_id)) is not None:
        return KafkaError(ErrorCode.invalid_topic_exception, read_only_message(name, copy.mirror))
    return KafkaError(
        ErrorCode.not_enough_replicas,
        f"{name} is failing over: its in-sync replicas do not have all that was copied yet",
    )
