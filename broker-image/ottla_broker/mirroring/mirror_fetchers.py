"""The partitions of one mirror that this broker leads: each is assigned to the fetcher of the
source broker that leads it there.

A partition is *unassigned* while its source leader is unknown. The source's metadata decide:
another topic id means that the topic was deleted and created again, and the partition stops as
diverged. A topic that the source has deleted leaves its mirrored partitions as they are.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.mirroring.mirror_config import MirrorConfig
from ottla_broker.mirroring.mirrored_partition import MirroredPartition, SendReport
from ottla_broker.mirroring.source_cluster import SourceMetadata, fetch_source_metadata
from ottla_broker.mirroring.source_epochs import EpochEntries
from ottla_broker.mirroring.source_fetcher import SourceFetcher
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.throttle import Throttle
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

FIRST_RETRY_PAUSE_S: Final = 0.05
MAX_RETRY_PAUSE_S: Final = 2.0
LOG_START_CHECK_INTERVAL_S: Final = 1.0


class MirrorFetchers:
    """Assigns the mirrored partitions that this broker leads to fetchers, and reports to the
    controller the source's leader epochs and the partitions that stop. `source_error`: why the
    source cannot be reached; empty if it can.
    """

    def __init__(self, broker_id: int, config: MirrorConfig, send_report: SendReport) -> None:
        self.config = config
        self.partitions: dict[Partition, MirroredPartition] = {}
        self.source_error = ""
        self._broker_id = broker_id
        self._send_report = send_report
        self._client = config.source_client(self.client_id)
        self._fetchers: dict[int, SourceFetcher] = {}
        self._loop = asyncio.get_running_loop()
        self.throttle = Throttle(lambda: config.fetch_limits.max_bytes_per_s, self._loop.time)
        self._unassigned: dict[MirroredPartition, None] = {}
        self._has_unassigned = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._tasks.start(self._assign_partitions())
        self._tasks.start(self._advance_log_starts())

    @property
    def client_id(self) -> str:
        return f"mirror-{self.config.name}-{self._broker_id}"

    def add_partition(self, mirrored: MirroredPartition) -> None:
        self.partitions[mirrored.partition] = mirrored
        self._unassign(mirrored)

    def remove_partition(self, partition: Partition) -> MirroredPartition | None:
        mirrored = self.partitions.pop(partition, None)
        if mirrored is not None:
            self._unassigned.pop(mirrored, None)
            for fetcher in self._fetchers.values():
                fetcher.remove_partition(mirrored)
        return mirrored

    async def close(self) -> None:
        fetchers = self._fetchers.values()
        await asyncio.gather(self._tasks.cancel(), *(it.close() for it in fetchers), return_exceptions=True)
        await self._client.close()

    def _is_current(self, mirrored: MirroredPartition) -> bool:
        return self.partitions.get(mirrored.partition) is mirrored and mirrored.is_leader

    def _unassign(self, mirrored: MirroredPartition) -> None:
        self._unassigned[mirrored] = None
        self._has_unassigned.set()

    # --- called by the fetchers

    def reassign_partition(self, mirrored: MirroredPartition) -> None:
        if self._is_current(mirrored):
            self._unassign(mirrored)

    def record_epochs(self, mirrored: MirroredPartition) -> None:
        self._tasks.start(self._record_epochs(mirrored, mirrored.unrecorded_epochs))

    def stop_partition(self, mirrored: MirroredPartition) -> None:
        logger.error("%r: mirroring stopped: %s", mirrored.partition, mirrored.reason)
        self._tasks.start(self._record_stop(mirrored))

    # --- reports to the controller

    async def _record_epochs(self, mirrored: MirroredPartition, epochs: EpochEntries) -> None:
        if await self._report(mirrored, epochs=epochs):
            mirrored.source_epochs = epochs
            self._unassign(mirrored)

    async def _record_stop(self, mirrored: MirroredPartition) -> None:
        await self._report(mirrored, stopped=mirrored.reason)

    async def _report(
        self, mirrored: MirroredPartition, *, epochs: EpochEntries | None = None, stopped: str = ""
    ) -> bool:
        """Retries until the report is committed.

        Returns False if this broker's leader epoch is over.
        """
        partition, pause_s = mirrored.partition, FIRST_RETRY_PAUSE_S
        report = MirrorReport(
            self._broker_id,
            partition.topic_id,
            partition.partition,
            mirrored.leader_epoch,
            epochs=epochs,
            stopped=stopped,
            source_id=mirrored.offset_policy.source_id(mirrored),
        )
        while self._is_current(mirrored):
            try:
                await self._send_report(partition.topic, report)
                return self._is_current(mirrored)
            except (KafkaError, OSError, TimeoutError) as reason:
                logger.info("%r: cannot report the state of its source to the controller: %s", partition, reason)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_RETRY_PAUSE_S)
        return False

    # --- leaders of the source's partitions

    async def _assign_partitions(self) -> None:
        """Assigns partitions whenever some are unassigned, until cancelled."""
        pause_s = FIRST_RETRY_PAUSE_S
        while True:
            await self._has_unassigned.wait()
            self._has_unassigned.clear()
            await asyncio.sleep(0)  # partitions that are added in the same loop iteration are asked for together
            try:
                topics = sorted({mirrored.source_topic for mirrored in self._unassigned})
                self._assign(await fetch_source_metadata(self._client, topics))
                self._set_source_error("")
            except (KafkaError, OSError, TimeoutError) as reason:
                self._set_source_error(str(reason) or type(reason).__name__)
            if not self._unassigned:
                pause_s = FIRST_RETRY_PAUSE_S
                continue
            self._has_unassigned.set()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_RETRY_PAUSE_S)

    def _set_source_error(self, error: str) -> None:
        """Logs the error when it begins and when it ends."""
        if error and not self.source_error:
            logger.warning(
                "mirror %s: cannot reach the source at %s: %s", self.config.name, self.config.bootstrap_servers, error
            )
        elif self.source_error and not error:
            logger.info("mirror %s: the source is reachable again", self.config.name)
        self.source_error = error

    def _assign(self, source: SourceMetadata) -> None:
        """Assigns the unassigned partitions that have a leader at the source. Stops those whose
        topic there was created again.
        """
        for mirrored in tuple(self._unassigned):
            topic = source.topics.get(mirrored.source_topic)
            if not self._is_current(mirrored):
                del self._unassigned[mirrored]
            elif topic is None:
                if mirrored.source_topic in source.missing_topics and not mirrored.reason:
                    mirrored.reason = "the source's topic no longer exists"
                    logger.warning("%r: %s", mirrored.partition, mirrored.reason)
            elif topic.id != mirrored.source_id:
                del self._unassigned[mirrored]
                mirrored.reason = f"the source's topic {mirrored.source_topic!r} was deleted and created again"
                self.stop_partition(mirrored)
            else:
                leader = topic.leaders.get(mirrored.partition.partition, -1)
                if (address := source.brokers.get(leader)) is not None:
                    del self._unassigned[mirrored]
                    mirrored.reason = ""
                    self._fetcher(leader, address).add_partition(mirrored)

    def _fetcher(self, broker: int, address: tuple[str, int]) -> SourceFetcher:
        """The fetcher of a broker of the source; a new one if the broker's address has changed."""
        fetcher = self._fetchers.get(broker)
        if fetcher is not None and fetcher.address != address:
            for mirrored in tuple(fetcher.fetcher.session):
                fetcher.remove_partition(mirrored)
                self._unassign(mirrored)
            self._tasks.start(fetcher.close())
            fetcher = None
        if fetcher is None:
            fetcher = self._fetchers[broker] = SourceFetcher(broker, address, self)
        return fetcher

    async def _advance_log_starts(self) -> None:
        """Advances log starts that waited for the high watermark.

        A quiet partition gets no response that would do it.
        """
        while True:
            await asyncio.sleep(LOG_START_CHECK_INTERVAL_S)
            for mirrored in tuple(self.partitions.values()):
                if mirrored.is_leader and mirrored.source_log_start > mirrored.partition.log.start:
                    with suppress(KafkaError):
                        mirrored.offset_policy.advance_log_start(mirrored)
