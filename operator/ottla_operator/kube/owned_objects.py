"""The Kubernetes objects that a Cluster or a Pipeline owns: observed, and applied only where they
differ.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.kinds import CONFIG_MAP, POD, SERVICE, STATEFUL_SET, kind_of
from ottla_operator.plan.conditions import Reconciling, Stalled
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.differences import find_difference, with_applied_hash
from ottla_operator.plan.observed_pods import BrokerPod, broker_pods
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
TERMINATING_RETRY_S: Final = 2.0


@dataclass(slots=True)
class ClusterObjects:
    """The objects of a Cluster. `pods`: by broker id. `newest_pod`: creation time of the newest
    pod; empty if there is none. `services`, `config_maps`: those of the operator, by name.
    `headless_service`: its name.
    """

    stateful_set: Json | None
    pods: dict[int, BrokerPod]
    newest_pod: str
    services: dict[str, Json]
    config_maps: dict[str, Json]
    headless_service: str

    @property
    def state_annotations(self) -> dict[str, str]:
        """Annotations with the recorded state: on the StatefulSet, or on the headless Service while
        the StatefulSet is recreated.
        """
        recorded_on = self.stateful_set or self.services.get(self.headless_service) or {}
        annotations = recorded_on.get("metadata", {}).get("annotations") or {}
        return {key: annotations[key] for key in names.STATE_ANNOTATIONS if key in annotations}


@dataclass(slots=True)
class OwnedObjects:
    """Applies objects by server-side apply. Remembers what the API server stores in another form
    than it was applied in, so that it is not applied again and again."""

    api: ApiClient
    _equivalent: dict[str, tuple[str, str]] = field(default_factory=dict)
    """uid → what was applied, and the object's resourceVersion, which did not change."""

    async def observe(self, cluster: Cluster) -> ClusterObjects:
        namespace, selector = cluster.metadata.namespace, names.selector_text(cluster)
        owned = f"{selector},{MANAGED_BY}={names.FIELD_MANAGER}"
        stateful_set, pods, services, config_maps = await asyncio.gather(
            self.api.get(STATEFUL_SET, namespace, cluster.name),
            self.api.list(POD, namespace, selector),
            self.api.list(SERVICE, namespace, owned),
            self.api.list(CONFIG_MAP, namespace, owned),
        )
        return ClusterObjects(
            stateful_set,
            broker_pods(cluster, pods),
            max((str(it["metadata"]["creationTimestamp"]) for it in pods), default=""),
            {it["metadata"]["name"]: it for it in services},
            {it["metadata"]["name"]: it for it in config_maps},
            names.headless_service(cluster),
        )

    async def apply_all(self, desired: Iterable[Json], observed: ClusterObjects) -> None:
        """Applies what differs. Puts Services and ConfigMaps into `observed`. Raises Blocked."""
        await asyncio.gather(*(self._apply_observed(it, observed) for it in desired))

    async def _apply_observed(self, desired: Json, observed: ClusterObjects) -> None:
        by_name = {"Service": observed.services, "ConfigMap": observed.config_maps}.get(desired["kind"], {})
        name = desired["metadata"]["name"]
        by_name[name] = await self.apply(desired, by_name.get(name) or await self.find(desired))

    async def find(self, desired: Json) -> Json | None:
        """The object of the same kind and name, of any owner, or None."""
        return await self.api.get(kind_of(desired), desired["metadata"]["namespace"], desired["metadata"]["name"])

    async def apply(self, desired: Json, live: Json | None) -> Json:
        """Applies an object unless `live` equals it already. Returns the resulting object. Raises
        Blocked if `live` is not the operator's, or another owner controls it.
        """
        desired = with_applied_hash(desired)
        if live is None:
            return await self.api.apply(desired)
        _check_ownership(desired, live)
        if find_difference(desired, live) is None:
            return live
        uid, applied = str(live["metadata"]["uid"]), (str(desired), live["metadata"]["resourceVersion"])
        if self._equivalent.get(uid) == applied:
            return live
        after = await self.api.apply(desired)
        if after["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]:
            self._equivalent[uid] = applied
        return after


def owner_reference(resource: Json) -> Json:
    """A reference to `resource` as an object's owner: Kubernetes deletes the object after it."""
    return {
        "apiVersion": resource["apiVersion"],
        "kind": resource["kind"],
        "name": resource["metadata"]["name"],
        "uid": resource["metadata"]["uid"],
    }


def is_managed(live: Json) -> bool:
    return (live["metadata"].get("labels") or {}).get(MANAGED_BY) == names.FIELD_MANAGER


def _check_ownership(desired: Json, live: Json) -> None:
    kind, metadata = desired["kind"], live["metadata"]
    if not is_managed(live):
        raise _conflict(f"{kind} {metadata['name']} exists and is not the operator's")
    owners: Mapping[str, tuple[str, str]] = {
        it["uid"]: (it["kind"], it["name"]) for it in desired["metadata"].get("ownerReferences") or []
    }
    for owner in metadata.get("ownerReferences") or []:
        if owner.get("controller") and owners and owner["uid"] not in owners:
            message = f"{kind} {metadata['name']} belongs to {owner['kind']} {owner['name']}"
            if (owner["kind"], owner["name"]) not in owners.values():
                raise _conflict(message)
            waiting = f"{message} that was deleted before; waiting for Kubernetes to delete it"
            raise Blocked(Reconciling("Terminating", waiting), TERMINATING_RETRY_S, keeps_state=True)


def _conflict(message: str) -> Blocked:
    return Blocked(Stalled("NameConflict", message), keeps_state=True)
