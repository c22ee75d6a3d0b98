"""The copies of one mirror that this broker leads: each is fetched from the broker of the source that leads it there.

A copy is *homeless* while nobody knows where that is. What the source's metadata say of its topic decides: another id means that the topic was made
anew, and then the copy is stopped; a topic that is not there any more leaves its copy as it is.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Final

from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.mirroring.mirror_config import FetchLimits, MirrorConfig
from ottla_broker.mirroring.mirrored_partition import MirroredPartition
from ottla_broker.mirroring.source_cluster import SourceMetadata, fetch_source_metadata
from ottla_broker.mirroring.source_epochs import EpochEntries
from ottla_broker.mirroring.source_fetcher import SourceFetcher
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.throttle import Throttle
from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.message_reader import MalformedMessage

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
START_EVERY_S: Final = 1.0  # how often a log start that waits for the high watermark is looked at

Tell = Callable[[str, MirrorReport], Awaitable[None]]
"""Brings a report to the controller (with the topic's name), and returns when it is committed. KafkaError."""


class MirrorFetchers:
    """`me`: this broker."""

    def __init__(self, me: int, config: MirrorConfig, tell: Tell) -> None:
        self.link = config
        self.partitions: dict[Partition, MirroredPartition] = {}
        self.source_error = ""  # why the source cannot be reached
        self._me = me
        self._tell = tell
        self._client = config.source_client(self.client_id)
        self._fetchers: dict[int, SourceFetcher] = {}
        self._throttle = Throttle(lambda: config.fetch_limits.max_bytes_per_s, asyncio.get_running_loop().time)
        self._homeless: dict[MirroredPartition, None] = {}
        self._searched = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._spawn(self._find_homes())
        self._spawn(self._follow_starts())

    @property
    def pace(self) -> FetchLimits:
        return self.link.fetch_limits

    @property
    def secured(self) -> ClientSecurity:
        return self.link.security

    def held_back_s(self) -> float:
        return self._throttle.throttle_time_s()

    def took(self, size: int) -> None:
        self._throttle.record_bytes(size)

    @property
    def client_id(self) -> str:
        return f"mirror-{self.link.name}-{self._me}"

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (reason := task.exception()) is not None:
            logger.error("mirror %s: %s", self.link.name, reason, exc_info=reason)

    async def close(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(one.close() for one in self._fetchers.values()), return_exceptions=True)
        await self._client.close()

    # --- what is copied

    def add_partition(self, copy: MirroredPartition) -> None:
        self.partitions[copy.partition] = copy
        self._search(copy)

    def remove_partition(self, partition: Partition) -> MirroredPartition | None:
        copy = self.partitions.pop(partition, None)
        if copy is not None:
            self._homeless.pop(copy, None)
            for fetcher in self._fetchers.values():
                fetcher.forget(copy)
        return copy

    def _holds(self, copy: MirroredPartition) -> bool:
        return self.partitions.get(copy.partition) is copy and copy.is_leader

    def _search(self, copy: MirroredPartition) -> None:
        self._homeless[copy] = None
        self._searched.set()

    # --- what fetchers say

    def elsewhere(self, copy: MirroredPartition, reason: str) -> None:
        if self._holds(copy):
            self._search(copy)

    def learned(self, copy: MirroredPartition) -> None:
        self._spawn(self._write_down(copy, copy.unrecorded_epochs))

    def parted(self, copy: MirroredPartition) -> None:
        logger.error("%r is stopped: %s", copy.partition, copy.reason)
        self._spawn(self._stop(copy))

    async def _write_down(self, copy: MirroredPartition, epochs: EpochEntries) -> None:
        if await self._told(copy, epochs=epochs):
            copy.source_epochs = epochs
            self._search(copy)

    async def _stop(self, copy: MirroredPartition) -> None:
        await self._told(copy, stopped=copy.reason)

    async def _told(self, copy: MirroredPartition, *, epochs: EpochEntries | None = None, stopped: str = "") -> bool:
        """Whether the metadata say so now; tried until then, or until it is somebody else's to say."""
        partition, pause_s = copy.partition, FIRST_PAUSE_S
        report = MirrorReport(
            self._me,
            partition.topic_id,
            partition.partition,
            copy.leader_epoch,
            epochs=epochs,
            stopped=stopped,
            source_id=copy.offset_policy.source_id(copy),
        )
        while self._holds(copy):
            try:
                await self._tell(partition.topic, report)
                return self._holds(copy)
            except (KafkaError, OSError, TimeoutError) as reason:
                logger.info("%r: the controller cannot be told of its source: %s", partition, reason)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        return False

    # --- where the source's partitions are

    async def _find_homes(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await self._searched.wait()
            self._searched.clear()
            await asyncio.sleep(0)  # what comes in the same turn goes along
            try:
                self._settle(
                    await fetch_source_metadata(self._client, sorted({copy.source_topic for copy in self._homeless}))
                )
                self._now_in_trouble("")
            except (KafkaError, OSError, TimeoutError, MalformedMessage) as reason:
                self._now_in_trouble(str(reason) or type(reason).__name__)
            if not self._homeless:
                pause_s = FIRST_PAUSE_S
                continue
            self._searched.set()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _now_in_trouble(self, why: str) -> None:
        if why and not self.source_error:
            logger.warning("mirror %s: the source at %s: %s", self.link.name, self.link.bootstrap_servers, why)
        elif self.source_error and not why:
            logger.info("mirror %s: the source answers again", self.link.name)
        self.source_error = why

    def _settle(self, view: SourceMetadata) -> None:
        for copy in tuple(self._homeless):
            topic = view.topics.get(copy.source_topic)
            if not self._holds(copy):
                del self._homeless[copy]
            elif topic is None:
                if copy.source_topic in view.missing_topics and not copy.reason:
                    copy.reason = "its topic is not there any more"
                    logger.warning("%r: the source says that %s", copy.partition, copy.reason)
            elif topic.id != copy.source_id:
                del self._homeless[copy]
                copy.reason = f"the source's topic {copy.source_topic!r} was deleted and made anew"
                self.parted(copy)
            elif (address := view.brokers.get(topic.leaders.get(copy.partition.partition, -1))) is not None:
                del self._homeless[copy]
                copy.reason = ""
                self._fetcher(topic.leaders[copy.partition.partition], address).follow(copy)

    def _fetcher(self, broker: int, address: tuple[str, int]) -> SourceFetcher:
        fetcher = self._fetchers.get(broker)
        if fetcher is not None and fetcher.address != address:
            for copy in tuple(fetcher.session.followed.values()):
                fetcher.forget(copy)
                self._search(copy)
            self._spawn(fetcher.close())
            fetcher = None
        if fetcher is None:
            fetcher = self._fetchers[broker] = SourceFetcher(broker, address, self)
        return fetcher

    async def _follow_starts(self) -> None:
        """Log starts that wait for followers: where nothing else happens, nobody would look at them again."""
        while True:
            await asyncio.sleep(START_EVERY_S)
            for copy in tuple(self.partitions.values()):
                if copy.is_leader and copy.source_log_start > copy.partition.log.start:
                    with suppress(KafkaError):
                        copy.offset_policy.advance_log_start(copy)
