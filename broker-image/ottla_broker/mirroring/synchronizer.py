"""What the active controller does for mirrors: looks at each source now and then, and makes the topics, partitions and settings that copies need.

Records are not its affair: the leaders of the copies fetch those (`filling`).
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.static.primitive import i8

from ottla_broker.config import DEFAULT_REPLICATION_FACTOR, TOPIC_SETTINGS, Config, ConfigSource
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.image import MIRROR_RESOURCE, TOPIC_RESOURCE, MetadataDelta, MetadataImage
from ottla_broker.mirroring.group_offsets import GroupOffsetSync
from ottla_broker.mirroring.joining import AddSource, ResumeSource, plan_appended
from ottla_broker.mirroring.mirror_config import MirrorConfig, mirror_configs
from ottla_broker.mirroring.origins import OriginReader
from ottla_broker.mirroring.source_cluster import SourceMetadata, fetch_source_metadata
from ottla_broker.mirroring.source_copies import fetch_mirrored_at_source
from ottla_broker.mirroring.sync_plan import (
    AddPartitions,
    AdoptTopic,
    AlterTopicConfig,
    CreateMirroredTopic,
    FailBack,
    RecreateMirroredTopic,
    RejectedTopic,
    SyncStep,
    TopicConfigs,
    UpdateOrigins,
    configs_to_sync,
    find_failback_candidates,
    is_mirrored,
    plan_identical,
    select_topics,
    target_topic_of,
)
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_reader import MalformedMessage

logger = logging.getLogger(__name__)

AGAIN_S: Final = 2.0  # after a source did not answer
DESCRIBED_AT_ONCE: Final = 200  # topics, in one request


@dataclass(frozen=True, slots=True)
class MirrorProblems:
    """In words. `source`: why it cannot be looked at, empty when it can; `refused`: by topic here, why it is not copied into."""

    source_error: str = ""
    refused_topics: Mapping[str, str] = field(default_factory=dict)


class MirrorSynchronizer:
    """For as long as `controller` has its office. `follow` hears of what changed in the image."""

    def __init__(self, controller: Controller, image: MetadataImage, config: Config, cluster_id: str) -> None:
        self._controller = controller
        self._image = image
        self._config = config
        self._cluster_id = cluster_id
        self._changed = asyncio.Event()
        self._said: dict[tuple[str, str], str] = {}  # what was said of a topic of a mirror, so that it is said once
        self._troubles: dict[str, MirrorProblems] = {}

    def problems(self, mirror: str) -> MirrorProblems:
        """As they were at the last look at its source."""
        return self._troubles.get(mirror, MirrorProblems())

    def apply_changes(self, changes: MetadataDelta) -> None:
        if changes.changed_mirrors or any(kind == MIRROR_RESOURCE for kind, _ in changes.changed_configs):
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        kept: dict[MirrorConfig, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                wanted = [link for link in mirror_configs(self._image).values() if link.is_replicating]
                for link in [link for link in kept if link not in wanted]:
                    kept.pop(link).cancel()
                    self._troubles.pop(link.name, None)
                for link in wanted:
                    if link not in kept:
                        kept[link] = tasks.create_task(self._keep(link), name=f"mirror {link.name}")
                await self._changed.wait()

    async def _keep(self, link: MirrorConfig) -> None:
        name = f"mirror-{link.name}-controller"
        addresses = self._image.broker_addresses(self._config.inter_broker_listener)
        client, own = link.source_client(name), Client(addresses, client_id=name)
        groups, tracing = GroupOffsetSync(link.groups, client, own), OriginReader(client)
        try:
            while True:
                refused: dict[str, str] = {}
                try:
                    copied = await self._bring_in_step(link, client, tracing, refused)
                    self._now_refused(link, refused)
                    if link.groups and copied:
                        await groups.sync_groups(copied)
                    self._say(link, "", "")
                    pause_s = link.metadata_max_age_s
                except (KafkaError, OSError, TimeoutError, MalformedMessage) as reason:
                    why = f"the source at {link.bootstrap_servers}: {reason or 'no answer in time'}"
                    self._say(link, "", why)
                    self._troubles[link.name] = replace(self.problems(link.name), source_error=why)
                    pause_s = min(link.metadata_max_age_s, AGAIN_S)
                await asyncio.sleep(pause_s)
        finally:
            await client.close()
            await own.close()

    async def _bring_in_step(
        self, link: MirrorConfig, client: Client, tracing: OriginReader, refused: dict[str, str]
    ) -> dict[str, str]:
        """The copies that are what the source has now: their names there → here. `refused`: is told which are not, and why."""
        view = await fetch_source_metadata(client, None)
        if view.cluster_id == self._cluster_id:
            raise KafkaError(ErrorCode.invalid_config, "it is this cluster itself")
        topics = select_topics(self._image, link, view)
        names = [topic.name for topic in topics]
        view = await tracing.add_origins(view, names)
        configs = await self._configs(client, names) if link.sync_configs else None
        factor = self._config(DEFAULT_REPLICATION_FACTOR)
        if link.appends_records:
            await self._join(link, view, configs, factor, refused)
            return {}
        created: list[CreateMirroredTopic] = []
        at_source = await fetch_mirrored_at_source(client, find_failback_candidates(self._image, link, topics))
        for step in plan_identical(self._image, link, view, configs, factor, self._cluster_id, at_source):
            if isinstance(step, CreateMirroredTopic):
                created.append(step)
                continue
            if isinstance(step, RejectedTopic):
                refused[step.topic] = step.reason
                continue
            try:
                await self._take(link, step)
            except KafkaError as reason:  # what cannot be done for one topic stops nothing for the others
                refused[target_topic_of(step)] = reason.message or reason.code.name
        if created:
            answers = await self._controller.mirror_control.create_mirrored_topics([step.topic for step in created])
            for made, answer in zip(created, answers, strict=True):
                if isinstance(answer, KafkaError):
                    refused[made.topic.name] = answer.message or answer.code.name
                else:
                    logger.info("mirror %s: topic %r is copied from now on", link.name, made.topic.name)
        return {topic.name: link.target_topic(topic.name) for topic in topics if is_mirrored(self._image, link, topic)}

    async def _join(
        self,
        link: MirrorConfig,
        view: SourceMetadata,
        configs: TopicConfigs | None,
        factor: int,
        refused: dict[str, str],
    ) -> None:
        for step in plan_appended(self._image, link, view, configs, factor, self._cluster_id):
            try:
                match step:
                    case AddSource(source):
                        await self._controller.mirror_control.add_source(source)
                        logger.info("mirror %s: %r comes into %r", link.name, source.source_topic, source.name)
                    case ResumeSource(_, topic_id, source_id):
                        await self._controller.mirror_control.resume_source(topic_id, source_id)
                    case RejectedTopic(name, why):
                        refused[name] = why
            except KafkaError as reason:
                name = step.source.name if isinstance(step, AddSource) else step.topic
                refused[name] = reason.message or reason.code.name

    def _now_refused(self, link: MirrorConfig, refused: dict[str, str]) -> None:
        for topic in self.problems(link.name).refused_topics.keys() - refused.keys():
            self._said.pop((link.name, topic), None)
        for topic, why in refused.items():
            self._say(link, topic, why)
        self._troubles[link.name] = MirrorProblems(refused_topics=refused)

    async def _take(self, link: MirrorConfig, step: SyncStep) -> None:
        match step:
            case RecreateMirroredTopic(topic, old_id):
                self._say(link, topic.name, "the source has parted from the copy, which is made anew")
                await self._controller.mirror_control.recreate_mirrored_topic(topic, old_id)
            case AdoptTopic(topic, topic_id):
                await self._controller.mirror_control.adopt_topic(topic, topic_id)
                self._say(
                    link,
                    topic.name,
                    "it becomes a copy of what was its own copy, and takes no other records from now on",
                )
            case FailBack(topic, topic_id):
                await self._controller.mirror_control.fail_back(topic, topic_id)
                self._say(
                    link,
                    topic.name,
                    "its failover is taken back, and it takes no other records than its source's from now on",
                )
            case AddPartitions(name, count):
                await self._controller.create_partitions(name, count)
            case AlterTopicConfig(name, changes):
                await self._controller.alter_configs(TOPIC_RESOURCE, name, changes)
            case UpdateOrigins(_, topic_id, origins, sources):
                await self._controller.mirror_control.update_origins(topic_id, origins, sources)

    def _say(self, link: MirrorConfig, topic: str, why: str) -> None:
        if self._said.get((link.name, topic), "") != why:
            self._said[link.name, topic] = why
            if why:
                logger.warning("mirror %s: %s%s", link.name, f"topic {topic!r}: " if topic else "", why)

    async def _configs(self, client: Client, names: Sequence[str]) -> TopicConfigs:
        """What was set for topics at the source, as far as it can be set here."""
        found: dict[str, dict[str, str]] = {}
        for first in range(0, len(names), DESCRIBED_AT_ONCE):
            answer: DescribeConfigsResponse = await client.send(
                DescribeConfigsRequest(
                    resources=tuple(
                        DescribeConfigsResource(
                            resource_type=i8(TOPIC_RESOURCE),
                            resource_name=name,
                            configuration_keys=tuple(TOPIC_SETTINGS),
                        )
                        for name in names[first : first + DESCRIBED_AT_ONCE]
                    )
                )
            )
            for result in answer.results:
                if result.error_code is not ErrorCode.none:
                    raise KafkaError(result.error_code, f"settings of {result.resource_name!r}: {result.error_message}")
                found[result.resource_name] = self._possible(
                    {
                        entry.name: entry.value
                        for entry in result.configs
                        if int(entry.config_source) == ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
                    }
                )
        return found

    def _possible(self, config: dict[str, str]) -> dict[str, str]:
        possible = {}
        for name, value in configs_to_sync(config).items():
            try:
                self._config.check_topic({name: value})
                possible[name] = value
            except KafkaError as reason:
                logger.debug("a source's setting is left out: %s", reason)
        return possible
