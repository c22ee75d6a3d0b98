"""Recovery of a cluster that has lost a majority of the voters of its metadata log for good (`ottla
cluster recover`).

A RecoverQuorum request is stored as an order, and carried out by the broker's next start, before
the metadata log is opened. One broker becomes the only voter with the log that it has; the others
rename theirs and copy that one. All of them continue as a cluster with a new id, so the old
majority cannot return as this cluster: its disks have the old id.

Every step can be repeated, so the start after a crash continues the recovery. The order is removed
when the broker leads, or has caught up with the leader.
"""

import logging
from collections.abc import Sequence
from uuid import UUID

import msgspec

from ottla_broker.log import file_names
from ottla_broker.log.disk import Disk
from ottla_broker.log.log_dir import LogDir
from ottla_broker.metadata.quorum import ReplicaDescription
from ottla_broker.metadata.quorum_state import FILE_NAME as QUORUM_STATE
from ottla_broker.metadata.quorum_state import encode_election_state
from ottla_broker.metadata.raft_rules import ElectionState
from ottla_broker.metadata.records import METADATA_TOPIC, NO_LEADER
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

FILE_NAME = "quorum-recovery"


class RecoveryOrder(msgspec.Struct, frozen=True):
    """`epoch`: newer than every epoch known to the remaining brokers. `leads`: this broker
    continues with its log. `leader_address`: host:port of the broker that does. `survivors`:
    remaining brokers; the leader unregisters the others, whose disks are lost, before they count as
    in-sync replicas.
    """

    cluster_id: str
    new_cluster_id: str
    epoch: int
    leads: bool
    leader_address: str
    survivors: tuple[int, ...] = ()


class RecoveryOrders:
    """The order of this broker, in its first log directory."""

    def __init__(self, log_dirs: Sequence[LogDir], disk: Disk, runtime: Runtime) -> None:
        self._log_dirs = log_dirs
        self._disk = disk
        self._runtime = runtime
        self._path = f"{log_dirs[0].path}/{FILE_NAME}"

    async def store(self, order: RecoveryOrder, receiver: UUID, replica: ReplicaDescription) -> None:
        """Returns when the order is synced. Raises KAFKA_STORAGE_ERROR, or INVALID_REQUEST when it
        is meant for another disk or cluster, or when this broker is in contact with a leader."""
        home = self._log_dirs[0]
        if receiver != home.directory_id or order.cluster_id != home.cluster_id:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"the recovery is meant for another disk than that of broker {home.node_id} in "
                f"cluster {home.cluster_id}",
            )
        if replica.leader_id != NO_LEADER:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"the metadata log has a leader, broker {replica.leader_id}: there is nothing to recover",
            )
        try:
            await self._runtime.run_in_thread(self._disk.replace_file, self._path, msgspec.json.encode(order))
        except OSError as error:
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"{self._path} cannot be written: {error.strerror or error}"
            ) from error

    def carry_out(self) -> RecoveryOrder | None:
        """Executes a stored order before the metadata log is opened. None without an order. Raises
        LogDirError, KAFKA_STORAGE_ERROR.
        """
        home = self._log_dirs[0]
        try:
            if not self._disk.exists(self._path):
                return None
            order = msgspec.json.decode(self._disk.read_file(self._path), type=RecoveryOrder)
            if home.cluster_id == order.cluster_id:
                logger.warning(
                    "recovering cluster %s as cluster %s: this broker %s",
                    order.cluster_id,
                    order.new_cluster_id,
                    "is its only voter" if order.leads else f"copies the metadata log of {order.leader_address}",
                )
                self._prepare_log(home, order)
        except (OSError, msgspec.MsgspecError) as error:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self._path} cannot be carried out: {error}") from error
        for log_dir in reversed(self._log_dirs):  # the first one last: it says whether this is done
            log_dir.move_to_cluster(order.new_cluster_id)
        return order

    def complete(self) -> None:
        self._disk.remove(self._path)

    def _prepare_log(self, home: LogDir, order: RecoveryOrder) -> None:
        folder = f"{home.path}/{file_names.partition_folder(METADATA_TOPIC, 0)}"
        if order.leads:
            self._disk.replace_file(f"{folder}/{QUORUM_STATE}", encode_election_state(ElectionState(order.epoch)))
        elif self._disk.exists(folder):
            self._disk.rename(folder, f"{folder}.{order.cluster_id}{file_names.STRAY_FOLDER}")
            self._disk.sync_directory(home.path)
