"""What the active controller does for mirrors: looks at each source now and then, and makes the topics, partitions and settings that copies need.

Records are not its affair: the leaders of the copies fetch those (`filling`).
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.static.primitive import i8

from ottla_broker.config import DEFAULT_REPLICATION_FACTOR, TOPIC_SETTINGS, Config, Source
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.image import MIRROR_RESOURCE, TOPIC_RESOURCE, Changes, Image
from ottla_broker.mirroring.discovery import (
    Adopt,
    Configs,
    Configure,
    Create,
    Grow,
    Recreate,
    Refused,
    Step,
    candidates,
    is_copy,
    steps,
    synced,
    topic_of,
    wanted_topics,
)
from ottla_broker.mirroring.group_offsets import GroupOffsets
from ottla_broker.mirroring.links import Link, links
from ottla_broker.mirroring.source import look
from ottla_broker.mirroring.source_copies import copies_at
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.reading import Malformed

logger = logging.getLogger(__name__)

AGAIN_S: Final = 2.0  # after a source did not answer
DESCRIBED_AT_ONCE: Final = 200  # topics, in one request


class MirrorOffice:
    """For as long as `controller` has its office. `follow` hears of what changed in the image."""

    def __init__(self, controller: Controller, image: Image, config: Config, cluster_id: str) -> None:
        self._controller = controller
        self._image = image
        self._config = config
        self._cluster_id = cluster_id
        self._changed = asyncio.Event()
        self._said: dict[tuple[str, str], str] = {}  # what was said of a topic of a mirror, so that it is said once

    def follow(self, changes: Changes) -> None:
        if changes.mirrored or any(kind == MIRROR_RESOURCE for kind, _ in changes.configs):
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        kept: dict[Link, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                wanted = [link for link in links(self._image).values() if link.replicates]
                for link in [link for link in kept if link not in wanted]:
                    kept.pop(link).cancel()
                for link in wanted:
                    if link not in kept:
                        kept[link] = tasks.create_task(self._keep(link), name=f"mirror {link.name}")
                await self._changed.wait()

    async def _keep(self, link: Link) -> None:
        name = f"mirror-{link.name}-controller"
        addresses = self._image.addresses(self._config.inter_broker_listener)
        client, own = link.client(name), Client(addresses, client_id=name)
        groups = GroupOffsets(link.groups, client, own)
        try:
            while True:
                try:
                    copied = await self._bring_in_step(link, client)
                    if link.groups:
                        await groups.copy(copied)
                    self._say(link, "", "")
                    pause_s = link.refresh_s
                except (KafkaError, OSError, TimeoutError, Malformed) as reason:
                    self._say(link, "", f"the source at {link.bootstrap}: {reason or 'no answer in time'}")
                    pause_s = min(link.refresh_s, AGAIN_S)
                await asyncio.sleep(pause_s)
        finally:
            await client.close()
            await own.close()

    async def _bring_in_step(self, link: Link, client: Client) -> list[str]:
        """The copies that are what the source has now, by their names."""
        view = await look(client, None)
        if view.cluster_id == self._cluster_id:
            raise KafkaError(ErrorCode.invalid_config, "it is this cluster itself")
        topics = wanted_topics(self._image, link, view)
        configs = await self._configs(client, [topic.name for topic in topics]) if link.sync_configs else None
        factor = self._config(DEFAULT_REPLICATION_FACTOR)
        created: list[Create] = []
        at_source = await copies_at(client, candidates(self._image, topics))
        for step in steps(self._image, link, view, configs, factor, at_source):
            if isinstance(step, Create):
                created.append(step)
                continue
            try:
                await self._take(link, step)
            except KafkaError as reason:  # what cannot be done for one topic stops nothing for the others
                self._say(link, topic_of(step), reason.message or reason.code.name)
        if created:
            answers = await self._controller.mirrors.create([step.topic for step in created])
            for made, answer in zip(created, answers, strict=True):
                if isinstance(answer, KafkaError):
                    self._say(link, made.topic.name, answer.message or answer.code.name)
                else:
                    logger.info("mirror %s: topic %r is copied from now on", link.name, made.topic.name)
        return [topic.name for topic in topics if is_copy(self._image, link, topic)]

    async def _take(self, link: Link, step: Step) -> None:
        match step:
            case Recreate(topic, old_id):
                self._say(link, topic.name, "the source has parted from the copy, which is made anew")
                await self._controller.mirrors.recreate(topic, old_id)
            case Adopt(topic, topic_id):
                await self._controller.mirrors.adopt(topic, topic_id)
                self._say(
                    link,
                    topic.name,
                    "it becomes a copy of what was its own copy, and takes no other records from now on",
                )
            case Grow(name, count):
                await self._controller.create_partitions(name, count)
            case Configure(name, changes):
                await self._controller.alter_configs(TOPIC_RESOURCE, name, changes)
            case Refused(name, why):
                self._say(link, name, why)

    def _say(self, link: Link, topic: str, why: str) -> None:
        if self._said.get((link.name, topic), "") != why:
            self._said[link.name, topic] = why
            if why:
                logger.warning("mirror %s: %s%s", link.name, f"topic {topic!r}: " if topic else "", why)

    async def _configs(self, client: Client, names: Sequence[str]) -> Configs:
        """What was set for topics at the source, as far as it can be set here."""
        found: dict[str, dict[str, str]] = {}
        for first in range(0, len(names), DESCRIBED_AT_ONCE):
            answer: DescribeConfigsResponse = await client.ask(
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
                        if int(entry.config_source) == Source.DYNAMIC_TOPIC_CONFIG and entry.value is not None
                    }
                )
        return found

    def _possible(self, config: dict[str, str]) -> dict[str, str]:
        possible = {}
        for name, value in synced(config).items():
            try:
                self._config.check_topic({name: value})
                possible[name] = value
            except KafkaError as reason:
                logger.debug("a source's setting is left out: %s", reason)
        return possible
