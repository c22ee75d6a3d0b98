"""Creates, patches, reads and waits for the objects of one namespace."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla_operator.plan.conditions import kstatus
from ottla_operator.resources import crds
from tests.kube.api_client import ApiClient, Json
from tests.waiting import eventually

PLURALS = {it.name: it.plural for it in crds.KINDS}
API_ROOT = f"/apis/{crds.GROUP}/{crds.VERSION}"


@dataclass
class NamespaceClient:
    api: ApiClient
    namespace: str

    def create_namespace(self) -> None:
        self.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def path(self, plural: str, name: str = "") -> str:
        """Path of the project's resources of a kind, or of one of them."""
        return f"{API_ROOT}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def create(self, kind: str, name: str, spec: dict[str, Any]) -> Json:
        """Creates one of the project's resources and returns it as stored."""
        body = {"apiVersion": f"{crds.GROUP}/{crds.VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}
        return self.api.request("POST", self.path(PLURALS[kind]), body)

    def patch_spec(self, kind: str, name: str, spec: dict[str, Any]) -> Json:
        """Merges a patch into the spec; returns the resource."""
        return self.api.request("PATCH", self.path(PLURALS[kind], name), {"spec": spec})

    def run_pod(self, name: str, container: Json, *, pod_spec: Json, labels: Mapping[str, str]) -> tuple[bool, str]:
        """Runs a pod with one container to its end and deletes it. Returns whether it succeeded,
        and the log of the container.
        """
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        spec = {**pod_spec, "restartPolicy": "Never", "containers": [container]}
        self.api.request("POST", pods, {"metadata": {"name": name, "labels": dict(labels)}, "spec": spec})

        def final_phase() -> str:
            phase = str(((self.api.get(f"{pods}/{name}") or {}).get("status") or {}).get("phase"))
            return phase if phase in ("Succeeded", "Failed") else ""

        phase = eventually(final_phase, within_s=120, message=lambda: f"the end of {self.api.get(f'{pods}/{name}')}")
        log = self.api.request_text("GET", f"{pods}/{name}/log")
        self.api.request("DELETE", f"{pods}/{name}?gracePeriodSeconds=0")
        return phase == "Succeeded", log

    def delete(self, kind: str, name: str) -> None:
        self.api.request("DELETE", self.path(PLURALS[kind], name))

    def get(self, kind: str, name: str) -> Json:
        """One of the project's resources. Raises AssertionError if it does not exist."""
        found = self.api.get(self.path(PLURALS[kind], name))
        assert found is not None, f"{kind} {name} does not exist"
        return found

    def condition(self, kind: str, name: str, condition_type: str = "Ready") -> dict[str, str]:
        """A condition from the resource's status; empty if it has none of this type."""
        conditions = (self.get(kind, name).get("status") or {}).get("conditions") or []
        return next((it for it in conditions if it["type"] == condition_type), {})

    def wait_for_status(self, kind: str, name: str, status: str = "Current", within_s: float = 60.0) -> Json:
        """Waits until kstatus evaluates the resource to `status`, and returns the resource."""

        def resource_with_status() -> Json | None:
            resource = self.get(kind, name)
            return resource if kstatus(resource) == status else None

        try:
            resource = eventually(resource_with_status, within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{kind} {name} is not {status}: {self.get(kind, name).get('status')}") from error
        assert resource is not None
        return resource

    def list_objects(self, group: str, plural: str) -> dict[str, Json]:
        """All objects of a kind by name. `group` is v1 or group/version."""
        root = "/api/v1" if group == "v1" else f"/apis/{group}"
        items = self.api.request("GET", f"{root}/namespaces/{self.namespace}/{plural}")["items"]
        return {it["metadata"]["name"]: it for it in items}

    def resource_versions(self, kinds: Iterable[tuple[str, str]]) -> dict[str, str]:
        """resourceVersion of every object of these kinds, by plural and name. A kind is a
        pair of arguments of `list_objects`.
        """
        return {
            f"{plural}/{name}": it["metadata"]["resourceVersion"]
            for group, plural in kinds
            for name, it in self.list_objects(group, plural).items()
        }
