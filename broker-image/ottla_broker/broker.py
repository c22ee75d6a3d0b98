"""A broker put together: its log directories, its metadata, its partitions and coordinators, and the order in which they come and go.

Start: log directories → the metadata log's quorum → image → partitions → registration → coordinators. Stop is the reverse. Sockets are
not here: `server` serves other brokers from before the start, which needs their answers, and clients when the broker is ready.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from ottla_broker.config import (
    METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS,
    METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS,
    METADATA_LOG_SEGMENT_BYTES,
    REGISTER_LEASE_MS,
    Config,
)
from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.coordination.auto_topic_creation import AutoTopicCreator
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.group_coordinator import GroupCoordinator
from ottla_broker.coordination.offsets_topic import OFFSETS_TOPIC
from ottla_broker.coordination.producer_ids import ProducerIdAllocator, request_producer_id_block
from ottla_broker.log.config import MAX_INT64, LogConfig
from ottla_broker.log.disk import Disk, OsDisk
from ottla_broker.log.log_dir import LogDir
from ottla_broker.metadata.broker_lifecycle import NO_BROKER_EPOCH, BrokerLifecycle
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.controller_channel import ControllerChannel
from ottla_broker.metadata.failure_detector import FailureDetector
from ottla_broker.metadata.image import BROKER_RESOURCE, MetadataDelta, MetadataImage
from ottla_broker.metadata.last_life import PreviousIncarnation
from ottla_broker.metadata.metadata_fetch import METADATA_TOPIC_ID
from ottla_broker.metadata.records import METADATA_TOPIC, Endpoint
from ottla_broker.metadata.register import Member, Register
from ottla_broker.metadata.register_quorum import RegisterQuorum
from ottla_broker.metadata.snapshot_generator import SnapshotIntervals
from ottla_broker.metadata.state_condition import StateCondition
from ottla_broker.mirroring.appended_retention import AppendedRetention
from ottla_broker.mirroring.mirror_manager import MirrorManager
from ottla_broker.mirroring.synchronizer import MirrorSynchronizer
from ottla_broker.replication.alter_partition_sender import AlterPartitionSender
from ottla_broker.replication.cluster_view import MetadataClusterView
from ottla_broker.replication.journal import PartitionJournal
from ottla_broker.replication.lag import shrink_isrs_periodically
from ottla_broker.replication.log_maintenance import LogMaintenance
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.replication.pending_acks import HANDOVER_TIMEOUT_S
from ottla_broker.replication.produce_forwarder import ProduceForwarder
from ottla_broker.replication.replica_fetchers import ReplicaFetchers
from ottla_broker.replication.replica_manager import ReplicaManager
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

REGISTERED_WITHIN_S = 10.0  # after so long a start says what it waits for

LARGEST_COMMIT_BYTES = 64 << 20  # of one command's records: a topic of thousands of partitions is one batch


AnswerLocally = Callable[["Broker", Any], Awaitable[Any]]
"""Answers a request that the broker sends to itself, as the controller: `dispatcher.answer_locally`."""


class Broker:
    """Everything that a request may need. Public attributes are the rooms; handlers call those."""

    quorum: RegisterQuorum

    def __init__(
        self,
        config: Config,
        register: Register,
        answer_locally: AnswerLocally,
        *,
        runtime: Runtime | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.config = config
        self.runtime = runtime or Runtime()
        self.node_id = config.node_id
        self.cluster_id = ""
        self.image = MetadataImage()
        self.partitions = Partitions(self.image)
        self.log_dirs: list[LogDir] = []
        self.controller: Controller | None = None  # while this broker is the active controller
        self.controller_channel = ControllerChannel(self, f"broker-{self.node_id}", partial(answer_locally, self))
        self.image_condition = StateCondition()
        self._auto_topic_creator = AutoTopicCreator(config, self.image, self.image_condition, self.controller_channel)
        self.failure_detector = FailureDetector(self.node_id, self.image, config.inter_broker_listener)
        self._controlling: list[asyncio.Task[None]] = []
        self.mirror_synchronizer: MirrorSynchronizer | None = None
        self.ready = False
        self.started = asyncio.Event()
        self.unrecoverable_errors: list[str] = []  # what went wrong and cannot mend itself; it turns readiness red
        self._hosts = False
        self._disk: Disk = disk or OsDisk()
        self._register = register
        self._background: dict[asyncio.Task[None], None] = {}  # in the order of their beginning
        self.lifecycle = BrokerLifecycle(
            config,
            self.runtime.new_uuid(),
            self.image,
            self.controller_channel,
            self.log_dirs,
            PreviousIncarnation(config.log_dirs[0], self._disk, self.runtime),
            hears_majority=self._hears_majority,
            on_replaced=self.unrecoverable_errors.append,
        )
        self.producer_ids = ProducerIdAllocator(self._allocate_producer_ids)
        self.replica_fetchers = ReplicaFetchers(self.node_id, self.image, self.config, self._epoch)
        self.produce_forwarder = ProduceForwarder(self.image, config.inter_broker_listener, f"broker-{self.node_id}")
        self._alter_partition_sender = AlterPartitionSender(
            self.node_id, self._epoch, self._epoch_of, self.controller_channel.send_request
        )
        self.mirrors = MirrorManager(
            self.node_id,
            self.image,
            self.partitions,
            self.controller_channel.send_request,
            self.runtime.now_ms,
            own=lambda: self.image.broker_addresses(config.inter_broker_listener),
        )
        self.appended_retention = AppendedRetention(self.image, self.partitions, config, self.runtime.now_ms)
        self._replica_manager = ReplicaManager(
            self.node_id,
            self.image,
            self.partitions,
            self.log_dirs,
            self.runtime,
            self.config.log_config,
            on_leadership_gained=self._led,
            on_leadership_lost=self._lost,
            cluster=MetadataClusterView(self.image, self._alter_partition_sender.send),
            fetchers=self.replica_fetchers,
        )
        self.group_coordinator = GroupCoordinator(
            self.runtime, GroupCoordinatorConfig.from_config(config), self._offsets_partitions, serving=self._in_session
        )

    async def start(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Brings everything up to where requests can be answered. `endpoints`: how clients reach each listener.

        Raises KafkaError or LogDirError with a sentence for people when it cannot.
        """
        self._attach_directories()
        self._log_maintenance = LogMaintenance(self.log_dirs, self.config)
        await self._join_quorum(endpoints)
        first_start = self.controller is not None and not self.image.brokers
        self._configure_broker()
        self._load_directories(first_start=first_start)
        if first_start:
            for directory in self.log_dirs:
                await directory.adopt_foreign_logs()  # before anything says that its logs are ours
        await self._enter(endpoints)
        if not first_start:
            self._replica_manager.rename_strays()
        self._hosts = True
        self._follow_everything()
        self._spawn(self.lifecycle.run())
        await self.lifecycle.wait_until_unfenced()
        if first_start:
            await self._take_in_orphans()
        self._spawn(self._log_maintenance.run())
        self._spawn(shrink_isrs_periodically(self.partitions, self.config))
        self._spawn(self.appended_retention.run())
        self.ready = True
        self.started.set()

    async def _enter(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Registers, and waits until its own image says so: what that says of this broker from before may speak of an earlier life of it, which led
        partitions, and had records, that this one has not. A wiped leader that led on would have its followers cut off what they hold.
        """
        await self.lifecycle.register(self.cluster_id, endpoints)
        while not await self.image_condition.wait_for(self._is_registered, timeout_s=REGISTERED_WITHIN_S):
            logger.info("broker %d is registered; its own metadata do not say so yet", self.node_id)

    def _is_registered(self) -> bool:
        return self._epoch_of(self.node_id) >= self.lifecycle.broker_epoch

    def _epoch(self) -> int:
        """Of this broker's registration; −1 while it has none."""
        return self.lifecycle.broker_epoch

    def _epoch_of(self, broker: int) -> int:
        registered = self.image.brokers.get(broker)
        return NO_BROKER_EPOCH if registered is None else registered.epoch

    def _in_session(self) -> bool:
        return self.lifecycle.is_in_session

    def _hears_majority(self, within_s: float) -> bool | None:
        return None if self.controller is None else self.quorum.hears_majority(within_s)

    @property
    def is_active_controller(self) -> bool:
        """Whether this broker is the active controller."""
        return self.controller is not None

    def controller_address(self) -> tuple[str, int] | None:
        return self.quorum.leader_address()

    def active_controller(self) -> Controller:
        """NOT_CONTROLLER when another broker is."""
        if self.controller is None:
            raise KafkaError(ErrorCode.not_controller, f"broker {self.quorum.leader_id} is the controller")
        return self.controller

    async def _allocate_producer_ids(self) -> range:
        return await request_producer_id_block(self.controller_channel, self.node_id, self.lifecycle.broker_epoch)

    async def _take_in_orphans(self) -> None:
        if (orphans := self._replica_manager.find_orphans()) and self.controller is not None:
            logger.info("taking in the topics found in the log directories: %s", ", ".join(sorted(orphans)))
            await self.controller.adopt_topics(self.node_id, orphans)
        self._replica_manager.rename_strays()

    async def stop(self) -> None:
        """A clean stop: coordinators rest, logs are flushed, the clean-shutdown marker is written."""
        self.ready = False
        if hasattr(self, "quorum"):
            await self.quorum.resign()
        self.group_coordinator.close()
        self.produce_forwarder.close()
        self._replica_manager.close()
        self._alter_partition_sender.close()
        await self.mirrors.close()
        await self.replica_fetchers.close()
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.failure_detector.close()
        self.controller_channel.close()
        for directory in self.log_dirs:
            await directory.close()
        await self._register.close()

    async def controlled_shutdown(self) -> None:
        """Before a stop, while everything is still served: others take over what this broker leads."""
        if self.ready:
            await self.lifecycle.controlled_shutdown()
            if waiting := [
                told for partition in self.partitions if (told := partition.pending_acks_future) is not None
            ]:
                await asyncio.wait(waiting, timeout=HANDOVER_TIMEOUT_S)  # those who lead now tell what becomes of them
            await self.produce_forwarder.wait_for_redirected_clients()
            await self.quorum.resign()

    async def auto_create_topic(self, name: str, *, allowed: bool = True) -> None:
        """Creates a topic that a client spoke of, where that is wanted. UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION."""
        await self._auto_topic_creator.create_topic(name, allowed=allowed)

    def _offsets_partitions(self) -> int:
        topic = self.image.topics.get(OFFSETS_TOPIC)
        return len(topic.partitions) if topic else 0

    def _attach_directories(self) -> None:
        for path in self.config.log_dirs:
            self.log_dirs.append(
                LogDir.attach(path, disk=self._disk, runtime=self.runtime, node_id=self.node_id, cluster_id=None)
            )

    def _load_directories(self, *, first_start: bool) -> None:
        """After the metadata are known, which say what the topics' settings are. What a first start finds was written by somebody else."""
        for directory in self.log_dirs:
            directory.load(
                lambda topic: self.config.log_config(self.image.topic_config(topic)), gapless=not first_start
            )

    async def _join_quorum(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Until the metadata are as the cluster's leader knows them, or this broker leads."""
        home = self.log_dirs[0]
        config = self._metadata_log_config()
        home.load(lambda _: config, only=METADATA_TOPIC)
        log = home.logs.get((METADATA_TOPIC, 0))
        if log is None:
            log = home.create_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, config)
        if log.failed is not None:
            raise log.failed  # nothing can be begun without it: whoever starts brokers tries again
        at = endpoints[self.config.inter_broker_listener]
        self.quorum = RegisterQuorum(
            Member(self.node_id, home.directory_id, format_host_and_port(at.host, at.port)),
            log,
            self.image,
            self._register,
            self.runtime,
            self._disk,
            cluster_id=home.cluster_id,
            listener=self.config.inter_broker_listener,
            lease_ms=self.config(REGISTER_LEASE_MS),
            snapshot_intervals=SnapshotIntervals(
                self.config(METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS),
                self.config(METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS),
            ),
            on_commit=self._follow,
            on_elected=self._elected,
            on_resigned=self._deposed,
        )
        self._spawn(self.quorum.run())
        await self.quorum.wait_until_caught_up()
        self.cluster_id = self.quorum.cluster_id
        for directory in self.log_dirs:
            directory.set_cluster_id(self.cluster_id)

    def _metadata_log_config(self) -> LogConfig:
        """Nothing of the metadata log goes by time or size, whatever the cluster's defaults are: only what a snapshot holds."""
        segment_bytes = self.config(METADATA_LOG_SEGMENT_BYTES)
        return LogConfig(
            segment_bytes=segment_bytes,
            segment_ms=MAX_INT64,
            retention_ms=-1,
            max_message_bytes=LARGEST_COMMIT_BYTES,
        )

    def _elected(self) -> None:
        self.controller = Controller(
            self.image, self.quorum, self.runtime, self.config, self.node_id, self.failure_detector
        )
        self.mirror_synchronizer = MirrorSynchronizer(self.controller, self.image, self.config, self.quorum.cluster_id)
        self._controlling = [self._spawn(self.controller.run()), self._spawn(self.mirror_synchronizer.run())]

    def _deposed(self) -> None:
        self.controller = self.mirror_synchronizer = None
        self.lifecycle.on_controller_resigned()
        for task in self._controlling:
            task.cancel()
        self._controlling = []

    def _follow(self, changes: MetadataDelta) -> None:
        if changes.changed_brokers:
            self.failure_detector.update_peers()
        if changes.controller_changed:
            self.lifecycle.send_heartbeat_now()
        if self._hosts:  # a start that is under way looks at everything when it comes there
            self._follow_closely(changes)
        if self.mirror_synchronizer is not None:
            self.mirror_synchronizer.apply_changes(changes)
        self.image_condition.notify_all()

    def _follow_closely(self, changes: MetadataDelta) -> None:
        self._replica_manager.apply_changes(changes)
        self.mirrors.apply_changes(changes)
        if changes.deleted_topics:
            self._spawn(
                self.group_coordinator.delete_offsets_of_topics(
                    {topic.name: topic.id for topic in changes.deleted_topics}
                )
            )
        if any(resource_type == BROKER_RESOURCE for resource_type, _ in changes.changed_configs):
            self._configure_broker()
            self._replica_manager.reconfigure_topics(self.image.topics)

    def _follow_everything(self) -> None:
        """What a restart finds in the image is treated as if it had just been said."""
        self._configure_broker()
        self._replica_manager.apply_changes(
            MetadataDelta(
                created_topics=list(self.image.topics),
                changed_partitions={(name, p) for name, topic in self.image.topics.items() for p in topic.partitions},
            )
        )

    def _configure_broker(self) -> None:
        self.config.set_dynamic(
            cluster=self.image.configs.get((BROKER_RESOURCE, ""), {}),
            broker=self.image.configs.get((BROKER_RESOURCE, str(self.node_id)), {}),
        )

    def _led(self, partition: Partition) -> None:
        self.mirrors.on_leadership_gained(partition)
        if partition.topic == OFFSETS_TOPIC:
            self._spawn(self.group_coordinator.load(partition.partition, PartitionJournal(partition)))

    def _lost(self, partition: Partition) -> None:
        self.mirrors.on_leadership_lost(partition)
        if partition.topic == OFFSETS_TOPIC:
            self.group_coordinator.unload(partition.partition)

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._background[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._background[task]
        if not task.cancelled() and (reason := task.exception()) is not None:
            logger.error("background work ended: %s", reason, exc_info=reason)
            self.unrecoverable_errors.append(f"background work ended: {reason!r}")
