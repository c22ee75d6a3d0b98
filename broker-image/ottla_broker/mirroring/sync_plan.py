"""Plans the changes by which topics here follow a mirror's source: topics, partitions, settings,
sources. The active controller commits them. Pure.

`plan_identical` plans for mirrors whose records keep the source's offsets. `plan_appended` plans
for mirrors whose records are appended to topics that may have producers and other sources.

Invariant: once its steps are applied, a plan yields no further steps until the source or the
mirror's settings change. The plan of a mirror changes partitions and configs of its own topics
only.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla_broker.config import (
    TOPIC_FOLLOWER_REPLICATION_THROTTLED_REPLICAS,
    TOPIC_LEADER_REPLICATION_THROTTLED_REPLICAS,
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_SETTINGS,
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
)
from ottla_broker.counted_nouns import count_noun
from ottla_broker.metadata.appended_sources import (
    AppendedSourceDescription,
    NewAppendedSource,
    active_sources,
    carried_source_records,
    mirroring_obstacle,
    plan_source,
    source_conflict,
    stopped_partitions,
)
from ottla_broker.metadata.image import SCHEMAS_TOPIC, MetadataImage, TopicImage
from ottla_broker.metadata.mirror_plans import (
    NewMirroredTopic,
    failback_obstacle,
    is_topic_joined,
    mirrored_partition,
)
from ottla_broker.metadata.records import MirroredTopicRecord
from ottla_broker.mirroring.mirror_config import MirrorConfig, matches_topic
from ottla_broker.mirroring.source_cluster import MirroredAtSource, SourceMetadata, SourceTopic

UNSYNCED_CONFIGS: Final = frozenset(
    setting.name
    for setting in (
        TOPIC_MIN_INSYNC_REPLICAS,
        TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
        TOPIC_LEADER_REPLICATION_THROTTLED_REPLICAS,
        TOPIC_FOLLOWER_REPLICATION_THROTTLED_REPLICAS,
    )
)
"""Settings of replication, which each cluster has for itself."""

TopicConfigs = Mapping[str, Mapping[str, str]]
"""Topic of the source → the configs that are set on it."""


@dataclass(frozen=True, slots=True)
class CreateMirroredTopic:
    topic: NewMirroredTopic


@dataclass(frozen=True, slots=True)
class RecreateMirroredTopic:
    """Deletes topic `old_id`, from which the source has diverged, and creates it again in the same
    commit.
    """

    topic: NewMirroredTopic
    old_id: UUID


@dataclass(frozen=True, slots=True)
class AdoptTopic:
    """Topic `topic_id` becomes mirrored: the source's topic mirrored it, and has failed over."""

    topic: NewMirroredTopic
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class FailBackTopic:
    """Topic `topic_id`, which was mirrored until it failed over, becomes mirrored again."""

    topic: NewMirroredTopic
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """`partitions`: how many the topic is to have."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class AlterTopicConfig:
    """None removes a setting."""

    topic: str
    changes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class UpdateOrigins:
    """The origins of a mirrored topic have changed, or the sources that are appended to its source
    topic.
    """

    topic: str
    topic_id: UUID
    origins: tuple[str, ...]
    sources: tuple[AppendedSourceDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class AddSource:
    """The source is appended to a topic from now on, or what is known of it has changed. The topic
    is created if it does not exist.
    """

    source: NewAppendedSource


@dataclass(frozen=True, slots=True)
class ResumeSource:
    """Partitions that stopped because the source diverged continue from the divergence."""

    topic: str
    topic_id: UUID
    source_id: UUID


@dataclass(frozen=True, slots=True)
class RejectedTopic:
    """The topic here is not mirrored, or not changed; `reason` says why, for people."""

    topic: str
    reason: str


SyncStep = (
    CreateMirroredTopic
    | RecreateMirroredTopic
    | AdoptTopic
    | FailBackTopic
    | AddPartitions
    | AlterTopicConfig
    | UpdateOrigins
    | AddSource
    | ResumeSource
    | RejectedTopic
)


def target_topic_of(step: SyncStep) -> str:
    """Name of the topic here that the step is about."""
    match step:
        case CreateMirroredTopic() | RecreateMirroredTopic() | AdoptTopic() | FailBackTopic():
            return step.topic.name
        case AddSource(source):
            return source.name
    return step.topic


def select_topics(image: MetadataImage, config: MirrorConfig, source: SourceMetadata) -> list[SourceTopic]:
    """Topics of the source that the mirror's patterns match or that it mirrors already."""
    mirrored = {topic.source_topic for topic in image.mirrored_topics.values() if topic.mirror == config.name}
    for sources in image.appended_sources.values():
        mirrored |= {it.source_topic for it in sources.values() if it.mirror == config.name}
    names = sorted(name for name in source.topics if name in mirrored or matches_topic(name, config.topics))
    return [source.topics[name] for name in names]


def find_failback_candidates(image: MetadataImage, config: MirrorConfig, topics: Iterable[SourceTopic]) -> list[str]:
    """Names of the source's topics whose counterpart here exists and is not or no longer mirrored.
    Such a topic of the source may mirror its counterpart.
    """
    local_topics = [(topic.name, image.topics.get(config.target_topic(topic.name))) for topic in topics]
    return [name for name, topic in local_topics if topic is not None and image.active_mirror(topic.id) is None]


def configs_to_sync(configs: Mapping[str, str]) -> dict[str, str]:
    """The configs of a source's topic that a mirror copies."""
    return {name: value for name, value in configs.items() if name in TOPIC_SETTINGS and name not in UNSYNCED_CONFIGS}


def plan_identical(
    image: MetadataImage,
    config: MirrorConfig,
    source: SourceMetadata,
    topic_configs: TopicConfigs | None,
    replication_factor: int,
    cluster_id: str,
    at_source: Mapping[str, MirroredAtSource] | None = None,
) -> Iterator[SyncStep]:
    """`topic_configs` None: settings are not synchronised. `cluster_id`: of this cluster.

    `at_source`: the failback candidates that are mirrored topics at the source, by name there.
    """
    for topic in select_topics(image, config, source):
        synced = {} if topic_configs is None else configs_to_sync(topic_configs.get(topic.name, {}))
        new = NewMirroredTopic(
            config.name,
            config.target_topic(topic.name),
            topic.name,
            topic.id,
            len(topic.leaders),
            replication_factor,
            synced,
            source.origins(topic),
            topic.sources,
        )
        name, local_topic = new.name, image.topics.get(new.name)
        loop_reason = _loop_reason(topic, cluster_id)
        if local_topic is None:
            yield RejectedTopic(name, loop_reason) if loop_reason else CreateMirroredTopic(new)
            continue
        mirrored, reverse = image.mirrored_topics.get(local_topic.id), (at_source or {}).get(topic.name)
        is_same_source = mirrored is not None and (mirrored.mirror, mirrored.source_id) == (config.name, topic.id)
        if reverse is not None and reverse.source_id == local_topic.id and image.active_mirror(local_topic.id) is None:
            yield _plan_adoption(image, new, local_topic, reverse)
        elif mirrored is not None and mirrored.failed_over and is_same_source:
            reason = loop_reason or _failback_rejection(image, config, new, local_topic, mirrored)
            yield RejectedTopic(name, reason) if reason else FailBackTopic(new, local_topic.id)
        elif mirrored is None or mirrored.mirror != config.name or mirrored.failed_over:
            yield RejectedTopic(name, loop_reason or _foreign_topic_reason(config, mirrored))
        elif not is_same_source and not is_topic_joined(image, local_topic):
            yield RejectedTopic(
                name, "the source's topic was deleted and created again during the failback: the records here stay"
            )
        elif not is_same_source or _is_stopped(image, local_topic):
            if config.resyncs_on_truncation:
                yield RecreateMirroredTopic(new, local_topic.id)
        else:
            if len(topic.leaders) > len(local_topic.partitions):
                yield AddPartitions(name, len(topic.leaders))
            if mirrored.origins != new.origins or carried_source_records(image, local_topic.id, topic.sources):
                yield UpdateOrigins(name, local_topic.id, new.origins, topic.sources)
            if topic_configs is not None and (changes := _config_changes(image.topic_config(name), synced)):
                yield AlterTopicConfig(name, changes)


def is_mirrored(image: MetadataImage, config: MirrorConfig, topic: SourceTopic) -> bool:
    """True if the topic's counterpart here mirrors it, no partition has stopped, and each that had
    records of its own has joined the source's log.
    """
    local_topic = image.topics.get(config.target_topic(topic.name))
    mirrored = None if local_topic is None else image.active_mirror(local_topic.id)
    return (
        mirrored is not None
        and local_topic is not None
        and ((mirrored.mirror, mirrored.source_id) == (config.name, topic.id) and not _is_stopped(image, local_topic))
        and is_topic_joined(image, local_topic)
    )


def _loop_reason(topic: SourceTopic, cluster_id: str) -> str:
    """The reason why mirroring the topic would return records to the cluster in which they were
    written; empty if it would not.
    """
    return f"the source's topic {topic.name!r} has records from this cluster" if cluster_id in topic.origins else ""


def _plan_adoption(
    image: MetadataImage, new: NewMirroredTopic, local_topic: TopicImage, reverse: MirroredAtSource
) -> SyncStep:
    """The step for a topic that the source mirrors or has mirrored, as `reverse` says."""
    if not reverse.failed_over:
        reason = f"the source's topic mirrors this one, by mirror {reverse.mirror!r}, and has not failed over"
    else:
        reason = _missing_partitions_reason(new, local_topic) or mirroring_obstacle(image, local_topic.id)
    return RejectedTopic(new.name, reason) if reason else AdoptTopic(new, local_topic.id)


def _missing_partitions_reason(new: NewMirroredTopic, local_topic: TopicImage) -> str:
    if new.partitions >= len(local_topic.partitions):
        return ""
    return (
        f"the topic has {count_noun(len(local_topic.partitions), 'partition')} here and {new.partitions} at the source"
    )


def _failback_rejection(
    image: MetadataImage,
    config: MirrorConfig,
    new: NewMirroredTopic,
    local_topic: TopicImage,
    mirrored: MirroredTopicRecord,
) -> str:
    """The reason why a topic that has failed over is not mirrored again; empty if it is."""
    if reason := failback_obstacle(image, local_topic, mirrored) or _missing_partitions_reason(new, local_topic):
        return reason
    if config.truncates_on_divergence:
        return ""
    return (
        "the topic has failed over and takes records of its own; on.divergence=Truncate (onDivergence of a Mirror)"
        " mirrors it again: records written here since then are saved to files and truncated"
    )


def _foreign_topic_reason(config: MirrorConfig, mirrored: MirroredTopicRecord | None) -> str:
    """The reason why a topic that exists here is not this mirror's."""
    if mirrored is None:
        return "a topic of that name exists and is not mirrored: delete it, or exclude it from the mirror's topics"
    if mirrored.mirror != config.name:
        return f"a topic of that name is mirrored by mirror {mirrored.mirror!r}"
    return "the topic has failed over and has records of its own"


def _is_stopped(image: MetadataImage, topic: TopicImage) -> bool:
    return any(mirrored_partition(image, topic.id, partition).stopped for partition in topic.partitions)


def _config_changes(current: Mapping[str, str], desired: Mapping[str, str]) -> dict[str, str | None]:
    removed: dict[str, str | None] = {it: None for it in current if it not in desired and it not in UNSYNCED_CONFIGS}
    return removed | {name: value for name, value in desired.items() if current.get(name) != value}


def plan_appended(
    image: MetadataImage,
    config: MirrorConfig,
    source: SourceMetadata,
    topic_configs: TopicConfigs | None,
    replication_factor: int,
    cluster_id: str,
) -> Iterator[SyncStep]:
    """`topic_configs` None: topics are created with this cluster's own settings. `cluster_id`: of
    this cluster.

    At most one RejectedTopic for each topic.
    """
    for topic in select_topics(image, config, source):
        loop_reason = _loop_reason(topic, cluster_id)
        new = NewAppendedSource(
            config.name,
            config.target_topic(topic.name),
            topic.name,
            topic.id,
            len(topic.leaders),
            replication_factor,
            {} if topic_configs is None else configs_to_sync(topic_configs.get(topic.name, {})),
            source.origins(topic),
            loop_reason,
        )
        local_topic = image.topics.get(new.name)
        known = None if local_topic is None else image.appended_sources.get(local_topic.id, {}).get(topic.id)
        if local_topic is None or known is None or known.carried:
            if not (reason := loop_reason or _new_source_rejection(image, config, local_topic, topic)):
                yield AddSource(new)
        elif not (reason := source_conflict(known, config.name)):
            reason = loop_reason
            if plan_source(image, new, local_topic.id, known.producer_id):
                yield AddSource(new)
            if config.resyncs_on_truncation and stopped_partitions(image, local_topic.id, topic.id):
                yield ResumeSource(new.name, local_topic.id, topic.id)
        if reason := reason or _too_few_partitions_reason(local_topic, topic):
            yield RejectedTopic(new.name, reason)


def _new_source_rejection(
    image: MetadataImage, config: MirrorConfig, local_topic: TopicImage | None, topic: SourceTopic
) -> str:
    """The reason why a source that is new to the topic is not appended to it; empty if it is."""
    if config.target_topic(topic.name) == SCHEMAS_TOPIC:
        return "two registries give the same ids to different schemas: only identical offsets copy schemas"
    if local_topic is None:
        return ""
    if image.active_mirror(local_topic.id) is not None:
        return "the topic here is an identical mirror of another topic"
    mirrored = image.mirrored_topics.get(local_topic.id)
    if mirrored is not None and mirrored.source_id == topic.id:
        return (
            "the topic here was an identical mirror of the source's topic: its records would be appended a second time"
        )
    is_recreated = any(
        (it.mirror, it.source_topic) == (config.name, topic.name)
        for it in active_sources(image, local_topic.id).values()
    )
    if is_recreated and not config.resyncs_on_truncation:
        return f"the source's topic {topic.name!r} was deleted and created again"
    return ""


def _too_few_partitions_reason(local_topic: TopicImage | None, topic: SourceTopic) -> str:
    if local_topic is None or len(local_topic.partitions) >= len(topic.leaders):
        return ""
    return (
        f"the source has {count_noun(len(topic.leaders), 'partition')}, the topic here {len(local_topic.partitions)}: "
        "the others are mirrored once the topic has as many"
    )
