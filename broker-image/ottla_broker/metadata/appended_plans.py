"""What mirrors mean in records whose copies are appended: several sources, and producers of this cluster, may share a topic. Pure.

Invariants:
- Which producer id marks the records of a source is in the metadata before one of them is in a log, and no other source of that topic ever has it. So
  whoever leads finds in the log itself how far each source was copied (`mirroring.positions`).
- A source that has ended in a topic never begins there again: what it brought is there, and would come twice. But where the topic is an identical copy of
  one to which another cluster appends, those sources are *carried*: they are known by the producer ids that they have there, so the copied log says how far
  each was copied, and a mirror here begins behind that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from msgspec.structs import replace

from ottla_broker.metadata.appended_sources import active_sources
from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.metadata.records import AppendedPartitionRecord, AppendedSourceRecord, MetadataRecord
from ottla_broker.metadata.topic_plans import NewTopic, TopicPlanner
from ottla_broker.wire.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class NewAppendedSource:
    """A source topic that is to be appended to topic `name`, which is made when it is not there. `partitions`: the source's; `stopped`: why nothing is
    copied, in words."""

    mirror: str
    name: str
    source_topic: str
    source_id: UUID
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)
    origins: tuple[str, ...] = ()
    stopped: str = ""


def plan_source(
    image: MetadataImage, wish: NewAppendedSource, topic_id: UUID, producer_id: int
) -> list[MetadataRecord]:
    """`topic_id`: of a topic that is made; `producer_id`: of a source that is new. What is wished of a source that is known already is brought up to
    date. Another topic of that name at the source ends the one before it. INVALID_TOPIC_EXCEPTION when it may not begin; the errors of
    `NewTopics.creation`."""
    here = image.topics.get(wish.name)
    if here is None:
        topic = NewTopic(wish.name, wish.partitions, wish.replication_factor, config=wish.config)
        return [*TopicPlanner(image).plan_creation(topic, topic_id), _source_record(topic_id, wish, producer_id)]
    sources = image.appended_sources.get(here.id, {})
    if (known := sources.get(wish.source_id)) is not None:
        if why := source_conflict(known, wish.mirror):
            raise KafkaError(ErrorCode.invalid_topic_exception, why)
        check_topic_writable(image, here)
        now = _source_record(here.id, wish, known.producer_id)
        forgotten = _cleared_partitions(image, here, known) if known.carried else []
        return [] if now == known else [*forgotten, now]
    check_topic_writable(image, here)
    copy = image.mirrored_topics.get(here.id)
    if copy is not None and copy.source_id == wish.source_id:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"{wish.name!r} was an identical copy of it")
    before = [one for one in sources.values() if (one.mirror, one.source_topic) == (wish.mirror, wish.source_topic)]
    ends = [replace(one, ended=True) for one in before if not one.ended]
    return [*ends, _source_record(here.id, wish, producer_id)]


def _source_record(topic_id: UUID, wish: NewAppendedSource, producer_id: int) -> AppendedSourceRecord:
    return AppendedSourceRecord(
        topic_id,
        wish.source_id,
        wish.mirror,
        wish.source_topic,
        producer_id,
        wish.partitions,
        origins=wish.origins,
        stopped=wish.stopped,
    )


def check_topic_writable(image: MetadataImage, topic: TopicImage) -> None:
    """INVALID_TOPIC_EXCEPTION."""
    if image.active_mirror(topic.id) is not None:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"{topic.name!r} is an identical copy of another topic")


def _cleared_partitions(
    image: MetadataImage, topic: TopicImage, source: AppendedSourceRecord
) -> list[AppendedPartitionRecord]:
    """Of a source that was appended here before: what was known of its leader epochs, because another cluster has copied on since."""
    return [
        AppendedPartitionRecord(topic.id, source.source_id, partition)
        for partition in topic.partitions
        if (topic.id, source.source_id, partition) in image.appended_partitions
    ]


def source_conflict(known: AppendedSourceRecord, mirror: str) -> str:
    """Why this mirror does not copy what is known of a source already; empty when it does, or when nobody has begun here."""
    if known.carried:
        return ""
    if known.mirror != mirror:
        return f"mirror {known.mirror!r} copies, or copied, it to this topic: its records would come twice"
    return "its copying has ended for good" if known.ended else ""


def plan_source_report(image: MetadataImage, told: MirrorReport, source_id: UUID) -> list[MetadataRecord]:
    """What the leader of a partition says of one source. UNKNOWN_TOPIC_ID when that is appended no more."""
    if source_id not in active_sources(image, told.topic_id):
        raise KafkaError(ErrorCode.unknown_topic_id, "the source is not appended to the topic any more")
    before = appended_partition(image, told.topic_id, source_id, told.partition)
    after = replace(
        before,
        epochs=before.epochs if told.epochs is None else told.epochs,
        stopped=told.stopped or before.stopped,
    )
    return [] if after == before else [after]


def plan_source_failover(image: MetadataImage, mirror: str) -> list[MetadataRecord]:
    """Ends every source of this mirror."""
    return [
        replace(source, ended=True)
        for sources in image.appended_sources.values()
        for source in sources.values()
        if source.mirror == mirror and not source.ended
    ]


def appended_topic_names(image: MetadataImage, mirror: str) -> list[str]:
    """Names of the topics that have live sources of this mirror, sorted."""
    return sorted(
        image.topic_names[topic]
        for topic in image.appended_sources
        if any(source.mirror == mirror for source in active_sources(image, topic).values())
    )


def appended_partition(
    image: MetadataImage, topic_id: UUID, source_id: UUID, partition: int
) -> AppendedPartitionRecord:
    known = image.appended_partitions.get((topic_id, source_id, partition))
    return known or AppendedPartitionRecord(topic_id, source_id, partition)


def stopped_partitions(image: MetadataImage, topic_id: UUID, source_id: UUID) -> list[AppendedPartitionRecord]:
    topic = image.topic_by_id(topic_id)
    partitions = sorted(topic.partitions) if topic is not None else ()
    found = (appended_partition(image, topic_id, source_id, partition) for partition in partitions)
    return [known for known in found if known.stopped]


def plan_resumption(image: MetadataImage, topic_id: UUID, source_id: UUID) -> list[MetadataRecord]:
    """Partitions that stood still go on, where the source's log and what was copied part."""
    return [replace(known, stopped="") for known in stopped_partitions(image, topic_id, source_id)]
