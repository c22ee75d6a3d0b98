"""The Pipelines that the operator creates for Topics with a lake, which own them."""

from dataclasses import dataclass, field

from ottla_operator.kube.api import FORBIDDEN, ApiClient, ApiError
from ottla_operator.kube.kinds import PIPELINE
from ottla_operator.kube.owned_objects import OwnedObjects, is_managed, owner_reference
from ottla_operator.plan.conditions import Stalled
from ottla_operator.plan.objects import names
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.model import Json


@dataclass(slots=True)
class TopicPipelines:
    api: ApiClient
    cache: WatchCache
    _objects: OwnedObjects = field(init=False)

    def __post_init__(self) -> None:
        self._objects = OwnedObjects(self.api)

    async def ensure(self, topic: Json, pipeline: Json) -> Json | None:
        """See `Platform.ensure_topic_pipeline`."""
        metadata = pipeline["metadata"]
        known = self.cache.pipelines.get(Key(metadata["namespace"], metadata["name"]))
        if known is not None and known["spec"] == pipeline["spec"] and _is_owned(known, topic):
            return known
        owners = [owner_reference(topic) | {"controller": True}]
        labels = names.resource_labels(pipeline, "pipeline")
        desired = {**pipeline, "metadata": {**metadata, "labels": labels, "ownerReferences": owners}}
        try:
            await self._objects.apply(desired, await self._objects.find(desired))
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            message = f"the operator may not make Pipeline {metadata['name']}: upgrade the roles of its chart"
            raise Blocked(Stalled("PipelineNotAllowed", message)) from error
        return None

    async def delete(self, topic: Json, name: str) -> None:
        """See `Platform.delete_topic_pipeline`."""
        namespace = topic["metadata"]["namespace"]
        if not _is_owned(self.cache.pipelines.get(Key(namespace, name)), topic):
            return
        live = await self.api.get(PIPELINE, namespace, name)
        if live is not None and is_managed(live) and _is_owned(live, topic):
            await self.api.delete(PIPELINE, live)


def _is_owned(pipeline: Json | None, topic: Json) -> bool:
    owners = (pipeline or {}).get("metadata", {}).get("ownerReferences") or []
    return topic["metadata"]["uid"] in {it["uid"] for it in owners}
