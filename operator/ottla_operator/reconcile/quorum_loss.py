"""Explains from the disks of brokers why a Cluster has no controller."""

from collections.abc import Sequence
from typing import Final

from ottla_operator.kafka.quorum_recovery import describe_replicas
from ottla_operator.plan.conditions import Stalled
from ottla_operator.plan.quorum_recovery import MetadataReplica, find_quorum_loss
from ottla_operator.plan.settings import BOOTSTRAP_SERVERS
from ottla_operator.reconcile.platform import Blocked, BrokerSet
from ottla_operator.resources.model import Json

REPLICA_TIMEOUT_S: Final = 1.0
RETRY_S: Final = 2.0


async def explain_missing_controller(resource: Json, brokers: BrokerSet) -> str:
    """Describes the voters that are missing; empty if unknown. Raises Blocked when there can be no
    controller before a person acts.
    """
    found = await describe_replicas(brokers.replica_addresses, brokers.access.security, REPLICA_TIMEOUT_S)
    replicas = [it for it in found.values() if isinstance(it, MetadataReplica)]
    cluster_id = (resource.get("status") or {}).get("clusterId")
    loss = find_quorum_loss(replicas, range(1, brokers.count + 1), cluster_id)
    if loss is not None and loss.is_final:
        raise Blocked(Stalled("QuorumLost", f"{loss.message}. {_advice(replicas, brokers)}"), RETRY_S)
    return loss.message if loss else ""


def _advice(replicas: Sequence[MetadataReplica], brokers: BrokerSet) -> str:
    if not any(it.voters for it in replicas):
        return "Restore a volume, or delete the Cluster and its volume claims and create an empty Cluster"
    servers = next(iter(brokers.desired.values()))[BOOTSTRAP_SERVERS]
    return f"Restore a lost disk, or continue without it: ottla cluster recover --bootstrap {servers}"
