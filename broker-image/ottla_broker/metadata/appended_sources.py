"""The sources that are appended to a topic, as the metadata know them, and what those know of them that copy the topic. Pure."""

from collections.abc import Iterable
from uuid import UUID

import msgspec

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import AppendedSourceRecord


class CarriedSource(msgspec.Struct, frozen=True, rename="camel"):
    """What a cluster says of a source that is, or was, appended to a topic, to those that copy that topic."""

    source_id: UUID
    mirror: str
    source_topic: str
    producer_id: int
    partitions: int


def active_sources(image: MetadataImage, topic_id: UUID) -> dict[UUID, AppendedSourceRecord]:
    """The sources of a topic that have not ended, by id."""
    return {key: source for key, source in image.appended_sources.get(topic_id, {}).items() if not source.ended}


def describe_sources(image: MetadataImage, topic_id: UUID) -> list[CarriedSource]:
    """For those that copy the topic."""
    return [
        CarriedSource(source.source_id, source.mirror, source.source_topic, source.producer_id, source.partitions)
        for _, source in sorted(image.appended_sources.get(topic_id, {}).items())
    ]


def carried_source_records(
    image: MetadataImage, topic_id: UUID, sources: Iterable[CarriedSource]
) -> list[AppendedSourceRecord]:
    """What an identical copy knows by now of the sources of the topic that it is a copy of; those of them that are new."""
    known = image.appended_sources.get(topic_id, {})
    found = (
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
    return [source for source in found if known.get(source.source_id) != source]


def retained_sources(image: MetadataImage, topic_id: UUID) -> list[AppendedSourceRecord]:
    """Sources of which an open topic must not forget how far they were copied."""
    if image.active_mirror(topic_id) is not None:
        return []
    return [
        source for source in image.appended_sources.get(topic_id, {}).values() if not source.ended or source.carried
    ]


def appending_obstacle(image: MetadataImage, topic_id: UUID) -> str:
    """Why a topic cannot become an identical copy: other sources are appended to it; empty when none is."""
    sources = active_sources(image, topic_id)
    if not sources:
        return ""
    mirrors = ", ".join(sorted({repr(source.mirror) for source in sources.values()}))
    return f"records are appended to it by mirror {mirrors}: that has to end first, by its role FailedOver"
