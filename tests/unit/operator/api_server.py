"""A stand-in for an API server, in memory: enough of it for what the operator asks. What real servers do otherwise, tests/kube shows."""

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from ottla_operator.kube.api import ApiError
from ottla_operator.kube.kinds import CLUSTER, NODE, POD, STATEFUL_SET, Kind, kind_of
from ottla_operator.kube.telling import now_text
from ottla_operator.plan.objects.merging import strategic_merge
from ottla_operator.resources.model import Json

STARTED = "2026-01-01T00:00:00Z"


@dataclass
class FakeApi:
    """`writes`: what was asked to be written, in order: `apply Service demo-brokers`. `unserved`: kinds whose CRD is not there."""

    objects: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    refuse: Callable[[str], ApiError | None] = lambda write: None
    unserved: set[str] = field(default_factory=set)
    _applied: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    _versions: "count[int]" = field(default_factory=lambda: count(1))

    def put(self, kind: Kind, it: Json) -> Json:
        """As somebody else than the operator."""
        metadata = it["metadata"]
        version = str(next(self._versions))
        metadata.setdefault("uid", f"u{version}")
        metadata.setdefault("creationTimestamp", STARTED)
        metadata["resourceVersion"] = version
        self.objects[kind.name, metadata.get("namespace") or "", metadata["name"]] = it
        return it

    def of(self, kind: str) -> dict[str, Json]:
        return {name: it for (its, _, name), it in sorted(self.objects.items()) if its == kind}

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        return copy.deepcopy(self.objects.get((kind.name, namespace or "", name)))

    async def serves(self, kind: Kind) -> bool:
        return kind.name not in self.unserved

    async def list(self, kind: Kind, namespace: str | None, selector: str = "") -> list[Json]:
        wanted = dict(it.split("=", 1) for it in selector.split(",") if it)
        return [
            copy.deepcopy(it)
            for (its, space, _), it in sorted(self.objects.items())
            if its == kind.name
            and space == (namespace or "")
            and wanted.items() <= (it["metadata"].get("labels") or {}).items()
        ]

    async def apply(self, wanted: Json) -> Json:
        """Lists are replaced whole, which the real one does only where it must."""
        self._write(f"apply {wanted['kind']} {wanted['metadata']['name']}")
        key = (wanted["kind"], wanted["metadata"].get("namespace") or "", wanted["metadata"]["name"])
        live = self.objects.get(key, {"metadata": {}})
        after = strategic_merge(_without(live, self._applied.get(key, {}), wanted), copy.deepcopy(wanted))
        self._applied[key] = copy.deepcopy(wanted)
        if after != live:
            self.put(kind_of(wanted), after)
        return copy.deepcopy(self.objects[key])

    async def apply_status(self, wanted: Json) -> Json:
        await asyncio.sleep(0)  # others have their turn meanwhile
        name = wanted["metadata"]["name"]
        self._write(f"status {wanted['kind']} {name}")  # a uid in it would not be noticed
        it = self.objects.get((wanted["kind"], wanted["metadata"]["namespace"], name))
        if it is None:
            raise ApiError(404, "gone")
        version = it["metadata"]["resourceVersion"]
        if wanted["metadata"].get("resourceVersion", version) != version:
            raise ApiError(409, "another version")
        it["status"] = copy.deepcopy(wanted["status"])
        return copy.deepcopy(self.put(kind_of(it), it))

    async def merge(self, kind: Kind, namespace: str, name: str, change: Json) -> Json:
        self._write(f"merge {kind.name} {name}")
        live = self.objects.get((kind.name, namespace, name))
        if live is None:
            raise ApiError(404, "gone")
        if (
            change.get("metadata", {}).get("resourceVersion", live["metadata"]["resourceVersion"])
            != live["metadata"]["resourceVersion"]
        ):
            raise ApiError(409, "another version")
        return copy.deepcopy(self.put(kind, strategic_merge(live, copy.deepcopy(change))))

    async def create(self, wanted: Json) -> Json:
        metadata = wanted["metadata"]
        if wanted["kind"] == "Event":
            return wanted
        self._write(f"create {wanted['kind']} {metadata['name']}")
        if (wanted["kind"], metadata.get("namespace") or "", metadata["name"]) in self.objects:
            raise ApiError(409, "there already")
        return copy.deepcopy(self.put(kind_of(wanted), copy.deepcopy(wanted)))

    async def delete(self, kind: Kind, it: Json, *, orphan: bool = False) -> None:
        metadata = it["metadata"]
        self._write(f"{'orphan' if orphan else 'delete'} {kind.name} {metadata['name']}")
        key = (kind.name, metadata.get("namespace") or "", metadata["name"])
        if key in self.objects and self.objects[key]["metadata"]["uid"] == metadata["uid"]:
            del self.objects[key]

    def _write(self, what: str) -> None:
        if refusal := self.refuse(what):
            raise refusal
        self.writes.append(what)

    # --- what controllers and kubelets do

    def cluster(self, spec: Json, name: str = "demo") -> Json:
        it = {
            "apiVersion": CLUSTER.api,
            "kind": "Cluster",
            "metadata": {"name": name, "namespace": "events", "generation": 1},
            "spec": spec,
        }
        return self.put(CLUSTER, {**it, "status": {}})

    def run_pods(self, *, ready: bool = False, trouble: Json | None = None) -> None:
        """Makes the pods that StatefulSets want, with the template as it is now; those that are there stay."""
        for it in self.of("StatefulSet").values():
            spec = it["spec"]
            for number in range(spec["ordinals"]["start"], spec["ordinals"]["start"] + spec["replicas"]):
                name = f"{it['metadata']['name']}-{number}"
                if (POD.name, "events", name) not in self.objects:
                    self.put(POD, _pod(name, spec["template"], ready, trouble))

    def node(self, name: str, labels: dict[str, str]) -> None:
        self.put(NODE, {"metadata": {"name": name, "labels": labels}})

    @property
    def stateful_set(self) -> Json:
        (it,) = self.of(STATEFUL_SET.name).values()
        return it


def _without(live: Json, before: Json, now: Json) -> Json:
    """What was applied before and is not applied now is given up."""
    if not (isinstance(live, dict) and isinstance(before, dict) and isinstance(now, dict)):
        return live
    return {
        key: _without(value, before.get(key), now.get(key))
        for key, value in live.items()
        if key in now or key not in before
    }


def _pod(name: str, template: Json, ready: bool, trouble: Json | None) -> Json:
    template = copy.deepcopy(template)
    since = STARTED if trouble else now_text()
    status: Json = {"conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": since}]}
    if trouble:
        status["containerStatuses"] = [{"name": "broker", "state": {"waiting": trouble}}]
    metadata = {**template["metadata"], "name": name, "namespace": "events"}
    return {"metadata": metadata, "spec": {**template["spec"], "nodeName": "one"}, "status": status}
