"""The objects of one Cluster on the API server: seen, and brought to what the plan says, each only when it differs."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.kube.api import Api
from ottla_operator.kube.kinds import CONFIG_MAP, POD, SERVICE, STATEFUL_SET, kind_of
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.addresses import Addresses, ServiceAddress
from ottla_operator.plan.objects.differences import find_difference, with_applied_hash
from ottla_operator.plan.observed_pods import BrokerPod, broker_pods
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json

MANAGED_BY: Final = "app.kubernetes.io/managed-by"


class Taken(Exception):
    """There is an object of that name which is not ours."""


class Leaving(Exception):
    """There is one of an owner that had this name before and is deleted: Kubernetes takes it away."""


@dataclass(slots=True)
class Seen:
    """`services`, `settings` (ConfigMaps): by name, ours alone. `headless`: the name of the Service of all brokers."""

    stateful_set: Json | None
    pods: dict[int, BrokerPod]
    services: dict[str, Json]
    settings: dict[str, Json]
    headless: str

    @property
    def notes(self) -> dict[str, str]:
        """What the operator has noted down on the StatefulSet; on the Service while that is made anew."""
        noted_on = self.stateful_set or self.services.get(self.headless) or {}
        annotations = noted_on.get("metadata", {}).get("annotations") or {}
        return {key: annotations[key] for key in names.STATE_ANNOTATIONS if key in annotations}

    def addresses(self) -> Addresses:
        return Addresses({name: _reached(it) for name, it in self.services.items()})


def _reached(service: Json) -> ServiceAddress:
    port = (service["spec"].get("ports") or [{}])[0].get("nodePort")
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or [{}]
    return ServiceAddress(port, ingress[0].get("hostname") or ingress[0].get("ip"))


@dataclass(slots=True)
class Children:
    """Of all Clusters; remembers what the API server takes for equal although it reads otherwise, so that it is not written again and again."""

    api: Api
    _equal: dict[str, tuple[str, str]] = field(default_factory=dict)

    async def see(self, cluster: Cluster) -> Seen:
        namespace, selector = cluster.metadata.namespace, names.selector_text(cluster)
        ours = f"{selector},{MANAGED_BY}={names.FIELD_MANAGER}"
        stateful_set, pods, services, settings = await asyncio.gather(
            self.api.get(STATEFUL_SET, namespace, cluster.name),
            self.api.list(POD, namespace, selector),
            self.api.list(SERVICE, namespace, ours),
            self.api.list(CONFIG_MAP, namespace, ours),
        )
        return Seen(
            stateful_set,
            broker_pods(cluster, pods),
            {it["metadata"]["name"]: it for it in services},
            {it["metadata"]["name"]: it for it in settings},
            names.headless_service(cluster),
        )

    async def ensure_all(self, wanted: Iterable[Json], seen: Seen) -> list[Json]:
        """As `ensure`, each with what is there of it; those of the same kind as the ones seen are not asked for again."""
        return list(await asyncio.gather(*(self._ensure_one(it, seen) for it in wanted)))

    async def _ensure_one(self, wanted: Json, seen: Seen) -> Json:
        known = {"Service": seen.services, "ConfigMap": seen.settings}.get(wanted["kind"], {})
        name = wanted["metadata"]["name"]
        live = known.get(name) or await self.api.get(kind_of(wanted), wanted["metadata"]["namespace"], name)
        told = await self.ensure(wanted, live)
        if wanted["kind"] in ("Service", "ConfigMap"):
            known[name] = told
        return told

    async def ensure(self, wanted: Json, live: Json | None) -> Json:
        """Applies an object unless it is so already; as it is then. Taken, Leaving."""
        wanted = with_applied_hash(wanted)
        if live is not None:
            _check_ours(wanted, live)
            if find_difference(wanted, live) is None:
                return live
            about, state = f"{live['metadata']['uid']}", (str(wanted), live["metadata"]["resourceVersion"])
            if self._equal.get(about) == state:
                return live
        told = await self.api.apply(wanted)
        if live is not None and told["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]:
            self._equal[about] = state
        return told


def _check_ours(wanted: Json, live: Json) -> None:
    metadata = live["metadata"]
    if (metadata.get("labels") or {}).get(MANAGED_BY) != names.FIELD_MANAGER:
        raise Taken(f"there is a {wanted['kind']} {metadata['name']} already that is not the operator's")
    mine = {it["uid"]: (it["kind"], it["name"]) for it in wanted["metadata"].get("ownerReferences") or []}
    for owner in metadata.get("ownerReferences") or []:
        if owner.get("controller") and mine and owner["uid"] not in mine:
            whose = f"{wanted['kind']} {metadata['name']} belongs to {owner['kind']} {owner['name']}"
            if (owner["kind"], owner["name"]) in mine.values():
                raise Leaving(f"{whose} of another life, and goes with that")
            raise Taken(whose)
