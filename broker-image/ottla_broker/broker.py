"""The parts of a broker, how they are connected, and the order in which they start and stop.

Start: log directories, metadata log and its quorum, image, registration, partitions, coordinators.
`stop` goes the other way. Sockets are not here: the server serves other brokers from before the
start, which needs their answers, and clients once the broker is ready.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from ottla_broker.access_control import build_acl_authorizer, build_audit_log, build_client_quotas
from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker_bootstrap import BrokerBootstrap, FirstUsers
from ottla_broker.config import TELEMETRY_MAX_BYTES, Config
from ottla_broker.config.listener_security import inter_broker_security
from ottla_broker.controller_role import ControllerRole
from ottla_broker.coordination.audit_topic import TopicAudit
from ottla_broker.coordination.auto_topic_creation import AutoTopicCreator
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.group_coordinator import GroupCoordinator
from ottla_broker.coordination.producer_ids import ProducerIdAllocator, request_producer_id_block
from ottla_broker.coordination.records import OFFSETS_TOPIC
from ottla_broker.coordination.remote_appender import RemoteAppender
from ottla_broker.coordination.share_group_services import ShareGroupServices
from ottla_broker.log.disk import Disk, OsDisk
from ottla_broker.log.schema_ids import SchemaIds
from ottla_broker.metadata.broker_lifecycle import BrokerLifecycle
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.controller_channel import ControllerChannel
from ottla_broker.metadata.failure_detector import FailureDetector
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.previous_incarnation import PreviousIncarnation
from ottla_broker.metadata.quorum_recovery import RecoveryOrder
from ottla_broker.metadata.raft_manager import RaftManager
from ottla_broker.metadata.raft_quorum import RaftQuorum
from ottla_broker.metadata.records import Endpoint
from ottla_broker.metadata.state_condition import StateCondition
from ottla_broker.metadata_publisher import MetadataPublisher
from ottla_broker.metrics import TraceCounts
from ottla_broker.mirroring.appended_retention import AppendedRetention
from ottla_broker.mirroring.lazy_mirrors import LazyMirrors
from ottla_broker.replication.alter_partition_sender import AlterPartitionSender
from ottla_broker.replication.cluster_view import MetadataClusterView
from ottla_broker.replication.log_manager import LogManager
from ottla_broker.replication.partitions import Partitions
from ottla_broker.replication.pending_acks import HANDOVER_TIMEOUT_S
from ottla_broker.replication.produce_forwarder import ProduceForwarder
from ottla_broker.replication.replica_fetchers import ReplicaFetchers
from ottla_broker.replication.replica_manager import ReplicaManager
from ottla_broker.replication.replica_mover import ReplicaMover
from ottla_broker.runtime import Runtime
from ottla_broker.security.authorizer import AllowAll, Authorizer
from ottla_broker.telemetry.client_telemetry import ClientTelemetry
from ottla_broker.telemetry.pipeline_reports import PipelineReports
from ottla_broker.telemetry.roll_reports import RollReports
from ottla_broker.transactions.transactions import build_transactions
from ottla_broker.wire.channel_builder import ChannelBuilder
from ottla_broker.wire.errors import ErrorCode, KafkaError

AnswerLocally = Callable[["Broker", Any], Awaitable[Any]]
"""Answers a request that the broker sends to itself, as the controller:
`dispatcher.answer_locally`.
"""


class Broker:
    """The parts that requests need: handlers use the public attributes.

    `ready`: clients are served. `acl_authorizer`: None without `authorizer.class.name`.
    `started`: set once the broker has become ready. `channels`: opens connections to other brokers.
    `schema_ids`: None without a schema registry. `restart_ordered`: set when the process has to
    stop this broker and start it again. `unrecoverable_errors`: reasons why the readiness probe
    fails until a restart, even while `ready` is True.
    """

    def __init__(
        self,
        config: Config,
        answer_locally: AnswerLocally,
        *,
        runtime: Runtime | None = None,
        disk: Disk | None = None,
        first_users: FirstUsers | None = None,
    ) -> None:
        node_id, inter_broker_listener = config.node_id, config.inter_broker_listener
        client_id = f"broker-{node_id}"
        self.config = config
        self.node_id = node_id
        self.runtime = runtime = runtime or Runtime()
        disk = disk or OsDisk()

        self.ready = False
        self.started = asyncio.Event()
        self.unrecoverable_errors: list[str] = []
        self.restart_ordered = asyncio.Event()
        self._tasks = BackgroundTasks(self.unrecoverable_errors.append)

        # Metadata: the image of the cluster, the quorum that commits it, and the controller that
        # changes it
        self.cluster_id = ""
        self.image = image = MetadataImage()
        self._log_manager = LogManager(config, image, disk, runtime)
        self.log_dirs = self._log_manager.log_dirs
        self.image_condition = StateCondition()
        self.channels = channels = ChannelBuilder(inter_broker_security(config))
        answer = partial(answer_locally, self)
        self.controller_channel = channel = ControllerChannel(self, client_id, answer, channels)
        self.failure_detector = FailureDetector(node_id, image, inter_broker_listener, channels)
        self._controller_role = ControllerRole(
            config, image, runtime, self.failure_detector, self._tasks, self._make_client
        )
        self._raft_manager = RaftManager(
            config,
            image,
            self.log_dirs,
            runtime,
            disk,
            channels,
            self._tasks.start,
            self._on_metadata_commit,
            self._controller_role.begin,
            self._on_resigned,
        )
        self.lifecycle = BrokerLifecycle(
            config,
            runtime.new_uuid(),
            image,
            channel,
            self.log_dirs,
            PreviousIncarnation(config.log_dirs[0], disk, runtime),
            hears_majority=self._hears_majority,
            on_replaced=self.unrecoverable_errors.append,
        )
        self._bootstrap = BrokerBootstrap(
            node_id, image, self.image_condition, self.lifecycle, self.active_controller, first_users or {}
        )

        # Coordinators
        self.producer_ids = ProducerIdAllocator(self._request_producer_ids)
        coordinator_metadata = CoordinatorMetadata(image)
        self.group_coordinator = GroupCoordinator(
            runtime,
            GroupCoordinatorConfig.from_config(config),
            coordinator_metadata,
            lambda: coordinator_metadata.partition_count_of(OFFSETS_TOPIC) or 0,
            self._is_in_session,
            lambda: self.share_groups.states,
        )
        self._share_groups: ShareGroupServices | None = None
        self._auto_topic_creator = AutoTopicCreator(config, image, self.image_condition, channel)
        self.auto_create_topic = self._auto_topic_creator.create_topic

        # Partitions
        self.partitions = partitions = Partitions(image)
        self.mirrors = LazyMirrors(image, self._build_mirrors)
        self.appended_retention = AppendedRetention(image, partitions, config, runtime.now_ms)
        self.replica_fetchers = ReplicaFetchers(node_id, image, config, self._broker_epoch, channels)
        self.produce_forwarder = ProduceForwarder(image, inter_broker_listener, client_id, channels)
        self._alter_partition_sender = AlterPartitionSender(
            node_id, self._broker_epoch, self._bootstrap.registered_epoch, channel.send_request
        )
        self.acl_authorizer = build_acl_authorizer(config)
        self.authorizer: Authorizer = self.acl_authorizer or AllowAll()
        self.transactions = build_transactions(
            config,
            runtime,
            image,
            partitions,
            self.group_coordinator,
            channels,
            self._is_in_session,
            self.producer_ids.generate_id,
        )
        self.schema_ids: SchemaIds | None = None
        self.client_quotas = build_client_quotas(config)
        self.client_telemetry = ClientTelemetry(image, config(TELEMETRY_MAX_BYTES))
        self.pipeline_reports = PipelineReports()
        self.roll_reports = RollReports()
        self.trace_counts = TraceCounts()
        self.on_logins_removed: Callable[[], None] = lambda: None
        self.audit_log = build_audit_log(config, runtime, self._build_topic_audit)
        self._publisher = MetadataPublisher(
            config,
            image,
            self.lifecycle,
            self.failure_detector,
            self.group_coordinator,
            self.transactions.coordinator,
            lambda: self.share_groups.coordinator,
            self.mirrors,
            self._tasks,
            self.acl_authorizer,
            self.client_quotas,
            self.client_telemetry.instances,
            lambda: self.on_logins_removed(),
        )
        self.replica_mover = ReplicaMover(
            node_id, partitions, self.log_dirs, config, self._broker_epoch, channel.send_request
        )
        self._replica_manager = ReplicaManager(
            node_id,
            image,
            partitions,
            self.log_dirs,
            runtime,
            config,
            self.replica_fetchers,
            self.replica_mover,
            MetadataClusterView(image, self._is_in_session),
            self._alter_partition_sender.send,
            self._publisher.on_leadership_gained,
            self._publisher.on_leadership_lost,
        )

    # Start and stop

    async def start(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Starts every part, and returns when clients can be served. `endpoints`: the advertised
        address of each listener.

        Raises KafkaError or LogDirError, with a sentence for users.
        """
        self._log_manager.attach()
        self.cluster_id = self.log_dirs[0].cluster_id or ""
        bootstrap = self._bootstrap
        await self._raft_manager.start(endpoints[self.config.inter_broker_listener], bootstrap.unregister_lost_brokers)
        self.cluster_id = self.quorum.cluster_id
        is_first_start = self.controller is not None and not self.image.brokers
        self._publisher.update_config()
        await self._log_manager.load(are_foreign=is_first_start)
        await bootstrap.register(self.cluster_id, endpoints)
        if not is_first_start:
            self._replica_manager.rename_strays()
        self._publisher.publish_image(self._replica_manager)
        self._tasks.start(self.lifecycle.run())
        await self.lifecycle.wait_until_unfenced()
        if is_first_start:
            await bootstrap.prepare_new_cluster(self.controller, self._replica_manager)
        self.replica_mover.resume_moves()
        self._tasks.start(self._log_manager.run())
        self._tasks.start(self._replica_manager.shrink_isrs())
        self._tasks.start(self.appended_retention.run())
        self.ready = True
        self.started.set()

    async def controlled_shutdown(self) -> None:
        """Hands leaderships over to other brokers, while everything is still served; `stop` comes
        next.
        """
        if not self.ready:
            return
        await self.lifecycle.controlled_shutdown()
        if pending := [acks for one in self.partitions if (acks := one.pending_acks_future()) is not None]:
            # The new leaders report which of the records that this broker appended are committed.
            await asyncio.wait(pending, timeout=HANDOVER_TIMEOUT_S)
        await self.produce_forwarder.wait_for_redirected_clients()
        await self.quorum.resign()

    async def stop(self) -> None:
        """Stops every part, flushes the logs and writes the clean-shutdown marker. Also after a
        start that failed.
        """
        self.ready = False
        await self.audit_log.close()  # while it can still write to a topic
        await self._raft_manager.resign()
        self.transactions.close()
        if self._share_groups is not None:
            self._share_groups.close()
        self.group_coordinator.close()
        self.produce_forwarder.close()
        self._replica_manager.close()
        self._alter_partition_sender.close()
        await self.replica_mover.close()
        await self.mirrors.close()
        await self.replica_fetchers.close()
        await self._tasks.cancel()
        await self.failure_detector.close()
        self.controller_channel.close()
        await self._log_manager.close()

    # Metadata

    async def order_recovery(self, order: RecoveryOrder, receiver: UUID) -> None:
        """Stores the order and stops the broker, whose next start executes it. Raises
        INVALID_REQUEST and KAFKA_STORAGE_ERROR."""
        await self._raft_manager.order_recovery(order, receiver)
        self.restart_ordered.set()

    @property
    def quorum(self) -> RaftQuorum:
        """The quorum of the metadata log. Raises NOT_CONTROLLER before the broker has opened its
        metadata log.
        """
        return self._raft_manager.quorum

    @property
    def controller_id(self) -> int:
        """The leader of the metadata log, as far as this broker knows; −1 if it knows none."""
        return self._raft_manager.leader_id

    def _broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    def _is_in_session(self) -> bool:
        return self.lifecycle.is_in_session

    def _on_metadata_commit(self, delta: MetadataDelta) -> None:
        self._publisher.publish_delta(delta)
        self._controller_role.apply_changes(delta)
        self.image_condition.notify_all()

    def _build_mirrors(self) -> Any:
        """The MirrorManager, imported with the first mirrored topic."""
        from ottla_broker.mirroring.mirror_manager import MirrorManager

        send = self.controller_channel.send_request
        now_ms = self.runtime.now_ms
        return MirrorManager(self.node_id, self.image, self.partitions, send, now_ms, self._make_client)

    def _make_client(self, client_id: str) -> Any:
        """A Client of this cluster, which connects as brokers do."""
        from ottla_broker.wire.client import Client  # a broker without mirrors needs none

        addresses = self.image.broker_addresses(self.config.inter_broker_listener)
        return Client(addresses, client_id=client_id, security=self.channels.security)

    # The active controller

    @property
    def controller(self) -> Controller | None:
        """None unless this broker is the active controller."""
        return self._controller_role.controller

    @property
    def mirror_synchronizer(self) -> Any:
        """The MirrorSynchronizer; None on brokers that are not the active controller, and without
        mirrors.
        """
        return self._controller_role.mirror_synchronizer

    @property
    def is_active_controller(self) -> bool:
        return self.controller is not None

    def active_controller(self) -> Controller:
        """Raises NOT_CONTROLLER unless this broker is the active controller."""
        if self.controller is None:
            leader = self.quorum.leader_id
            raise KafkaError(
                ErrorCode.not_controller,
                f"broker {self.node_id} is not the controller; known leader of the metadata log: {leader} (-1: none)",
            )
        return self.controller

    def controller_endpoint(self) -> tuple[str, int] | None:
        return self._raft_manager.leader_endpoint()

    def _hears_majority(self, within_s: float) -> bool | None:
        """None unless this broker is the active controller."""
        return None if self.controller is None else self.quorum.hears_majority(within_s)

    def _on_resigned(self) -> None:
        self._controller_role.end()
        self.lifecycle.on_controller_resigned()

    # For coordinators

    @property
    def share_groups(self) -> ShareGroupServices:
        """The parts that serve share groups, imported and built at the first use."""
        if self._share_groups is None:
            from ottla_broker.share_groups.share_groups import build_share_groups

            self._share_groups = build_share_groups(
                self.config,
                self.runtime,
                self.image,
                self.partitions,
                self.channels,
                self._is_in_session,
                self.auto_create_topic,
                self._auto_topic_creator.create_dead_letter_topic,
                self._remote_appender("dead-letters"),
            )
        return self._share_groups

    def _build_topic_audit(self, topic: str) -> TopicAudit:
        create, remote = self._auto_topic_creator.create_audit_topic, self._remote_appender("audit")
        return TopicAudit(topic, self.partitions, create, remote, self.runtime.now_ms)

    def _remote_appender(self, client_id: str) -> RemoteAppender:
        return RemoteAppender(self.image, self.produce_forwarder, client_id)

    async def _request_producer_ids(self) -> range:
        return await request_producer_id_block(self.controller_channel, self.node_id, self.lifecycle.broker_epoch)
