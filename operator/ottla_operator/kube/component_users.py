"""The User resources that the operator creates for Pipelines and Mirrors, which own them."""

from dataclasses import dataclass, field

from ottla_operator.kube.api import FORBIDDEN, ApiClient, ApiError
from ottla_operator.kube.kinds import USER
from ottla_operator.kube.owned_objects import OwnedObjects, is_managed, owner_reference
from ottla_operator.plan.conditions import Stalled
from ottla_operator.plan.objects import names
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.model import Json


@dataclass(slots=True)
class ComponentUsers:
    api: ApiClient
    cache: WatchCache
    _objects: OwnedObjects = field(init=False)

    def __post_init__(self) -> None:
        self._objects = OwnedObjects(self.api)

    async def ensure(self, owner: Json, user: Json) -> Json | None:
        """See `Platform.ensure_component_user`."""
        metadata = user["metadata"]
        observed = self.cache.users.get(Key(metadata["namespace"], user["spec"]["clusterRef"]["name"]), {})
        known = observed.get(metadata["name"])
        if known is not None and known["spec"] == user["spec"]:
            return known
        owners = [owner_reference(owner) | {"controller": True}]
        desired = {**user, "metadata": {**metadata, "labels": names.user_labels(user), "ownerReferences": owners}}
        try:
            await self._objects.apply(desired, await self._objects.find(desired))
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            message = f"the operator may not make User {metadata['name']}: upgrade the roles of its chart"
            raise Blocked(Stalled("UserNotReady", message)) from error
        return None

    async def delete(self, owner: Json, cluster: Key, name: str) -> None:
        """See `Platform.delete_component_user`."""
        if name not in self.cache.users.get(cluster, {}):
            return
        live = await self.api.get(USER, cluster.namespace, name)
        if live is not None and is_managed(live) and owner["metadata"]["uid"] in _owners(live):
            await self.api.delete(USER, live)


def _owners(live: Json) -> set[str]:
    return {it["uid"] for it in live["metadata"].get("ownerReferences") or []}
