"""An API server in memory for the operator's requests. tests/kube runs against a real one."""

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from ottla_operator.kube.api import ApiError
from ottla_operator.kube.kinds import CLUSTER, NODE, POD, STATEFUL_SET, ObjectKind, kind_of
from ottla_operator.kube.status_writer import now_text
from ottla_operator.plan.objects.pod_template_merge import strategic_merge
from ottla_operator.resources.model import Json

STARTED = "2026-01-01T00:00:00Z"


@dataclass
class FakeApi:
    """`writes`: accepted writes in order, such as `apply Service demo-brokers`. `reject`: returns
    the error of a write; None accepts it. `unserved`: kinds whose CRD is not installed. `events`:
    reasons and messages of recorded events.
    """

    objects: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    reject: Callable[[str], ApiError | None] = lambda write: None
    unserved: set[str] = field(default_factory=set)
    events: list[tuple[str, str]] = field(default_factory=list)
    _applied: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    _versions: "count[int]" = field(default_factory=lambda: count(1))

    def put(self, kind: ObjectKind, resource: Json) -> Json:
        """Creates or replaces an object, as a client other than the operator."""
        metadata = resource["metadata"]
        version = str(next(self._versions))
        metadata.setdefault("uid", f"u{version}")
        metadata.setdefault("creationTimestamp", STARTED)
        metadata["resourceVersion"] = version
        self.objects[kind.name, metadata.get("namespace") or "", metadata["name"]] = resource
        return resource

    def of(self, kind: str) -> dict[str, Json]:
        """Objects of a kind by name."""
        return {name: it for (its_kind, _, name), it in sorted(self.objects.items()) if its_kind == kind}

    async def get(self, kind: ObjectKind, namespace: str | None, name: str) -> Json | None:
        return copy.deepcopy(self.objects.get((kind.name, namespace or "", name)))

    async def serves(self, kind: ObjectKind) -> bool:
        return kind.name not in self.unserved

    async def list(self, kind: ObjectKind, namespace: str | None, selector: str = "", fields: str = "") -> list[Json]:
        wanted = dict(it.split("=", 1) for it in fields.split(",") if it)
        labels = dict(it.split("=", 1) for it in selector.split(",") if it)
        return [
            copy.deepcopy(it)
            for (its_kind, its_namespace, _), it in sorted(self.objects.items())
            if its_kind == kind.name
            and its_namespace == (namespace or "")
            and labels.items() <= (it["metadata"].get("labels") or {}).items()
            and all(_field(it, path) == value for path, value in wanted.items())
        ]

    async def apply(self, desired: Json) -> Json:
        """Replaces whole lists, as a real API server does only for atomic lists."""
        self._write(f"apply {desired['kind']} {desired['metadata']['name']}")
        key = (desired["kind"], desired["metadata"].get("namespace") or "", desired["metadata"]["name"])
        live = self.objects.get(key, {"metadata": {}})
        after = strategic_merge(_without(live, self._applied.get(key, {}), desired), copy.deepcopy(desired))
        self._applied[key] = copy.deepcopy(desired)
        if after != live:
            self.put(kind_of(desired), after)
        return copy.deepcopy(self.objects[key])

    async def apply_status(self, desired: Json) -> Json:
        """Raises ApiError: 404 if there is no object, 409 if the status names another resource
        version.
        """
        await asyncio.sleep(0)  # other tasks run meanwhile
        name = desired["metadata"]["name"]
        self._write(f"status {desired['kind']} {name}")  # a uid is ignored, as by a real API server
        it = self.objects.get((desired["kind"], desired["metadata"]["namespace"], name))
        if it is None:
            raise ApiError(404, "gone")
        version = it["metadata"]["resourceVersion"]
        if desired["metadata"].get("resourceVersion", version) != version:
            raise ApiError(409, "conflict")
        it["status"] = copy.deepcopy(desired["status"])
        return copy.deepcopy(self.put(kind_of(it), it))

    async def merge(self, kind: ObjectKind, namespace: str, name: str, change: Json) -> Json:
        """Raises ApiError: 404 if there is no object, 409 if the change names another resource
        version.
        """
        self._write(f"merge {kind.name} {name}")
        live = self.objects.get((kind.name, namespace, name))
        if live is None:
            raise ApiError(404, "gone")
        if (
            change.get("metadata", {}).get("resourceVersion", live["metadata"]["resourceVersion"])
            != live["metadata"]["resourceVersion"]
        ):
            raise ApiError(409, "conflict")
        return copy.deepcopy(self.put(kind, strategic_merge(live, copy.deepcopy(change))))

    async def create(self, desired: Json) -> Json:
        """Raises ApiError 409 if the object exists. Events are recorded only."""
        metadata = desired["metadata"]
        if desired["kind"] == "Event":
            self.events.append((desired["reason"], desired["message"]))
            return desired
        self._write(f"create {desired['kind']} {metadata['name']}")
        if (desired["kind"], metadata.get("namespace") or "", metadata["name"]) in self.objects:
            raise ApiError(409, "already exists")
        return copy.deepcopy(self.put(kind_of(desired), copy.deepcopy(desired)))

    async def delete(self, kind: ObjectKind, resource: Json, *, orphan: bool = False) -> None:
        metadata = resource["metadata"]
        self._write(f"{'orphan' if orphan else 'delete'} {kind.name} {metadata['name']}")
        key = (kind.name, metadata.get("namespace") or "", metadata["name"])
        if key in self.objects and self.objects[key]["metadata"]["uid"] == metadata["uid"]:
            del self.objects[key]

    def _write(self, what: str) -> None:
        if error := self.reject(what):
            raise error
        self.writes.append(what)

    # What people, controllers and kubelets do.

    def put_cluster(self, spec: Json) -> Json:
        """Creates the Cluster `demo`."""
        it = {
            "apiVersion": CLUSTER.api,
            "kind": "Cluster",
            "metadata": {"name": "demo", "namespace": "events", "generation": 1},
            "spec": spec,
        }
        return self.put(CLUSTER, {**it, "status": {}})

    def run_pods(self, *, ready: bool = False, waiting: Json | None = None) -> None:
        """Creates the missing pods of StatefulSets with the current template."""
        for it in self.of("StatefulSet").values():
            spec = it["spec"]
            for number in range(spec["ordinals"]["start"], spec["ordinals"]["start"] + spec["replicas"]):
                name = f"{it['metadata']['name']}-{number}"
                if (POD.name, "events", name) not in self.objects:
                    self.put(POD, _pod(name, spec["template"], ready, waiting))

    def put_node(self, name: str, labels: dict[str, str]) -> None:
        self.put(NODE, {"metadata": {"name": name, "labels": labels}})

    @property
    def stateful_set(self) -> Json:
        (it,) = self.of(STATEFUL_SET.name).values()
        return it


def _field(resource: Json, path: str) -> Json:
    for step in path.split("."):
        resource = resource.get(step) or {}
    return resource


def _without(live: Json, before: Json, now: Json) -> Json:
    """Removes the fields that were applied before and are not applied now."""
    if not (isinstance(live, dict) and isinstance(before, dict) and isinstance(now, dict)):
        return live
    return {
        key: _without(value, before.get(key), now.get(key))
        for key, value in live.items()
        if key in now or key not in before
    }


def _pod(name: str, template: Json, ready: bool, waiting: Json | None) -> Json:
    template = copy.deepcopy(template)
    since = STARTED if waiting else now_text()
    status: Json = {"conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": since}]}
    if waiting:
        status["containerStatuses"] = [{"name": "broker", "state": {"waiting": waiting}}]
    metadata = {**template["metadata"], "name": name, "namespace": "events"}
    return {"metadata": metadata, "spec": {**template["spec"], "nodeName": "one"}, "status": status}
