"""The steps of a broker's start that change the metadata of its cluster: it registers, and the
first broker of a new cluster creates the topics of the partitions on its disks, and the first
users.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla_broker.metadata.broker_lifecycle import NO_BROKER_EPOCH, BrokerLifecycle
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.quorum_recovery import RecoveryOrder
from ottla_broker.metadata.records import Endpoint
from ottla_broker.metadata.state_condition import StateCondition
from ottla_broker.replication.replica_manager import ReplicaManager
from ottla_broker.security.scram import ScramCredential

logger = logging.getLogger(__name__)

REGISTRATION_LOG_INTERVAL_S: Final = 10.0
"""How often a starting broker logs that its own metadata do not show its registration yet."""

FirstUsers = dict[str, dict[int, ScramCredential | None]]
"""SCRAM credentials by user and mechanism that a new cluster begins with."""


@dataclass(eq=False, repr=False)
class BrokerBootstrap:
    """`_active_controller`: returns the controller, or raises NOT_CONTROLLER if this broker is not
    the active one.
    """

    _node_id: int
    _image: MetadataImage
    _image_condition: StateCondition
    _lifecycle: BrokerLifecycle
    _active_controller: Callable[[], Controller]
    _first_users: FirstUsers

    async def unregister_lost_brokers(self, recovery: RecoveryOrder) -> None:
        """Called at the end of a recovery, on every recovered broker before it registers. Only the
        broker that leads the recovery unregisters others. Replicas on lost disks leave their ISRs,
        so that those on the remaining disks become leaders.
        """
        if recovery.leads:
            for broker in sorted(self._image.brokers.keys() - {*recovery.survivors, self._node_id}):
                await self._active_controller().cluster_control.unregister_broker(broker)

    async def register(self, cluster_id: str, endpoints: Mapping[str, Endpoint]) -> None:
        """Registers, and waits until this broker's own image shows the registration: an older image
        may assign it the leadership of partitions whose records it lost with its disk, and its
        followers would truncate theirs."""
        await self._lifecycle.register(cluster_id, endpoints)
        while not await self._image_condition.wait_for(self._is_registered, timeout_s=REGISTRATION_LOG_INTERVAL_S):
            logger.info("broker %d waits for its registration in its copy of the metadata log", self._node_id)

    def _is_registered(self) -> bool:
        return self.registered_epoch(self._node_id) >= self._lifecycle.broker_epoch

    def registered_epoch(self, broker: int) -> int:
        """NO_BROKER_EPOCH if the broker is not registered."""
        registration = self._image.brokers.get(broker)
        return NO_BROKER_EPOCH if registration is None else registration.epoch

    async def prepare_new_cluster(self, controller: Controller | None, replica_manager: ReplicaManager) -> None:
        """Creates the topics of the partitions that a first start has found, renames the folders of
        partitions that still belong to no topic, and adds the first users. Clients are served
        afterwards, so that a secured cluster is never open. Creates and adds nothing without a
        controller.
        """
        if controller is not None and (orphans := replica_manager.find_orphans()):
            logger.info("adopting topics found in the log directories: %s", ", ".join(sorted(orphans)))
            await controller.adopt_topics(self._node_id, orphans)
        replica_manager.rename_strays()
        if controller is not None and self._first_users:
            await controller.alter_scram_credentials(self._first_users)
