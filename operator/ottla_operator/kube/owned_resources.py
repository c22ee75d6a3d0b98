"""Custom resources that the operator creates for others, which own them: the Users of Pipelines and
Mirrors, and the Pipelines of Topics with a lake.
"""

from dataclasses import dataclass, field

from ottla_operator.kube.api import FORBIDDEN, ApiClient, ApiError
from ottla_operator.kube.kinds import kind_of
from ottla_operator.kube.owned_objects import OwnedObjects, is_managed, owner_reference
from ottla_operator.plan.conditions import Stalled
from ottla_operator.plan.objects import names
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.resources.model import Json


@dataclass(slots=True)
class OwnedResources:
    api: ApiClient
    _objects: OwnedObjects = field(init=False)

    def __post_init__(self) -> None:
        self._objects = OwnedObjects(self.api)

    async def ensure(self, owner: Json, resource: Json, cached: Json | None) -> Json | None:
        """Creates or updates the resource. Returns `cached` if its spec is already the desired one;
        else None, as the change has not been observed yet. Raises Blocked if the name is taken, or
        the operator's role does not allow the change.
        """
        if cached is not None and cached["spec"] == resource["spec"]:
            return cached
        metadata, labels = resource["metadata"], names.resource_labels(resource, resource["kind"].lower())
        owners = [owner_reference(owner) | {"controller": True}]
        desired = {**resource, "metadata": {**metadata, "labels": labels, "ownerReferences": owners}}
        try:
            await self._objects.apply(desired, await self._objects.find(desired))
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            reason = "UserNotReady" if resource["kind"] == "User" else "PipelineNotAllowed"
            name = f"{resource['kind']} {metadata['name']}"
            message = f"the operator is not allowed to create {name}: upgrade its Helm chart, which has the role"
            raise Blocked(Stalled(reason, message)) from error
        return None

    async def delete(self, owner: Json, cached: Json | None) -> None:
        """Deletes a resource that the cache has, if `owner` owns it."""
        if cached is None:
            return
        metadata, kind = cached["metadata"], kind_of(cached)
        live = await self.api.get(kind, metadata["namespace"], metadata["name"])
        if live is not None and is_managed(live) and is_owned_by(live, owner):
            await self.api.delete(kind, live)


def is_owned_by(resource: Json, owner: Json) -> bool:
    owners = resource["metadata"].get("ownerReferences") or []
    return owner["metadata"]["uid"] in {it["uid"] for it in owners}
