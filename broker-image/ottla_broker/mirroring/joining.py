"""What a mirror that appends needs so that its source's topics come into topics here. Pure.

Invariant: as `discovery`'s: following what this says makes it say nothing, until something changes. A topic that is there already keeps its settings and
partitions: it is this cluster's own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from ottla_broker.metadata.appended_plans import NewAppendedSource, plan_source, source_conflict, stopped_partitions
from ottla_broker.metadata.appended_sources import active_sources
from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.mirroring.mirror_config import MirrorConfig
from ottla_broker.mirroring.origins import originates_here, origins_of_copy
from ottla_broker.mirroring.source_cluster import SourceMetadata, SourceTopic
from ottla_broker.mirroring.sync_plan import RejectedTopic, TopicConfigs, configs_to_sync, select_topics


@dataclass(frozen=True, slots=True)
class AddSource:
    source: NewAppendedSource


@dataclass(frozen=True, slots=True)
class ResumeSource:
    """What stands still of a source, because that has parted from what was copied, is to go on all the same."""

    topic: str
    topic_id: UUID
    source_id: UUID


AppendStep = AddSource | ResumeSource | RejectedTopic


def plan_appended(
    image: MetadataImage,
    link: MirrorConfig,
    view: SourceMetadata,
    configs: TopicConfigs | None,
    replication_factor: int,
    cluster_id: str,
) -> Iterator[AppendStep]:
    """`configs` None: topics are made with this cluster's own. At most one `Refused` for each topic."""
    for topic in select_topics(image, link, view):
        name = link.target_topic(topic.name)
        here = image.topics.get(name)
        back = (
            f"records of {topic.name!r} come to the source from this cluster"
            if originates_here(cluster_id, topic)
            else ""
        )
        wish = NewAppendedSource(
            link.name,
            name,
            topic.name,
            topic.id,
            len(topic.leaders),
            replication_factor,
            {} if configs is None else configs_to_sync(configs.get(topic.name, {})),
            origins_of_copy(view.cluster_id, topic),
            back,
        )
        known = None if here is None else image.appended_sources.get(here.id, {}).get(topic.id)
        why = back
        if here is None or known is None or known.carried:
            if not (why := back or _may_not_begin(image, link, here, topic)):
                yield AddSource(wish)
        elif not (why := source_conflict(known, link.name)):
            why = back
            if plan_source(image, wish, here.id, known.producer_id):
                yield AddSource(wish)
            if link.resyncs_on_truncation and stopped_partitions(image, here.id, topic.id):
                yield ResumeSource(name, here.id, topic.id)
        if why := why or _too_narrow(here, topic):
            yield RejectedTopic(name, why)


def _may_not_begin(image: MetadataImage, link: MirrorConfig, here: TopicImage | None, topic: SourceTopic) -> str:
    """Why a source that is new to the topic is not appended to it."""
    if here is None:
        return ""
    if image.active_mirror(here.id) is not None:
        return "the topic here is an identical copy of another one"
    copy = image.mirrored_topics.get(here.id)
    if copy is not None and copy.source_id == topic.id:
        return "the topic here was an identical copy of it: its records would come twice"
    before = [
        one
        for one in active_sources(image, here.id).values()
        if (one.mirror, one.source_topic) == (link.name, topic.name)
    ]
    if before and not link.resyncs_on_truncation:
        return f"the source's topic {topic.name!r} was deleted and made anew"
    return ""


def _too_narrow(here: TopicImage | None, topic: SourceTopic) -> str:
    if here is None or len(here.partitions) >= len(topic.leaders):
        return ""
    return f"the source has {len(topic.leaders)} partitions, the topic here {len(here.partitions)}: the others are copied as soon as it has as many"
