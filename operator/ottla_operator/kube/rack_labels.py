"""Annotates brokers' pods with the rack of their node: a pod cannot read its node's labels."""

from dataclasses import dataclass, field

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.kinds import NODE, POD
from ottla_operator.kube.owned_objects import ClusterObjects
from ottla_operator.plan.objects import names
from ottla_operator.resources.cluster import Cluster


@dataclass(slots=True)
class RackLabels:
    api: ApiClient
    _racks: dict[tuple[str, str], str] = field(default_factory=dict)
    """(node, label) → value. Labels of a node should not change while pods run on it."""

    async def annotate_pods(self, cluster: Cluster, objects: ClusterObjects) -> list[str]:
        """Annotates every pod that has a node and no rack. Returns the nodes that lack the
        label.
        """
        if cluster.spec.rack is None:
            return []
        unlabelled: list[str] = []
        for pod in objects.pods.values():
            if not pod.node or pod.rack or pod.is_terminating:
                continue
            if rack := await self._rack(pod.node, cluster.spec.rack.topology_key):
                change = {"metadata": {"annotations": {names.RACK: rack}}}
                await self.api.merge(POD, cluster.metadata.namespace, pod.name, change)
            else:
                unlabelled.append(pod.node)
        return unlabelled

    async def _rack(self, node: str, label: str) -> str:
        if (node, label) not in self._racks:
            found = await self.api.get(NODE, None, node)
            value = ((found or {}).get("metadata", {}).get("labels") or {}).get(label, "")
            if not value:
                return ""
            self._racks[node, label] = value
        return self._racks[node, label]
