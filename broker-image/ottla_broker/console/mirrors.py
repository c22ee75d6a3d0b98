"""The pages of mirrors: the list, and one mirror with its topics and a failover's checklist."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config import MIRROR_ROLE
from ottla_broker.console.cluster_requests import (
    ClusterRequests,
    Failures,
    build_describe_configs,
    merge_failures,
    sum_known,
)
from ottla_broker.console.mirror_description import (
    CopiedPartition,
    MirroredTopic,
    ReportedMirrorProblems,
    check_failover,
)
from ottla_broker.console.requests import PageError, PageRequest
from ottla_broker.metadata.image import MIRROR_RESOURCE, MIRRORED_TOPIC_RESOURCE, MetadataImage
from ottla_broker.mirroring.mirror_config import mirror_config, mirror_configs
from ottla_broker.requests.mirror_status import REJECTED_TOPICS, SOURCE_ERROR, TARGET_ERROR, PartitionStatus
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import KafkaError, describe_os_error

MAX_PARTITIONS: Final = 1000
"""Partitions with a problem that are shown."""
PROBLEM_STATES: Final = ("Stopped", "Diverged", "Unreachable", "Unreported")


@dataclass(frozen=True, slots=True)
class MirrorRow:
    name: str
    source: str
    role: str
    topics: int


class MirrorPages:
    """Users need DESCRIBE_CONFIGS on the cluster, as for a mirror's configs, and see the topics on
    which they have DESCRIBE_CONFIGS.
    """

    def __init__(self, broker: Broker, requests: ClusterRequests) -> None:
        self._broker = broker
        self._requests = requests

    async def show_list(self, page: PageRequest) -> web.Response:
        check_authorized(page)
        image = self._broker.image
        rows = [
            MirrorRow(name, config.bootstrap_servers, config.role, len(dict(iter_mirrored_topics(image, name))))
            for name, config in sorted(mirror_configs(image).items())
        ]
        return page.render("mirrors.html", mirrors=rows)

    async def show_mirror(self, page: PageRequest) -> web.Response:
        check_authorized(page)
        name = page.http.query.get("name", "")
        config = mirror_config(self._broker.image, name)
        if config is None:
            raise PageError(404, f"There is no mirror {name!r}.")
        (topics, failures), problems = await asyncio.gather(self._find_topics(page, name), self._find_problems(name))
        partitions = [one for topic in topics for one in topic.partitions]
        return page.render(
            "mirror_parts.html" if page.wants_fragment else "mirror.html",
            config=config,
            role_setting=MIRROR_ROLE.name,
            topics=topics,
            lag=sum_known(topic.lag for topic in topics),
            problem_states=PROBLEM_STATES,
            problems=problems,
            partitions=[one for one in partitions if one.state in PROBLEM_STATES][:MAX_PARTITIONS],
            checks=list(check_failover(config, topics, problems)),
            failures=merge_failures(failures),
        )

    async def _find_topics(self, page: PageRequest, mirror: str) -> tuple[list[MirroredTopic], Failures]:
        """The mirrored topics that the user may see, with the statuses that the brokers report."""
        image = self._broker.image
        named = {
            topic: source
            for topic, source in iter_mirrored_topics(image, mirror)
            if page.user.may(Operation.describe_configs, Resource.topic(topic))
        }
        request = build_describe_configs(MIRRORED_TOPIC_RESOURCE, named)
        brokers = [one.id for one in image.unfenced_brokers()] if named else []
        responses = await self._requests.send_to_brokers(dict.fromkeys(brokers, request))
        reported: dict[str, dict[int, PartitionStatus]] = defaultdict(dict)
        for response in responses.by_broker.values():
            for result in response.results:
                entries = {str(one.name): one.value or "" for one in result.configs}
                reported[result.resource_name] |= read_statuses(entries, mirror)
        found = [
            MirroredTopic(
                topic,
                source,
                [
                    CopiedPartition(topic, index, reported[topic].get(index))
                    for index in sorted(image.topics[topic].partitions)
                ],
            )
            for topic, source in sorted(named.items())
            if topic in image.topics
        ]
        return found, responses.failures

    async def _find_problems(self, mirror: str) -> ReportedMirrorProblems:
        try:
            result = await self._requests.describe_at_controller(MIRROR_RESOURCE, mirror)
        except (KafkaError, OSError) as reason:
            return ReportedMirrorProblems(
                failure=describe_os_error(reason) if isinstance(reason, OSError) else str(reason)
            )
        entries = {str(one.name): one.value or "" for one in result.configs}
        refused = entries.get(REJECTED_TOPICS, "")
        return ReportedMirrorProblems(
            entries.get(SOURCE_ERROR, ""),
            msgspec.json.decode(refused, type=dict[str, str]) if refused else {},
            target_error=entries.get(TARGET_ERROR, ""),
        )


def check_authorized(page: PageRequest) -> None:
    """Raises CLUSTER_AUTHORIZATION_FAILED for users who may not see mirrors."""
    page.user.check(Operation.describe_configs, CLUSTER, ApiKey.DESCRIBE_CONFIGS)


def iter_mirrored_topics(image: MetadataImage, mirror: str) -> Iterator[tuple[str, str]]:
    """The topics that a mirror copies into, each with its name at the source."""
    for id_, mirrored in image.mirrored_topics.items():
        if mirrored.mirror == mirror:
            yield image.topic_names[id_], mirrored.source_topic
    for id_, sources in image.appended_sources.items():
        for source in sources.values():
            if source.mirror == mirror and not source.carried:
                yield image.topic_names[id_], source.source_topic


def read_statuses(entries: dict[str, str], mirror: str) -> dict[int, PartitionStatus]:
    """The statuses of the partitions that a broker leads, by index. `entries`: the broker's
    description of a mirrored topic (`requests.mirror_status`).
    """
    own = {key.removeprefix(f"{mirror}/"): text for key, text in entries.items() if key.startswith(f"{mirror}/")}
    if entries.get("mirror") == mirror:
        own = entries
    return {int(key): msgspec.json.decode(text, type=PartitionStatus) for key, text in own.items() if key.isdecimal()}
