"""By way of which clusters a source's records come to it: what keeps a record from coming back to where it was written.

Every copy says in the metadata which clusters its records come from: its source's, and those that the source says of its own topic (DescribeConfigs of
resource type 102, `origins`). A topic whose records come from this cluster is not copied to it, whatever it is called and however many clusters lie
between. Apache Kafka keeps no such thing: what it has counts as written there.

With it comes which sources are appended to that topic there (`sources`): an identical copy holds what says how far each was copied.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.static.primitive import i8

from ottla_broker.metadata.appended_sources import CarriedSource, active_sources
from ottla_broker.metadata.image import MIRRORED_TOPIC_RESOURCE, MetadataImage
from ottla_broker.mirroring.source_cluster import SourceMetadata, SourceTopic
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError

ORIGINS: Final = "origins"
SOURCES: Final = "sources"
ASKED_AT_ONCE: Final = 200  # topics, in one request
SAYS_NONE: Final = frozenset({ErrorCode.invalid_request, ErrorCode.unsupported_version})


def originates_here(cluster_id: str, topic: SourceTopic) -> bool:
    """Whether records of this cluster would come back to it."""
    return cluster_id in topic.origins


def origins_of_copy(source_cluster: str, topic: SourceTopic) -> tuple[str, ...]:
    """Of a copy of this topic."""
    return tuple(sorted({source_cluster, *topic.origins} - {""}))


class OriginReader:
    """Asks one source. A source that is no Ottla is asked once: each such question is an error in its log."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._keeps_none = False

    async def add_origins(self, view: SourceMetadata, names: Sequence[str]) -> SourceMetadata:
        """The view, with what the source says of where these topics' records come from. OSError, TimeoutError, KafkaError."""
        found = dict(view.topics)
        for first in range(0, len(names), ASKED_AT_ONCE):
            if self._keeps_none:
                break
            told = await _told(self._client, names[first : first + ASKED_AT_ONCE])
            self._keeps_none = told is None
            for name, (origins, sources) in (told or {}).items():
                if name in found:
                    found[name] = replace(found[name], origins=origins, sources=sources)
        return replace(view, topics=found)


async def _told(
    client: Client, names: Iterable[str]
) -> dict[str, tuple[frozenset[str], tuple[CarriedSource, ...]]] | None:
    """None: the source knows no such resource."""
    resources = tuple(
        DescribeConfigsResource(
            resource_type=i8(MIRRORED_TOPIC_RESOURCE), resource_name=name, configuration_keys=(ORIGINS, SOURCES)
        )
        for name in names
    )
    answer: DescribeConfigsResponse = await client.send(DescribeConfigsRequest(resources=resources))
    found: dict[str, tuple[frozenset[str], tuple[CarriedSource, ...]]] = {}
    for result in answer.results:
        if result.error_code in SAYS_NONE:
            return None
        if result.error_code is not ErrorCode.none:
            raise KafkaError(result.error_code, f"origins of {result.resource_name!r}: {result.error_message}")
        told = {one.name: one.value or "" for one in result.configs}
        origins, sources = told.get(ORIGINS, ""), told.get(SOURCES, "") or "[]"
        if origins or told.get(SOURCES):
            found[result.resource_name] = frozenset(origins.split(",")) - {""}, _carried(result.resource_name, sources)
    return found


def _carried(topic: str, said: str) -> tuple[CarriedSource, ...]:
    try:
        return msgspec.json.decode(said, type=tuple[CarriedSource, ...])
    except msgspec.MsgspecError as reason:  # without them, copying might begin where it has been before
        raise KafkaError(
            ErrorCode.unknown_server_error, f"sources of {topic!r} are not understood: {reason}"
        ) from reason


def origin_clusters(image: MetadataImage, topic: str) -> frozenset[str]:
    """Of a topic here: from which clusters records come to it now."""
    known = image.topics.get(topic)
    if known is None:
        return frozenset()
    copy = image.active_mirror(known.id)
    fed = [source.origins for source in active_sources(image, known.id).values() if not source.stopped]
    return frozenset().union(*fed, () if copy is None else copy.origins)
