"""A broker's replica of the metadata log, opened from its settings and disks, as by Kafka's
`KafkaRaftManager`.

A recovery that was ordered while the broker ran (`ottla cluster recover`) is executed here, before
the metadata log is opened.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ottla_broker.config import Config
from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.log.disk import Disk
from ottla_broker.log.log_dir import LogDir
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.log_on_disk import open_metadata_log, snapshot_intervals
from ottla_broker.metadata.quorum import MetadataQuorum
from ottla_broker.metadata.quorum_recovery import RecoveryOrder, RecoveryOrders
from ottla_broker.metadata.quorum_settings import QuorumSettings
from ottla_broker.metadata.raft_quorum import RaftQuorum
from ottla_broker.metadata.records import NO_LEADER, Endpoint
from ottla_broker.metadata.voter_set import Voter
from ottla_broker.runtime import Runtime
from ottla_broker.wire.channel_builder import ChannelBuilder
from ottla_broker.wire.errors import ErrorCode, KafkaError


@dataclass(eq=False, repr=False)
class RaftManager:
    """`_log_dirs`: the first one holds the metadata log. The callbacks are those of `RaftQuorum`.
    `_start_task`: runs a task until the broker stops.
    """

    _config: Config
    _image: MetadataImage
    _log_dirs: Sequence[LogDir]
    _runtime: Runtime
    _disk: Disk
    _channels: ChannelBuilder
    _start_task: Callable[[Coroutine[Any, Any, None]], object]
    _on_commit: Callable[[MetadataDelta], None]
    _on_elected: Callable[[MetadataQuorum], None]
    _on_resigned: Callable[[], None]
    _quorum: RaftQuorum | None = None

    @property
    def quorum(self) -> MetadataQuorum:
        """Raises NOT_CONTROLLER before the metadata log is open."""
        if self._quorum is None:
            raise KafkaError(ErrorCode.not_controller, "the broker is starting")
        return self._quorum

    @property
    def leader_id(self) -> int:
        """The leader of the metadata log, as far as this broker knows; −1 if it knows none."""
        return NO_LEADER if self._quorum is None else self._quorum.leader_id

    def leader_address(self) -> tuple[str, int] | None:
        return None if self._quorum is None else self._quorum.leader_endpoint()

    async def start(
        self, endpoint: Endpoint, unregister_lost_brokers: Callable[[RecoveryOrder], Coroutine[Any, Any, None]]
    ) -> None:
        """Joins or founds a cluster. Returns when the metadata are as current as the leader's, or
        when this broker leads. `endpoint`: of this broker, for other voters. Raises KafkaError and
        LogDirError.

        `unregister_lost_brokers`: called at the end of a recovery. If it fails, the next start
        executes the recovery again.
        """
        home = self._log_dirs[0]
        orders = RecoveryOrders(self._log_dirs, self._disk, self._runtime)
        recovery = orders.carry_out()
        settings = QuorumSettings.from_config(self._config)
        if recovery is not None:
            settings = settings.with_bootstrap_server(recovery.leader_address)
        self._quorum = quorum = RaftQuorum(
            Voter(self._config.node_id, home.directory_id, format_host_and_port(endpoint.host, endpoint.port)),
            open_metadata_log(home, self._config),
            self._image,
            self._runtime,
            self._disk,
            settings,
            cluster_id=home.cluster_id,
            recovery=recovery,
            snapshot_intervals=snapshot_intervals(self._config),
            on_commit=self._on_commit,
            on_elected=lambda: self._on_elected(self.quorum),
            on_resigned=self._on_resigned,
            channels=self._channels,
        )
        self._start_task(quorum.run())
        await quorum.wait_until_caught_up()
        if recovery is not None:
            await unregister_lost_brokers(recovery)
            orders.complete()
        for log_dir in self._log_dirs:
            log_dir.set_cluster_id(quorum.cluster_id)

    async def order_recovery(self, order: RecoveryOrder, receiver: UUID) -> None:
        """Stores the order, which the next start executes. Raises INVALID_REQUEST and
        KAFKA_STORAGE_ERROR.
        """
        orders = RecoveryOrders(self._log_dirs, self._disk, self._runtime)
        await orders.store(order, receiver, self.quorum.describe_replica())

    async def resign(self) -> None:
        if self._quorum is not None:
            await self._quorum.resign()
