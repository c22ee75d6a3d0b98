"""Small things around the brokers of a Cluster: the rack written on pods, disks that grow, and what is no longer needed taken away."""

import asyncio
import datetime
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.kube.api import Api, ApiError
from ottla_operator.kube.children import Seen
from ottla_operator.kube.kinds import CLAIM, CONFIG_MAP, NODE, POD, SERVICE, STATEFUL_SET
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.desired import DesiredObjects
from ottla_operator.plan.objects.stateful_set import claimed_storage
from ottla_operator.plan.observed_pods import parse_time
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import parse_quantity
from ottla_operator.resources.model import Json

GONE_WITHIN_S: Final = 10.0
KEPT_FOR: Final = datetime.timedelta(minutes=1)  # a pod may just be made with settings that have just been replaced


@dataclass(slots=True)
class Upkeep:
    api: Api
    _racks: dict[tuple[str, str], str] = field(default_factory=dict)
    """(node, label) → value. Labels of a node do not change while pods are on it, or should not."""

    async def write_racks(self, cluster: Cluster, seen: Seen) -> list[str]:
        """On every pod that has a node and no rack; nodes without the label."""
        if cluster.spec.rack is None:
            return []
        without: list[str] = []
        for pod in seen.pods.values():
            if not pod.node or pod.rack or pod.is_terminating:
                continue
            if rack := await self._rack(pod.node, cluster.spec.rack.topology_key):
                change = {"metadata": {"annotations": {names.RACK: rack}}}
                await self.api.merge(POD, cluster.metadata.namespace, pod.name, change)
            else:
                without.append(pod.node)
        return without

    async def _rack(self, node: str, label: str) -> str:
        if (node, label) not in self._racks:
            found = await self.api.get(NODE, None, node)
            value = ((found or {}).get("metadata", {}).get("labels") or {}).get(label, "")
            if not value:
                return ""
            self._racks[node, label] = value
        return self._racks[node, label]

    async def grow_disks(self, cluster: Cluster, seen: Seen) -> bool:
        """Whether disks had to grow: then the claims have been patched, and the StatefulSet, whose claims' size never changes, is gone without its pods,
        to be made anew. ApiError when the storage class does not allow it."""
        live, storage = seen.stateful_set, cluster.spec.storage
        assert storage is not None
        if live is None or parse_quantity(claimed_storage(live)) >= parse_quantity(storage.size):
            return False
        for it in await self.api.list(CLAIM, cluster.metadata.namespace, names.selector_text(cluster)):
            has = it["spec"]["resources"]["requests"]["storage"]
            if parse_quantity(has) < parse_quantity(storage.size):
                change = {"spec": {"resources": {"requests": {"storage": storage.size}}}}
                await self.api.merge(CLAIM, cluster.metadata.namespace, it["metadata"]["name"], change)
        if seen.headless in seen.services:  # whoever makes it anew has to know what was noted on it
            noted = {"metadata": {"annotations": {it: seen.notes.get(it) for it in names.STATE_ANNOTATIONS}}}
            await self.api.merge(SERVICE, cluster.metadata.namespace, seen.headless, noted)
        await self.api.delete(STATEFUL_SET, live, orphan=True)
        async with asyncio.timeout(GONE_WITHIN_S):
            while await self.api.get(STATEFUL_SET, cluster.metadata.namespace, cluster.name) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        return True

    async def take_away(self, cluster: Cluster, seen: Seen, wanted: DesiredObjects) -> None:
        """Services of brokers that are gone, and settings that no pod was started with."""
        needed = {(it["kind"], it["metadata"]["name"]) for it in wanted.all}
        for name, it in seen.services.items():
            if ("Service", name) not in needed:
                await self.api.delete(SERVICE, it)
        used = {it.settings for it in seen.pods.values()} | {_settings_of(seen.stateful_set)}
        now = datetime.datetime.now(datetime.UTC)
        for name, it in seen.settings.items():
            old = now - parse_time(it["metadata"]["creationTimestamp"]) > KEPT_FOR
            if (
                old
                and name not in used
                and ("ConfigMap", name) not in needed
                and name.startswith(f"{cluster.name}-settings-")
            ):
                await self.api.delete(CONFIG_MAP, it)


def _settings_of(stateful_set: Json | None) -> str:
    if stateful_set is None:
        return ""
    volumes = stateful_set["spec"]["template"]["spec"].get("volumes") or []
    return next((str(it["configMap"]["name"]) for it in volumes if it["name"] == "settings"), "")


def refuses(error: ApiError) -> bool:
    """Whether the API server will not have it, such as a claim that grows where its storage class does not allow it, or a quota: a person's matter."""
    return error.status in (403, 422)
