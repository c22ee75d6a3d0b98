"""A broker's replica of the metadata log, opened from its settings and disks, as by Kafka's
`KafkaRaftManager`.

A recovery that was ordered while the broker ran (`ottla cluster recover`) is executed here, before
the metadata log is opened.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from ottla_broker.config import (
    METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS,
    METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS,
    METADATA_LOG_SEGMENT_BYTES,
    Config,
)
from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.log.config import MAX_INT64, LogConfig
from ottla_broker.log.disk import Disk
from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.metadata_fetch import METADATA_TOPIC_ID
from ottla_broker.metadata.quorum_recovery import RecoveryOrder, RecoveryOrders
from ottla_broker.metadata.quorum_settings import QuorumSettings
from ottla_broker.metadata.raft_quorum import RaftQuorum
from ottla_broker.metadata.records import METADATA_TOPIC, NO_LEADER, Endpoint
from ottla_broker.metadata.snapshot_generator import SnapshotIntervals
from ottla_broker.metadata.voter_set import QuorumEndpoint, Voter
from ottla_broker.runtime import Runtime
from ottla_broker.wire.channel_builder import ChannelBuilder
from ottla_broker.wire.errors import ErrorCode, KafkaError

MAX_COMMIT_BYTES: Final = 64 << 20
"""Largest batch of metadata records: all records of one command, such as a topic with thousands of
partitions.
"""


@dataclass(eq=False, repr=False)
class RaftManager:
    """`_log_dirs`: the first one holds the metadata log. `_on_commit`, `_on_elected` and
    `_on_resigned`: as for `RaftQuorum`, `_on_elected` with the quorum. `_start_task`: runs a task
    until the broker stops.
    """

    _config: Config
    _image: MetadataImage
    _log_dirs: Sequence[LogDir]
    _runtime: Runtime
    _disk: Disk
    _channels: ChannelBuilder
    _start_task: Callable[[Coroutine[Any, Any, None]], object]
    _on_commit: Callable[[MetadataDelta], None]
    _on_elected: Callable[[RaftQuorum], None]
    _on_resigned: Callable[[], None]
    _quorum: RaftQuorum | None = None

    @property
    def quorum(self) -> RaftQuorum:
        """Raises NOT_CONTROLLER before the metadata log is open."""
        if self._quorum is None:
            raise KafkaError(ErrorCode.not_controller, "the broker is starting")
        return self._quorum

    @property
    def leader_id(self) -> int:
        """The leader of the metadata log, as far as this broker knows; −1 if it knows none."""
        return NO_LEADER if self._quorum is None else self._quorum.leader_id

    def leader_endpoint(self) -> QuorumEndpoint | None:
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
            snapshot_intervals=SnapshotIntervals(
                self._config(METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS),
                self._config(METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS),
            ),
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
        """Stores the order, which the next start executes. `receiver`: the id of the log directory
        that the order is meant for. Raises INVALID_REQUEST and KAFKA_STORAGE_ERROR.
        """
        orders = RecoveryOrders(self._log_dirs, self._disk, self._runtime)
        await orders.store(order, receiver, self.quorum.describe_replica())

    async def resign(self) -> None:
        if self._quorum is not None:
            await self._quorum.resign()


def open_metadata_log(home: LogDir, config: Config) -> PartitionLog:
    """Opens the metadata log in the first log directory, or creates it. Only snapshots remove its
    segments, whatever the cluster's defaults for retention are.

    Raises KafkaError and LogDirError when it cannot be read. The broker cannot start then.
    """
    log_config = LogConfig(
        segment_bytes=config(METADATA_LOG_SEGMENT_BYTES),
        segment_ms=MAX_INT64,
        retention_ms=-1,
        max_message_bytes=MAX_COMMIT_BYTES,
    )
    home.load(lambda _: log_config, only_topic=METADATA_TOPIC)
    log = home.logs.get((METADATA_TOPIC, 0))
    if log is None:
        log = home.create_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, log_config)
    if log.failure is not None:
        raise log.failure
    return log
