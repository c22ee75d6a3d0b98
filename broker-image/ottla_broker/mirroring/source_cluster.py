"""Where a source's partitions are led, as its brokers tell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName

from ottla_broker.metadata.appended_sources import CarriedSource
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """`leaders`: partition → broker, −1 where nobody leads. `origins`: ids of the clusters from which its records come to the source; `sources`: that are
    appended to it there."""

    name: str
    id: UUID
    leaders: Mapping[int, int]
    origins: frozenset[str] = frozenset()
    sources: tuple[CarriedSource, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceMetadata:
    """Topics by name; `gone`: those asked for that are not there. Brokers by id."""

    cluster_id: str
    brokers: Mapping[int, tuple[str, int]]
    topics: Mapping[str, SourceTopic]
    missing_topics: frozenset[str]


async def fetch_source_metadata(client: Client, names: Iterable[str] | None) -> SourceMetadata:
    """`names` None: all topics. Topics that cannot be told of just now are left out. OSError, TimeoutError, KafkaError."""
    named = None if names is None else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(one)) for one in names)
    answer: MetadataResponse = await client.send(
        MetadataRequest(topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    )
    return SourceMetadata(
        answer.cluster_id or "",
        {int(one.node_id): (one.host, int(one.port)) for one in answer.brokers},
        {
            str(topic.name): SourceTopic(
                str(topic.name),
                topic.topic_id,
                {int(one.partition_index): int(one.leader_id) for one in topic.partitions},
            )
            for topic in answer.topics
            if topic.error_code is ErrorCode.none and topic.topic_id is not None
        },
        frozenset(
            str(topic.name) for topic in answer.topics if topic.error_code is ErrorCode.unknown_topic_or_partition
        ),
    )
