"""Plans for sources that are appended to a topic (mirrors with `offsets: Appended`). Pure.

Several sources, and producers of this cluster, may write to one topic. Invariants:
- The producer id that marks a source's records is in the metadata before one of the records is in a
  log, and no other source of the topic ever has it. So a leader finds each source's position in the
  log (`mirroring.source_positions`).
- A source that has ended in a topic never starts there again, which would duplicate its records.
  The exception is a *carried* source, which another cluster appends to the topic that this one
  mirrors with identical offsets. It has the same producer id here, so the log has its position, and
  a mirror here continues after it.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.records import AppendedPartitionRecord, AppendedSourceRecord, MetadataRecord
from ottla_broker.metadata.topic_plans import NewTopic, TopicPlanner
from ottla_broker.wire.errors import ErrorCode, KafkaError


class NewAppendedSource(msgspec.Struct, frozen=True):
    """A source topic to append to topic `name`, which is created if it does not exist.
    `partitions`: number of the source's partitions; `stopped`: the reason why mirroring has
    stopped, empty while it runs."""

    mirror: str
    name: str
    source_topic: str
    source_id: UUID
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = msgspec.field(default_factory=dict)
    origins: tuple[str, ...] = ()
    stopped: str = ""


class AppendedSourceDescription(msgspec.Struct, frozen=True, rename="camel"):
    """A source that is or was appended to a topic, as a cluster describes it to the clusters that
    mirror the topic.
    """

    source_id: UUID
    mirror: str
    source_topic: str
    producer_id: int
    partitions: int


# --- queries


def active_sources(image: MetadataImage, topic_id: UUID) -> dict[UUID, AppendedSourceRecord]:
    """The sources of a topic that have not ended, by id."""
    return {key: source for key, source in image.appended_sources.get(topic_id, {}).items() if not source.ended}


def describe_sources(image: MetadataImage, topic_id: UUID) -> list[AppendedSourceDescription]:
    """All sources of a topic, for the clusters that mirror it."""
    return [
        AppendedSourceDescription(
            source.source_id, source.mirror, source.source_topic, source.producer_id, source.partitions
        )
        for _, source in sorted(image.appended_sources.get(topic_id, {}).items())
    ]


def retained_sources(image: MetadataImage, topic_id: UUID) -> list[AppendedSourceRecord]:
    """The sources whose positions a writable topic must retain."""
    if image.active_mirror(topic_id) is not None:
        return []
    sources = image.appended_sources.get(topic_id, {}).values()
    return [source for source in sources if not source.ended or source.carried]


def mirroring_obstacle(image: MetadataImage, topic_id: UUID) -> str:
    """The reason why a topic with active sources cannot become mirrored; empty if it has none."""
    sources = active_sources(image, topic_id)
    if not sources:
        return ""
    mirrors = ", ".join(sorted({repr(source.mirror) for source in sources.values()}))
    return f"mirror {mirrors} appends records to it: end that first with the role FailedOver"


def source_conflict(known: AppendedSourceRecord, mirror: str) -> str:
    """The reason why this mirror may not append a known source; empty if it may."""
    if known.carried:
        return ""
    if known.mirror != mirror:
        return f"mirror {known.mirror!r} appends or appended it to this topic: its records would be duplicated"
    return "appending it has ended permanently" if known.ended else ""


def appended_topic_names(image: MetadataImage, mirror: str) -> list[str]:
    """Names of the topics with active sources of this mirror, sorted."""
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
    records = (appended_partition(image, topic_id, source_id, partition) for partition in partitions)
    return [record for record in records if record.stopped]


# --- plans


def plan_source(image: MetadataImage, new: NewAppendedSource, topic_id: UUID, producer_id: int) -> list[MetadataRecord]:
    """Adds a source or updates a known one. A source that is added ends the earlier source of the
    same mirror whose topic had the same name: that topic was created again.

    `topic_id`: id of a topic that is created; `producer_id`: producer id of a source that is added.
    Raises INVALID_TOPIC_EXCEPTION when the source may not be appended; the errors of
    `TopicPlanner.plan_creation`.
    """
    topic = image.topics.get(new.name)
    if topic is None:
        planned = NewTopic(new.name, new.partitions, new.replication_factor, config=new.config)
        return [*TopicPlanner(image).plan_creation(planned, topic_id), _source_record(topic_id, new, producer_id)]
    sources = image.appended_sources.get(topic.id, {})
    if (known := sources.get(new.source_id)) is not None:
        if conflict := source_conflict(known, new.mirror):
            raise KafkaError(ErrorCode.invalid_topic_exception, conflict)
        _check_writable(image, topic)
        updated = _source_record(topic.id, new, known.producer_id)
        cleared = _cleared_partitions(image, topic, known) if known.carried else []
        return [] if updated == known else [*cleared, updated]
    _check_writable(image, topic)
    mirrored = image.mirrored_topics.get(topic.id)
    if mirrored is not None and mirrored.source_id == new.source_id:
        raise KafkaError(
            ErrorCode.invalid_topic_exception, f"{new.name!r} was mirrored from this source with identical offsets"
        )
    ended = [
        replace(source, ended=True)
        for source in sources.values()
        if (source.mirror, source.source_topic) == (new.mirror, new.source_topic) and not source.ended
    ]
    return [*ended, _source_record(topic.id, new, producer_id)]


def _source_record(topic_id: UUID, new: NewAppendedSource, producer_id: int) -> AppendedSourceRecord:
    return AppendedSourceRecord(
        topic_id,
        new.source_id,
        new.mirror,
        new.source_topic,
        producer_id,
        new.partitions,
        origins=new.origins,
        stopped=new.stopped,
    )


def _check_writable(image: MetadataImage, topic: TopicImage) -> None:
    """Raises INVALID_TOPIC_EXCEPTION."""
    if image.active_mirror(topic.id) is not None:
        raise KafkaError(
            ErrorCode.invalid_topic_exception, f"{topic.name!r} mirrors another topic with identical offsets"
        )


def _cleared_partitions(
    image: MetadataImage, topic: TopicImage, source: AppendedSourceRecord
) -> list[AppendedPartitionRecord]:
    """Clears the leader epochs and `stopped` of each partition of a carried source that was
    appended here before: another cluster has appended records since.
    """
    return [
        AppendedPartitionRecord(topic.id, source.source_id, partition)
        for partition in topic.partitions
        if (topic.id, source.source_id, partition) in image.appended_partitions
    ]


def plan_source_report(
    image: MetadataImage,
    topic_id: UUID,
    source_id: UUID,
    partition: int,
    epochs: tuple[tuple[int, int], ...] | None,
    stopped: str,
) -> list[MetadataRecord]:
    """A leader reports the state of one partition of a source; `epochs` None and `stopped` "" leave
    theirs unchanged. Raises UNKNOWN_TOPIC_ID when the source has ended.
    """
    if source_id not in active_sources(image, topic_id):
        raise KafkaError(ErrorCode.unknown_topic_id, "the source is no longer appended to the topic")
    before = appended_partition(image, topic_id, source_id, partition)
    after = replace(before, epochs=before.epochs if epochs is None else epochs, stopped=stopped or before.stopped)
    return [] if after == before else [after]


def plan_source_failover(image: MetadataImage, mirror: str) -> list[MetadataRecord]:
    """Ends every source of this mirror."""
    return [
        replace(source, ended=True)
        for sources in image.appended_sources.values()
        for source in sources.values()
        if source.mirror == mirror and not source.ended
    ]


def plan_resumption(image: MetadataImage, topic_id: UUID, source_id: UUID) -> list[MetadataRecord]:
    """Resumes the stopped partitions of a source."""
    return [replace(record, stopped="") for record in stopped_partitions(image, topic_id, source_id)]


def carried_source_records(
    image: MetadataImage, topic_id: UUID, sources: Iterable[AppendedSourceDescription]
) -> list[AppendedSourceRecord]:
    """Records for the sources of the mirrored topic that are new or changed."""
    known = image.appended_sources.get(topic_id, {})
    records = (
        AppendedSourceRecord(
            topic_id,
            source.source_id,
            source.mirror,
            source.source_topic,
            source.producer_id,
            source.partitions,
            ended=True,
            carried=True,
        )
        for source in sources
    )
    return [record for record in records if known.get(record.source_id) != record]
