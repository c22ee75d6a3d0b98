"""Operators as processes, and a client for the resources of one namespace."""

import os
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla_operator.crd_files import build_crd
from ottla_operator.plan.conditions import kstatus
from ottla_operator.resources import crds
from tests.daemons import Daemon
from tests.kube.api_client import ApiClient, Json
from tests.kube.images.build import REGISTRY
from tests.ports import free_port
from tests.waiting import eventually

CHECKOUT = Path(__file__).parents[2]
API_ROOT = f"/apis/{crds.GROUP}/{crds.VERSION}"


@dataclass
class OperatorProcess:
    folder: Path
    kubeconfig: Path
    name: str = "operator"
    lease: str = "ottla-operator"
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "ottla_operator.cli", "operator", "--http", f"127.0.0.1:{self.port}"]
        paths = os.pathsep.join(str(CHECKOUT / it) for it in ("broker-image", "operator"))
        environment = {
            "KUBECONFIG": str(self.kubeconfig),
            "PYTHONPATH": paths,
            "OTTLA_BROKER_IMAGE": f"{REGISTRY}/ottla-broker",
            "OTTLA_BROKER_VERSION": "test",
            "OTTLA_SPARK_IMAGE": f"{REGISTRY}/ottla-spark:test",
            "POD_NAMESPACE": "default",
            "POD_NAME": self.name,
            "OTTLA_OPERATOR_LEASE": self.lease,
        }
        self.daemon = Daemon(command, self.folder / f"{self.name}.log", environment)

    def start(self) -> None:
        self.daemon.start()
        eventually(self.serves_metrics, message=f"{self.name} serves its figures: {self.daemon.log_tail()}")

    def serves_metrics(self) -> bool:
        try:
            return bool(self.metrics())
        except OSError:
            assert self.daemon.is_running(), self.daemon.log_tail()
            return False

    @property
    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:
            return False

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (it.rpartition(" ") for it in lines if not it.startswith("#"))}

    @property
    def is_active(self) -> bool:
        return self.metrics()["ottla_operator_active"] == 1

    def count_reconciles(self, kind: str = "Cluster") -> float:
        return self.metrics().get(f'ottla_operator_reconciles_total{{kind="{kind}",result="done"}}', 0)

    def count_writes(self) -> dict[str, float]:
        """Number of writes by kind, without renewals of the operator's Lease."""
        begin = 'ottla_operator_writes_total{kind="'
        found = {it[len(begin) : -2]: value for it, value in self.metrics().items() if it.startswith(begin)}
        return {kind: value for kind, value in found.items() if kind != "Lease"}


@dataclass
class NamespaceClient:
    """Creates, patches, reads and waits for the objects of one namespace; short for the API
    requests that tests repeat.
    """

    api: ApiClient
    namespace: str

    def create_namespace(self) -> None:
        self.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def path(self, plural: str, name: str = "") -> str:
        return f"{API_ROOT}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def create(self, kind: str, name: str, spec: dict[str, Any]) -> Json:
        body = {"apiVersion": f"{crds.GROUP}/{crds.VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}
        return self.api.request("POST", self.path(f"{kind.lower()}s"), body)

    def patch_spec(self, kind: str, name: str, spec: dict[str, Any]) -> Json:
        """Merge a patch into the spec."""
        return self.api.request("PATCH", self.path(f"{kind.lower()}s", name), {"spec": spec})

    def delete(self, kind: str, name: str) -> None:
        self.api.request("DELETE", self.path(f"{kind.lower()}s", name))

    def get(self, kind: str, name: str) -> Json:
        found = self.api.get(self.path(f"{kind.lower()}s", name))
        assert found is not None, f"there is no {kind} {name}"
        return found

    def condition(self, kind: str, name: str, condition_type: str = "Ready") -> dict[str, str]:
        conditions = (self.get(kind, name).get("status") or {}).get("conditions") or []
        return next((it for it in conditions if it["type"] == condition_type), {})

    def wait_for_status(self, kind: str, name: str, status: str = "Current", within_s: float = 60.0) -> Json:
        """Wait until kstatus evaluates the resource to `status`, and return the resource."""

        def there() -> Json | None:
            found = self.get(kind, name)
            return found if kstatus(found) == status else None

        try:
            found = eventually(there, within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{kind} {name} is not {status}: {self.get(kind, name).get('status')}") from error
        assert found is not None
        return found

    def list_objects(self, group: str, plural: str) -> dict[str, Json]:
        """All objects of a kind by name. `group` is v1 or group/version."""
        root = "/api/v1" if group == "v1" else f"/apis/{group}"
        items = self.api.request("GET", f"{root}/namespaces/{self.namespace}/{plural}")["items"]
        return {it["metadata"]["name"]: it for it in items}


def install_crds(api: ApiClient) -> None:
    for kind in crds.KINDS:
        crd = build_crd(kind)
        name = crd["metadata"]["name"]
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        api.request("APPLY", f"{path}?fieldManager=tests&force=true", crd)

        def established(path: str = path) -> bool:
            conditions = (api.get(path) or {}).get("status", {}).get("conditions") or []
            return any(it["type"] == "Established" and it["status"] == "True" for it in conditions)

        eventually(established, message=f"{name} is served")
