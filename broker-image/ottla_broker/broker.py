"""A broker put together: its log directories, its metadata, its partitions and coordinators, and the order in which they come and go.

Start: log directories → register → metadata log → image → registration → partitions → coordinators. Stop is the reverse. Sockets are
not here: `server` serves a broker that has started.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from uuid import UUID

from ottla_broker.config import (
    Config,
)
from ottla_broker.coordination.auto_topics import AutoTopics
from ottla_broker.coordination.groups import GroupCoordinator
from ottla_broker.coordination.offsets_topic import OFFSETS_TOPIC
from ottla_broker.coordination.producer_ids import ProducerIds, producer_id_block
from ottla_broker.coordination.settings import GroupSettings
from ottla_broker.log.disk import Disk, OsDisk
from ottla_broker.log.log_dir import LogDir
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.controller_link import ControllerLink
from ottla_broker.metadata.image import BROKER_RESOURCE, Changes, Image
from ottla_broker.metadata.image_watch import ImageWatch
from ottla_broker.metadata.leadership import take_lead
from ottla_broker.metadata.lifecycle import Lifecycle
from ottla_broker.metadata.log import MetadataLog
from ottla_broker.metadata.records import METADATA_TOPIC, Endpoint
from ottla_broker.metadata.register import Member, Register
from ottla_broker.replication.care import LogCare
from ottla_broker.replication.hosting import Hosting
from ottla_broker.replication.journal import PartitionJournal
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

METADATA_TOPIC_ID = UUID(int=1)  # the id that Kafka reserves for its own metadata topic


class Broker:
    """Everything that a request may need. Public attributes are the rooms; handlers call those."""

    producer_ids: ProducerIds
    lifecycle: Lifecycle

    def __init__(
        self, config: Config, register: Register, *, runtime: Runtime | None = None, disk: Disk | None = None
    ) -> None:
        self.config = config
        self.runtime = runtime or Runtime()
        self.node_id = config.node_id
        self.cluster_id = ""
        self.image = Image()
        self.partitions = Partitions(self.image)
        self.directories: list[LogDir] = []
        self.controller: Controller | None = None  # while this broker is the active controller
        self.to_controller = ControllerLink(self, f"broker-{self.node_id}")
        self.image_watch = ImageWatch()
        self._auto_topics = AutoTopics(config, self.image, self.image_watch, self.to_controller)
        self.ready = False
        self.trouble: list[str] = []  # what went wrong and cannot mend itself; it turns readiness red
        self._disk: Disk = disk or OsDisk()
        self._register = register
        self._background: dict[asyncio.Task[None], None] = {}  # in the order of their beginning
        self._hosting = Hosting(
            self.node_id,
            self.image,
            self.partitions,
            self.directories,
            self.runtime,
            self.config.log_config,
            led=self._led,
            lost=self._lost,
        )
        self.groups = GroupCoordinator(self.runtime, GroupSettings.of(config), self._offsets_partitions)

    async def start(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Brings everything up to where requests can be answered. `endpoints`: how clients reach each listener.

        Raises KafkaError or LogDirError with a sentence for people when it cannot.
        """
        self._attach_directories()
        self._care = LogCare(self.directories, self.config)
        metadata = await self._lead_metadata()
        metadata.replay()
        first_start = self.image.end == 0
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self._configure_broker()
        self._load_directories(first_start=first_start)
        if not first_start:
            self._hosting.set_strays_aside()
        self._follow_everything()
        await self._enter(endpoints)
        if first_start:
            await self._take_in_orphans()
        self._spawn(self._care.run())
        self.ready = True

    async def _enter(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Registers, and waits until the controller has heard that this broker lives."""
        self.lifecycle = Lifecycle(
            self.config,
            self.runtime.new_uuid(),
            self.image,
            self.to_controller,
            self.directories,
            hears_majority=self._hears_majority,
            replaced=self.trouble.append,
        )
        await self.lifecycle.register(self.cluster_id, endpoints)
        self._spawn(self.lifecycle.run())
        await self.lifecycle.unfenced()

    def _hears_majority(self, within_s: float) -> bool | None:
        return None if self.controller is None else self.controller.hears_majority(within_s)

    @property
    def leads(self) -> bool:
        """Whether this broker is the active controller."""
        return self.controller is not None

    def leader_address(self) -> tuple[str, int] | None:
        return None

    def active_controller(self) -> Controller:
        """NOT_CONTROLLER when another broker is."""
        if self.controller is None:
            raise KafkaError(ErrorCode.not_controller, "another broker is the controller")
        return self.controller

    async def _allocate_producer_ids(self) -> range:
        return await producer_id_block(self.to_controller, self.node_id, self.lifecycle.epoch)

    async def _take_in_orphans(self) -> None:
        if orphans := self._hosting.orphans():
            logger.info("taking in the topics found in the log directories: %s", ", ".join(sorted(orphans)))
            await self.active_controller().adopt(self.node_id, orphans)
            for partition in self.partitions:
                if partition.topic in orphans:
                    await partition.log.flush.checkpoint()  # ours from here on: no later recovery looks below
        self._hosting.set_strays_aside()

    async def stop(self) -> None:
        """A clean stop: coordinators rest, logs are flushed, the clean-shutdown marker is written."""
        self.ready = False
        self.groups.close()
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self.to_controller.close()
        for directory in self.directories:
            await directory.close()
        await self._register.close()

    async def leave(self) -> None:
        """Before a stop, while everything is still served: others take over what this broker leads."""
        if self.ready:
            await self.lifecycle.leave()

    async def auto_create(self, name: str, *, allowed: bool = True) -> None:
        """Creates a topic that a client spoke of, where that is wanted. UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION."""
        await self._auto_topics.create(name, allowed=allowed)

    def _offsets_partitions(self) -> int:
        topic = self.image.topics.get(OFFSETS_TOPIC)
        return len(topic.partitions) if topic else 0

    def _attach_directories(self) -> None:
        for path in self.config.log_dirs:
            self.directories.append(
                LogDir.attach(path, disk=self._disk, runtime=self.runtime, node_id=self.node_id, cluster_id=None)
            )

    def _load_directories(self, *, first_start: bool) -> None:
        """After the metadata are known: a log's recovery depends on its topic's settings. What a first start finds was written by somebody
        else, and may have the holes that compaction leaves."""
        foreign = {"cleanup.policy": "compact"} if first_start else {}
        for directory in self.directories:
            directory.load(lambda topic: self.config.log_config(foreign | self.image.topic_config(topic)))

    async def _lead_metadata(self) -> MetadataLog:
        home = self.directories[0]
        home.load(lambda _: self.config.log_config({}), only=METADATA_TOPIC)
        log = home.logs.get((METADATA_TOPIC, 0))
        if log is None:
            log = home.create(METADATA_TOPIC, 0, METADATA_TOPIC_ID, self.config.log_config({}))
        value = await take_lead(self._register, self.runtime, Member(self.node_id, home.directory_id), home.cluster_id)
        self.cluster_id = value.cluster_id
        for directory in self.directories:
            directory.set_cluster_id(value.cluster_id)
        self.image.controller_id = value.leader
        log.epochs.assign(value.epoch, log.end)
        metadata = MetadataLog(log, self.image, self.runtime, value.epoch, self._follow)
        self.controller = Controller(self.image, metadata, self.runtime, self.config, self.node_id)
        self._spawn(self.controller.run())
        return metadata

    def _follow(self, changes: Changes) -> None:
        self._hosting.follow(changes)
        self.image_watch.changed()
        if changes.removed:
            self._spawn(self.groups.topics_deleted({topic.name: topic.id for topic in changes.removed}))
        if any(resource_type == BROKER_RESOURCE for resource_type, _ in changes.configs):
            self._configure_broker()
            self._hosting.reconfigure(self.image.topics)

    def _follow_everything(self) -> None:
        """What a restart finds in the image is treated as if it had just been said."""
        self._hosting.follow(
            Changes(
                created=list(self.image.topics),
                partitions={(name, p) for name, topic in self.image.topics.items() for p in topic.partitions},
            )
        )

    def _configure_broker(self) -> None:
        self.config.set_dynamic(
            cluster=self.image.configs.get((BROKER_RESOURCE, ""), {}),
            broker=self.image.configs.get((BROKER_RESOURCE, str(self.node_id)), {}),
        )

    def _led(self, partition: Partition) -> None:
        if partition.topic == OFFSETS_TOPIC:
            self._spawn(self.groups.load(partition.partition, PartitionJournal(partition)))

    def _lost(self, partition: Partition) -> None:
        if partition.topic == OFFSETS_TOPIC:
            self.groups.unload(partition.partition)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._background[task]
        if not task.cancelled() and (reason := task.exception()) is not None:
            logger.error("background work ended: %s", reason, exc_info=reason)
            self.trouble.append(f"background work ended: {reason!r}")
