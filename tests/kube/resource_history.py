"""Every version of the resources of a namespace, recorded by watches.

Each version is evaluated as kstatus, `kubectl wait`, Flux and Argo CD evaluate it. Conditions that
contradict each other, or that apply to an older generation than they claim, are violations.
"""

import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla_operator.plan.conditions import READY, RECONCILING, STALLED, kstatus
from ottla_operator.resources import crds
from tests.kube.api_client import ApiClient, ApiError, Json

RETRY_PAUSE_S = 0.1
HTTP_GONE = 410


@dataclass
class ResourceHistory:
    """Watches until the end of the `with` block. `versions` are in the order in which they were
    written, per kind.
    """

    api: ApiClient
    namespace: str
    kinds: tuple[str, ...] = ("clusters", "topics", "pipelines", "mirrors")
    versions: list[Json] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "ResourceHistory":
        self._watch_threads = [threading.Thread(target=self._watch, args=(it,), daemon=True) for it in self.kinds]
        for it in self._watch_threads:
            it.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def versions_of(self, kind: str, name: str, generation: int) -> list[Json]:
        """Versions of one resource whose generation is at least `generation`."""
        return [
            it
            for it in list(self.versions)
            if it["kind"] == kind and it["metadata"]["name"] == name and it["metadata"]["generation"] >= generation
        ]

    def kstatuses_of(self, kind: str, name: str, generation: int) -> list[str]:
        """The kstatus results of these versions in order, without consecutive repetitions."""
        found: list[str] = []
        for it in self.versions_of(kind, name, generation):
            if (now := kstatus(it)) not in found[-1:]:
                found.append(now)
        return found

    def find_violations(self) -> list[str]:
        found: list[str] = []
        before: dict[str, Json] = {}
        for it in list(self.versions):
            uid = it["metadata"]["uid"]
            about = f"{it['kind']} {it['metadata']['name']} {it['metadata']['resourceVersion']}"
            found += [
                f"{about}: {why}"
                for why in (*find_contradictions(it), *find_transition_violations(before.get(uid, {}), it))
            ]
            before[uid] = it
        return found

    def _watch(self, kind: str) -> None:
        path = f"/apis/{crds.GROUP}/{crds.VERSION}/namespaces/{self.namespace}/{kind}"
        version = ""
        while not self._stopped.is_set():
            try:
                if not version:
                    found = self.api.request("GET", path)
                    version = found["metadata"]["resourceVersion"]
                    self.versions += found["items"]
                for event in self.api.watch(path, version):
                    if event["type"] == "ERROR":
                        version = "" if event["object"].get("code") == HTTP_GONE else version
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "DELETED":
                        self.versions.append(event["object"])
            except (OSError, ApiError, http.client.HTTPException, ValueError):
                self._stopped.wait(RETRY_PAUSE_S)  # the API server is away: what happened meanwhile is told afterwards


def find_contradictions(resource: Json) -> Iterator[str]:
    """Describe what is inconsistent within one version of a resource."""
    status, generation = resource.get("status") or {}, resource["metadata"]["generation"]
    conditions = {it["type"]: it for it in status.get("conditions") or []}
    holding = {name for name in (READY, RECONCILING, STALLED) if conditions.get(name, {}).get("status") == "True"}
    if "observedGeneration" not in status:  # nobody has looked at it yet
        if conditions.get(READY, {}).get("status") != "Unknown" or kstatus(resource) != "InProgress":
            yield f"nobody has looked at it, and it is {conditions}"
        return
    if missing := {READY, RECONCILING, STALLED} - conditions.keys():
        yield f"there is no {', '.join(sorted(missing))}"
    if len(holding) != 1:
        yield f"of Ready, Reconciling and Stalled these hold: {sorted(holding)}"
    looked = status["observedGeneration"]
    if looked > generation:
        yield f"generation {looked} was observed before {generation}"
    for name, it in conditions.items():
        if it.get("observedGeneration") != looked:
            yield f"{name} is of generation {it.get('observedGeneration')}, the status of {looked}"
    if (move := status.get("reassignment")) and not 0 <= move["moved"] < move["total"]:
        yield f"so many partitions move: {move}"
    if kstatus(resource) == "Current":
        yield from _find_unmet_readiness(resource, holding)


def _find_unmet_readiness(resource: Json, holding: set[str]) -> Iterator[str]:
    """Describe what contradicts the kstatus Current of a resource."""
    status, spec = resource["status"], resource["spec"]
    if READY not in holding:
        yield "it passes for current and is not Ready"
    if resource["kind"] == "Cluster":
        ready = [it["id"] for it in status.get("brokers") or [] if it["ready"]]
        if len(ready) != spec["replicas"] or status.get("readyReplicas") != spec["replicas"]:
            yield f"it passes for current with {ready} of {spec['replicas']} brokers ready"
        for part in ("roll", "reassignment", "underReplicated"):
            if status.get(part):
                yield f"it passes for current with {part}: {status[part]}"
    if resource["kind"] == "Pipeline" and status.get("state") not in ("Running", "Suspended", "Finished"):
        yield f"it passes for current and is {status.get('state')}"
    if resource["kind"] == "Mirror" and status.get("role") != spec.get("role", "Replicate"):
        yield f"it passes for current in role {status.get('role')}"


def find_transition_violations(before: Json, after: Json) -> Iterator[str]:
    """Describe conditions whose lastTransitionTime changed although their status did not."""
    old = {it["type"]: it for it in (before.get("status") or {}).get("conditions") or []}
    for it in (after.get("status") or {}).get("conditions") or []:
        was = old.get(it["type"])
        if was and was["status"] == it["status"] and was["lastTransitionTime"] != it["lastTransitionTime"]:
            yield f"{it['type']} stays {it['status']}, and its time becomes {it['lastTransitionTime']}"
