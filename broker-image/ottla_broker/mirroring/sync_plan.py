"""What a mirror's copies need so that they are what its source has: topics, partitions, settings. Pure.

Invariant: following what this says makes it say nothing, until the source or the mirror's settings change; and no topic that is not a copy of this
mirror's is ever touched.
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
from ottla_broker.metadata.appended_sources import CarriedSource, appending_obstacle, carried_source_records
from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.mirror_plans import NewMirroredTopic, failback_obstacle, is_topic_joined, mirrored_partition
from ottla_broker.metadata.records import MirroredTopicRecord
from ottla_broker.mirroring.mirror_config import MirrorConfig
from ottla_broker.mirroring.origins import originates_here, origins_of_copy
from ottla_broker.mirroring.patterns import matches_topic
from ottla_broker.mirroring.source_cluster import SourceMetadata, SourceTopic
from ottla_broker.mirroring.source_copies import MirroredAtSource

UNSYNCED_CONFIGS: Final = frozenset(
    setting.name
    for setting in (
        TOPIC_MIN_INSYNC_REPLICAS,
        TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
        TOPIC_LEADER_REPLICATION_THROTTLED_REPLICAS,
        TOPIC_FOLLOWER_REPLICATION_THROTTLED_REPLICAS,
    )
)
"""Settings that say how a cluster replicates: each cluster's own affair."""

TopicConfigs = Mapping[str, Mapping[str, str]]
"""By topic of the source: what was set for it there."""


@dataclass(frozen=True, slots=True)
class CreateMirroredTopic:
    topic: NewMirroredTopic


@dataclass(frozen=True, slots=True)
class RecreateMirroredTopic:
    """The copy `old_id` is thrown away, because the source has parted from it."""

    topic: NewMirroredTopic
    old_id: UUID


@dataclass(frozen=True, slots=True)
class AdoptTopic:
    """The topic `topic_id`, which has records of its own, becomes a copy: the source's topic was its copy, and has failed over."""

    topic: NewMirroredTopic
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class FailBack:
    """The topic `topic_id`, which was a copy until it failed over, becomes one again."""

    topic: NewMirroredTopic
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class AddPartitions:
    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class AlterTopicConfig:
    """None removes a setting."""

    topic: str
    changes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class UpdateOrigins:
    """The records of the copy `id` come by way of other clusters than before, or other sources are appended to what it is a copy of."""

    topic: str
    id: UUID
    origins: tuple[str, ...]
    sources: tuple[CarriedSource, ...] = ()


@dataclass(frozen=True, slots=True)
class RejectedTopic:
    """It stays as it is; why, in words."""

    topic: str
    reason: str


SyncStep = (
    CreateMirroredTopic
    | RecreateMirroredTopic
    | AdoptTopic
    | FailBack
    | AddPartitions
    | AlterTopicConfig
    | UpdateOrigins
    | RejectedTopic
)


def target_topic_of(step: SyncStep) -> str:
    """Its name here."""
    return (
        step.topic.name
        if isinstance(step, CreateMirroredTopic | RecreateMirroredTopic | AdoptTopic | FailBack)
        else step.topic
    )


def select_topics(image: MetadataImage, link: MirrorConfig, view: SourceMetadata) -> list[SourceTopic]:
    """Of the source: those that the patterns choose, and those that are copied already."""
    copied = {topic.source_topic for topic in image.mirrored_topics.values() if topic.mirror == link.name}
    copied |= {
        one.source_topic
        for sources in image.appended_sources.values()
        for one in sources.values()
        if one.mirror == link.name
    }
    return [topic for name, topic in sorted(view.topics.items()) if name in copied or matches_topic(name, link.topics)]


def find_failback_candidates(image: MetadataImage, link: MirrorConfig, topics: Iterable[SourceTopic]) -> list[str]:
    """Those of the source's topics that are here, and are open: if the source's are copies of them they may become copies themselves."""
    here = [(topic.name, image.topics.get(link.target_topic(topic.name))) for topic in topics]
    return [name for name, topic in here if topic is not None and image.active_mirror(topic.id) is None]


def plan_identical(
    image: MetadataImage,
    link: MirrorConfig,
    view: SourceMetadata,
    configs: TopicConfigs | None,
    replication_factor: int,
    cluster_id: str,
    at_source: Mapping[str, MirroredAtSource] | None = None,
) -> Iterator[SyncStep]:
    """`configs` None: they are not kept in step. `cluster_id`: this cluster's; `at_source`: what the source says of the `candidates`."""
    for topic in select_topics(image, link, view):
        config = {} if configs is None else configs_to_sync(configs.get(topic.name, {}))
        name, origins = link.target_topic(topic.name), origins_of_copy(view.cluster_id, topic)
        wish = NewMirroredTopic(
            link.name,
            name,
            topic.name,
            topic.id,
            len(topic.leaders),
            replication_factor,
            config,
            origins,
            topic.sources,
        )
        here = image.topics.get(name)
        copy = None if here is None else image.mirrored_topics.get(here.id)
        reverse = (at_source or {}).get(topic.name)
        if here is None:
            yield RejectedTopic(name, _loop(topic)) if originates_here(cluster_id, topic) else CreateMirroredTopic(wish)
        elif reverse is not None and reverse.source_id == here.id and image.active_mirror(here.id) is None:
            yield _reversal(image, wish, here, reverse)
        elif copy is not None and copy.failed_over and (copy.mirror, copy.source_id) == (link.name, topic.id):
            stays = _loop(topic) if originates_here(cluster_id, topic) else _stays_open(image, link, wish, here, copy)
            yield RejectedTopic(name, stays) if stays else FailBack(wish, here.id)
        elif (why := _not_ours(link, copy)) is not None:
            yield RejectedTopic(name, _loop(topic) if originates_here(cluster_id, topic) else why)
        elif copy is not None and copy.source_id != topic.id and not is_topic_joined(image, here):
            yield RejectedTopic(name, "the source's topic was made anew before the two were joined: what is here stays")
        elif copy is not None and (copy.source_id != topic.id or _is_stopped(image, here)):
            if link.resyncs_on_truncation:
                yield RecreateMirroredTopic(wish, here.id)
        else:
            if len(topic.leaders) > len(here.partitions):
                yield AddPartitions(name, len(topic.leaders))
            if copy is not None and (copy.origins != origins or carried_source_records(image, here.id, topic.sources)):
                yield UpdateOrigins(name, here.id, origins, topic.sources)
            if configs is not None and (changes := _differences(image.topic_config(name), config)):
                yield AlterTopicConfig(name, changes)


def is_mirrored(image: MetadataImage, link: MirrorConfig, topic: SourceTopic) -> bool:
    """Whether what a copy of it is called here is one, and of nothing before it."""
    here = image.topics.get(link.target_topic(topic.name))
    copy = None if here is None else image.active_mirror(here.id)
    return (
        copy is not None
        and here is not None
        and ((copy.mirror, copy.source_id) == (link.name, topic.id) and not _is_stopped(image, here))
        and is_topic_joined(image, here)
    )


def configs_to_sync(configs: Mapping[str, str]) -> dict[str, str]:
    """Those that a copy takes over."""
    return {name: value for name, value in configs.items() if name in TOPIC_SETTINGS and name not in UNSYNCED_CONFIGS}


def _reversal(image: MetadataImage, wish: NewMirroredTopic, here: TopicImage, reverse: MirroredAtSource) -> SyncStep:
    if not reverse.failed_over:
        return RejectedTopic(
            wish.name,
            f"the source's topic is itself a copy of it, by mirror {reverse.mirror!r}, which has not failed over",
        )
    if why := _too_wide(wish, here) or appending_obstacle(image, here.id):
        return RejectedTopic(wish.name, why)
    return AdoptTopic(wish, here.id)


def _too_wide(wish: NewMirroredTopic, here: TopicImage) -> str:
    if wish.partitions >= len(here.partitions):
        return ""
    return f"it has {len(here.partitions)} partitions here, and {wish.partitions} at the source"


def _stays_open(
    image: MetadataImage, link: MirrorConfig, wish: NewMirroredTopic, here: TopicImage, copy: MirroredTopicRecord
) -> str:
    """Why what has failed over does not become a copy again; empty when it does."""
    if why := failback_obstacle(image, here, copy) or _too_wide(wish, here):
        return why
    if link.truncates_on_divergence:
        return ""
    return (
        "its copy has failed over, and takes records of its own; on.divergence=Truncate (onDivergence of a Mirror) makes it a copy again: "
        "what was written here since is saved to files and cut off"
    )


def _loop(topic: SourceTopic) -> str:
    return f"records of {topic.name!r} come to the source from this cluster"


def _not_ours(link: MirrorConfig, copy: MirroredTopicRecord | None) -> str | None:
    if copy is None:
        return "a topic of that name is here, and is no copy: delete it, or leave it out"
    if copy.mirror != link.name:
        return f"a topic of that name is here, and is a copy of mirror {copy.mirror!r}"
    return "its copy has failed over, and has records of its own" if copy.failed_over else None


def _is_stopped(image: MetadataImage, topic: TopicImage) -> bool:
    return any(mirrored_partition(image, topic.id, partition).stopped for partition in topic.partitions)


def _differences(here: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    gone: dict[str, str | None] = {name: None for name in here if name not in wanted and name not in UNSYNCED_CONFIGS}
    return gone | {name: value for name, value in wanted.items() if here.get(name) != value}
