"""Every version of some kinds of resources of a namespace, recorded by watches.

Each version is evaluated as kstatus, `kubectl wait`, Flux and Argo CD evaluate it. Conditions that
contradict each other or the rest of the status are violations.
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
        statuses: list[str] = []
        for it in self.versions_of(kind, name, generation):
            if (status := kstatus(it)) not in statuses[-1:]:
                statuses.append(status)
        return statuses

    def find_violations(self) -> list[str]:
        """Describes all violations in all versions."""
        violations: list[str] = []
        previous: dict[str, Json] = {}  # by uid
        for it in list(self.versions):
            uid = it["metadata"]["uid"]
            version = f"{it['kind']} {it['metadata']['name']} {it['metadata']['resourceVersion']}"
            found = (*find_contradictions(it), *find_transition_violations(previous.get(uid, {}), it))
            violations += [f"{version}: {violation}" for violation in found]
            previous[uid] = it
        return violations

    def _watch(self, kind: str) -> None:
        """Appends every version of a kind's resources to `versions`; reconnects after errors."""
        path = f"/apis/{crds.GROUP}/{crds.VERSION}/namespaces/{self.namespace}/{kind}"
        version = ""
        while not self._stopped.is_set():
            try:
                if not version:
                    listed = self.api.request("GET", path)
                    version = listed["metadata"]["resourceVersion"]
                    self.versions += listed["items"]
                for event in self.api.watch(path, version):
                    if event["type"] == "ERROR":
                        version = "" if event["object"].get("code") == HTTP_GONE else version
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "DELETED":
                        self.versions.append(event["object"])
            except (OSError, ApiError, http.client.HTTPException, ValueError):
                self._stopped.wait(RETRY_PAUSE_S)  # the API server is unavailable; the next watch has the missed events


def find_contradictions(resource: Json) -> Iterator[str]:
    """Describes what is inconsistent within one version of a resource."""
    status, generation = resource.get("status") or {}, resource["metadata"]["generation"]
    conditions = {it["type"]: it for it in status.get("conditions") or []}
    true_types = {name for name in (READY, RECONCILING, STALLED) if conditions.get(name, {}).get("status") == "True"}
    if "observedGeneration" not in status:  # not reconciled yet
        if conditions.get(READY, {}).get("status") != "Unknown" or kstatus(resource) != "InProgress":
            yield f"not reconciled yet, but its conditions are {conditions}"
        return
    if missing := {READY, RECONCILING, STALLED} - conditions.keys():
        yield f"missing conditions: {', '.join(sorted(missing))}"
    if len(true_types) != 1:
        yield f"exactly one of Ready, Reconciling and Stalled must be True, not {sorted(true_types)}"
    observed = status["observedGeneration"]
    if observed > generation:
        yield f"observedGeneration {observed} is beyond generation {generation}"
    for name, it in conditions.items():
        if it.get("observedGeneration") != observed:
            yield f"observedGeneration of {name} is {it.get('observedGeneration')}, that of the status {observed}"
    if (move := status.get("reassignment")) and not 0 <= move["moved"] < move["total"]:
        yield f"reassignment {move} does not satisfy 0 <= moved < total"
    if kstatus(resource) == "Current":
        yield from _find_unmet_readiness(resource, true_types)


def _find_unmet_readiness(resource: Json, true_types: set[str]) -> Iterator[str]:
    """Describes what contradicts the kstatus Current of a resource."""
    status, spec = resource["status"], resource["spec"]
    if READY not in true_types:
        yield "Current but not Ready"
    if resource["kind"] == "Cluster":
        ready = [it["id"] for it in status.get("brokers") or [] if it["ready"]]
        if len(ready) != spec["replicas"] or status.get("readyReplicas") != spec["replicas"]:
            yield f"Current, but of {spec['replicas']} brokers only {ready} are ready"
        for key in ("roll", "reassignment", "underReplicated"):
            if status.get(key):
                yield f"Current with {key}: {status[key]}"
    if resource["kind"] == "Pipeline" and status.get("state") not in ("Running", "Suspended", "Finished"):
        yield f"Current in state {status.get('state')}"
    if resource["kind"] == "Mirror" and status.get("role") != spec.get("role", "Replicate"):
        yield f"Current in role {status.get('role')}"


def find_transition_violations(before: Json, after: Json) -> Iterator[str]:
    """Describes conditions whose lastTransitionTime changed although their status did not."""
    old = {it["type"]: it for it in (before.get("status") or {}).get("conditions") or []}
    for it in (after.get("status") or {}).get("conditions") or []:
        previous = old.get(it["type"])
        if (
            previous
            and previous["status"] == it["status"]
            and previous["lastTransitionTime"] != it["lastTransitionTime"]
        ):
            yield f"{it['type']} stays {it['status']}, but lastTransitionTime changes to {it['lastTransitionTime']}"
