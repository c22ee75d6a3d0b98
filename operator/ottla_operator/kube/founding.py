"""Decides whether the brokers of a Cluster may found a cluster: once, while no disk can hold one
already.

Invariant: brokers found no second cluster. A cluster exists if its id is in the
status, or if a volume claim of its brokers exists. The claims that remain of a deleted Cluster hold
its cluster, which the brokers of a Cluster of the same name continue.
"""

from typing import Final

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.kinds import CLAIM, STATEFUL_SET
from ottla_operator.plan.conditions import Reconciling
from ottla_operator.plan.objects import names
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json

CLAIMS_RETRY_S: Final = 1.0


async def may_found_cluster(api: ApiClient, resource: Json, cluster: Cluster) -> bool:
    """True if the first broker of a Cluster without a StatefulSet may found the cluster. Raises
    Blocked while claims of a previous StatefulSet are still being deleted.
    """
    if (resource.get("status") or {}).get("clusterId"):
        return False
    claims = [
        it
        for it in await api.list(CLAIM, cluster.metadata.namespace)
        if names.claimed_by(cluster, it["metadata"]["name"]) is not None
    ]
    if any(not _is_being_deleted(it) for it in claims):
        return False
    if claims:
        message = (
            f"PersistentVolumeClaim {claims[0]['metadata']['name']} of the previous Cluster is still being deleted"
        )
        raise Blocked(Reconciling("Terminating", message), CLAIMS_RETRY_S)
    return True


def _is_being_deleted(claim: Json) -> bool:
    """True if a claim is being deleted, or will be: with `storage.deleteClaim` claims belong to the
    StatefulSet, which no longer exists, and are deleted after it.
    """
    metadata = claim["metadata"]
    owners = [it["kind"] for it in metadata.get("ownerReferences") or []]
    return "deletionTimestamp" in metadata or STATEFUL_SET.name in owners
