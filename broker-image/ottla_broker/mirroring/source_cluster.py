"""Requests of a mirror to its source cluster: topics and leaders, topic settings, origins, and how
the source mirrors topics of this cluster.

An Ottla source describes its mirrored topics by DescribeConfigs of resource type 102
(`requests.mirror_status`). Apache Kafka does not know that resource type: its topics count as
written there.

A mirrored topic's *origins* are the ids of the clusters in which its records were written: the
source cluster, and the origins that the source reports of its own topic. A topic with records from
this cluster is not mirrored back to it, whatever its name and however many clusters lie between.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import msgspec
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse, DescribeConfigsResult
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8

from ottla_broker.metadata.appended_sources import AppendedSourceDescription, active_sources
from ottla_broker.metadata.image import MIRRORED_TOPIC_RESOURCE, MetadataImage
from ottla_broker.mirroring.source_epochs import EpochHistory
from ottla_broker.runtime import uuid_from_text, uuid_text
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError

# Entries of DescribeConfigs for resource type 102.
MIRROR: Final = "mirror"
SOURCE_TOPIC: Final = "source.topic"
SOURCE_ID: Final = "source.topic.id"
FAILED_OVER: Final = "failed.over"
ORIGINS: Final = "origins"
SOURCES: Final = "sources"

MAX_RESOURCES_PER_REQUEST: Final = 200
UNKNOWN_RESOURCE_ERRORS: Final = frozenset({ErrorCode.invalid_request, ErrorCode.unsupported_version})


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic of the source. `leaders`: partition → broker id, −1 without a leader.

    `origins`: those that the source reports. `sources`: sources that are appended to the topic
    there.
    """

    name: str
    id: UUID
    leaders: Mapping[int, int]
    origins: frozenset[str] = frozenset()
    sources: tuple[AppendedSourceDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceMetadata:
    """Brokers by id, topics by name. `missing_topics` were asked for and do not exist."""

    cluster_id: str
    brokers: Mapping[int, tuple[str, int]]
    topics: Mapping[str, SourceTopic]
    missing_topics: frozenset[str]

    def origins(self, topic: SourceTopic) -> tuple[str, ...]:
        """Origins of a topic that is mirrored from `topic`."""
        return tuple(sorted({self.cluster_id, *topic.origins} - {""}))


@dataclass(frozen=True, slots=True)
class MirroredAtSource:
    """A topic of the source that mirrors this cluster's topic `source_id`, or did until it failed
    over.

    `mirror`: name of the mirror there.
    """

    mirror: str
    source_id: UUID
    failed_over: bool


async def fetch_source_metadata(client: Client, names: Iterable[str] | None) -> SourceMetadata:
    """`names` None: all topics. Topics with an error other than UNKNOWN_TOPIC_OR_PARTITION are in
    neither `topics` nor `missing_topics`.

    Raises OSError, TimeoutError, KafkaError.
    """
    named = None if names is None else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(it)) for it in names)
    response: MetadataResponse = await client.send(
        MetadataRequest(topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    )
    topics, missing = dict[str, SourceTopic](), set[str]()
    for topic in response.topics:
        name = str(topic.name)
        if topic.error_code is ErrorCode.unknown_topic_or_partition:
            missing.add(name)
        elif topic.error_code is ErrorCode.none and topic.topic_id is not None:
            leaders = {int(it.partition_index): int(it.leader_id) for it in topic.partitions}
            topics[name] = SourceTopic(name, topic.topic_id, leaders)
    brokers = {int(it.node_id): (it.host, int(it.port)) for it in response.brokers}
    return SourceMetadata(response.cluster_id or "", brokers, topics, frozenset(missing))


async def describe_resources(
    client: Client, resource_type: int, names: Sequence[str], keys: tuple[str, ...]
) -> AsyncGenerator[DescribeConfigsResult, None]:
    """Describes the configs `keys` of the named resources of one type, in requests of bounded size.
    They are topics, or users (`credential_sync`). Results may have error codes.

    Raises OSError, TimeoutError, KafkaError.
    """
    for first in range(0, len(names), MAX_RESOURCES_PER_REQUEST):
        resources = tuple(
            DescribeConfigsResource(resource_type=i8(resource_type), resource_name=name, configuration_keys=keys)
            for name in names[first : first + MAX_RESOURCES_PER_REQUEST]
        )
        response: DescribeConfigsResponse = await client.send(DescribeConfigsRequest(resources=resources))
        for result in response.results:
            yield result


# --- origins


def origin_clusters(image: MetadataImage, topic: str) -> frozenset[str]:
    """Origins of a topic here: the ids of the clusters whose records mirrors copy to it now."""
    known = image.topics.get(topic)
    if known is None:
        return frozenset()
    mirrored = image.active_mirror(known.id)
    appended = [source.origins for source in active_sources(image, known.id).values() if not source.stopped]
    return frozenset().union(*appended, () if mirrored is None else mirrored.origins)


class OriginReader:
    """Reads origins from one source.

    A source that is no Ottla cluster is asked once: each request is an error in its log.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._is_unsupported = False

    async def add_origins(self, source: SourceMetadata, names: Sequence[str]) -> SourceMetadata:
        """`source` with the origins and sources of these topics; as it is if the source reports
        none.

        Raises OSError, TimeoutError, KafkaError.
        """
        topics = dict(source.topics)
        if self._is_unsupported:
            return source
        described = describe_resources(self._client, MIRRORED_TOPIC_RESOURCE, names, (ORIGINS, SOURCES))
        async with aclosing(described) as results:
            async for result in results:
                if result.error_code in UNKNOWN_RESOURCE_ERRORS:
                    self._is_unsupported = True
                    break
                name = result.resource_name
                raise_for_error(result.error_code, f"origins of {name!r}: {result.error_message}")
                values = {entry.name: entry.value or "" for entry in result.configs}
                origins, sources = values.get(ORIGINS, ""), values.get(SOURCES, "")
                if name in topics and (origins or sources):
                    found = frozenset(origins.split(",")) - {""}
                    topics[name] = replace(topics[name], origins=found, sources=_parse_sources(name, sources or "[]"))
        return replace(source, topics=topics)


def _parse_sources(topic: str, text: str) -> tuple[AppendedSourceDescription, ...]:
    try:
        return msgspec.json.decode(text, type=tuple[AppendedSourceDescription, ...])
    except msgspec.MsgspecError as reason:  # without them, a source could be appended a second time
        message = f"cannot parse the sources of topic {topic!r}: {reason}"
        raise KafkaError(ErrorCode.unknown_server_error, message) from reason


# --- topics of the source that mirror topics of this cluster


def epoch_history_key(partition: int) -> str:
    return f"{partition}.lineage"


def describe_mirrored_topic(mirror: str, source_topic: str, source_id: UUID, *, failed_over: bool) -> dict[str, str]:
    """Entries that describe a mirrored topic to its source, which reads them by
    `fetch_mirrored_at_source`.
    """
    return {
        FAILED_OVER: str(failed_over).lower(),
        MIRROR: mirror,
        SOURCE_TOPIC: source_topic,
        SOURCE_ID: uuid_text(source_id),
    }


async def fetch_mirrored_at_source(client: Client, names: Sequence[str]) -> dict[str, MirroredAtSource]:
    """The named topics that are mirrored topics at the source, by name.

    Raises OSError, TimeoutError, KafkaError.
    """
    found, keys = dict[str, MirroredAtSource](), (MIRROR, SOURCE_ID, FAILED_OVER)
    async for result in describe_resources(client, MIRRORED_TOPIC_RESOURCE, names, keys):
        values = {entry.name: entry.value or "" for entry in result.configs}
        if result.error_code is ErrorCode.none and values.keys() >= set(keys):
            with suppress(ValueError):  # an invalid id
                source_id, failed_over = uuid_from_text(values[SOURCE_ID]), values[FAILED_OVER] == "true"
                found[result.resource_name] = MirroredAtSource(values[MIRROR], source_id, failed_over)
    return found


async def fetch_epoch_history(client: Client, topic: str, partition: int) -> EpochHistory | None:
    """The epoch history of a partition of the source, from its leader; None if it reports none.

    Raises OSError, TimeoutError, KafkaError.
    """
    # Refreshes the leader: another broker reports none, and that would look the same.
    await client.metadata([topic])
    resource = DescribeConfigsResource(
        resource_type=i8(MIRRORED_TOPIC_RESOURCE),
        resource_name=topic,
        configuration_keys=(epoch_history_key(partition),),
    )
    response = await client.send_to_leader(topic, partition, DescribeConfigsRequest(resources=(resource,)))
    (result,) = response.results
    if result.error_code is not ErrorCode.none:
        return None
    try:
        return next((msgspec.json.decode(entry.value or "", type=EpochHistory) for entry in result.configs), None)
    except msgspec.MsgspecError:
        return None
