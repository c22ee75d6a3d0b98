"""The operator installed from the chart by a real helm: two pods, of which one is active."""

import os
import random
import signal
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.daemons import resident_memory_kib
from tests.kube import helm
from tests.kube.api_client import Json
from tests.kube.cluster import Kubernetes
from tests.kube.images import build
from tests.waiting import eventually

OPERATOR_NAMESPACE = "ottla"
REPLICAS = 2
MAX_DELETION_DELAY_S = 6.0
VALUES = {
    "image.repository": f"{build.REGISTRY}/ottla-operator",
    "image.tag": "test",
    "broker.repository": f"{build.REGISTRY}/ottla-broker",
    "broker.version": "test",
    "pipelines.repository": f"{build.REGISTRY}/ottla-spark",
    "pipelines.tag": "test",
    "pipelines.pullPolicy": "Never",
    "rbac.secrets": "true",  # certificates of listeners, credentials of mirrors' sources
    "replicas": REPLICAS,
    "resources.requests.cpu": "300m",  # the tests share the machine with the brokers
}


@dataclass
class InstalledOperator:
    """The release `ottla` in the namespace `ottla`."""

    kube: Kubernetes

    def install(self) -> None:
        """Installs the chart and returns when all pods are Ready."""
        self._apply("install", "--create-namespace")

    def upgrade(self, *values: str) -> None:
        """Upgrades the release to the installation's values and `values`, each `name=value`, and
        returns when all pods are Ready.
        """
        self._apply("upgrade", *(part for value in values for part in ("--set", value)))

    def _apply(self, verb: str, *options: str) -> None:
        values = [part for key, value in VALUES.items() for part in ("--set", f"{key}={value}")]
        wait_options = ("--wait", "--timeout", "240s")
        done = helm.run(verb, "ottla", helm.CHART, *self._helm_target, *wait_options, *values, *options)
        assert done.returncode == 0, done.stderr + self.describe_pods()

    def uninstall(self) -> None:
        done = helm.run("uninstall", "ottla", *self._helm_target, "--wait")
        assert done.returncode == 0, done.stderr

    def pods(self) -> dict[str, Json]:
        """The operator's pods by name."""
        pods = self.kube.plane.admin.request("GET", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods")["items"]
        return {it["metadata"]["name"]: it for it in pods}

    def are_all_pods_ready(self) -> bool:
        """True if all pods are Ready, so that a standby can take over."""
        return [is_pod_ready(it) for it in self.pods().values()] == REPLICAS * [True]

    def active_pod(self) -> str:
        """Name of the pod that holds the operator's Lease; empty if none does."""
        lease = self.kube.plane.admin.get(
            f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/ottla-operator"
        )
        holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or ""
        return str(holder).rpartition("-")[0]

    def kill_process(self, name: str = "") -> str:
        """Sends SIGKILL to the operator process in the active pod, or in pod `name`, and returns
        the pod's name. The pod remains.
        """
        name = name or self._wait_for_active_pod()
        os.kill(find_process(self.kube, name), signal.SIGKILL)
        return name

    def delete_active_pod(self) -> None:
        """Deletes the active pod without a grace period."""
        name = self._wait_for_active_pod()
        self.kube.plane.admin.request(
            "DELETE", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{name}?gracePeriodSeconds=0"
        )

    def _wait_for_active_pod(self) -> str:
        """Waits until the Lease names an existing pod, and returns its name. After a deletion the
        Lease names the deleted pod for a while.
        """

        def existing_active_pod() -> str:
            name = self.active_pod()
            return name if name in self.pods() else ""

        return eventually(existing_active_pod, within_s=60, message=self.describe_pods)

    @contextmanager
    def active_pod_deleted(self, seed: str) -> Iterator[None]:
        """Deletes the active pod at a random moment, derived from `seed`, during the block or just
        after it.
        """
        delay_s = random.Random(seed).uniform(0, MAX_DELETION_DELAY_S)

        def delete_after_delay() -> None:
            time.sleep(delay_s)
            self.delete_active_pod()

        with ThreadPoolExecutor(1) as executor:
            deletion = executor.submit(delete_after_delay)
            yield
            deletion.result()

    def scale(self, replicas: int) -> None:
        """Changes the number of pods and returns when there are as many."""
        deployment = f"/apis/apps/v1/namespaces/{OPERATOR_NAMESPACE}/deployments/ottla"
        self.kube.plane.admin.request("PATCH", deployment, {"spec": {"replicas": replicas}})
        eventually(lambda: len(self.pods()) == replicas, within_s=60, message=self.describe_pods)

    def metrics(self) -> dict[str, float]:
        """Metrics of the active pod by name and labels, as in /metrics."""
        pod = self.pods()[eventually(self.active_pod)]
        with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080/metrics", timeout=5) as response:
            lines = [it for it in response.read().decode().splitlines() if not it.startswith("#")]
        return {name: float(value) for name, _, value in (it.rpartition(" ") for it in lines)}

    def count_writes(self) -> dict[str, float]:
        """Number of writes by metric name and labels, without renewals of the operator's Lease."""
        prefix = "ottla_operator_writes_total{"
        return {it: value for it, value in self.metrics().items() if it.startswith(prefix) and '"Lease"' not in it}

    def count_reconciles(self, kind: str) -> float:
        """Number of completed reconciles of a kind by the active pod."""
        return self.metrics().get(f'ottla_operator_reconciles_total{{kind="{kind}",result="done"}}', 0)

    def resident_memory_kib(self) -> int:
        """Resident memory of the active operator process."""
        return resident_memory_kib(find_process(self.kube, eventually(self.active_pod)))

    def describe_pods(self) -> str:
        """States and logs of the operator's pods, for assertion messages."""
        return describe_pods(self.kube, OPERATOR_NAMESPACE, "")

    @property
    def _helm_target(self) -> tuple[str | Path, ...]:
        return ("--kubeconfig", self.kube.plane.kubeconfig(), "--namespace", OPERATOR_NAMESPACE)


def is_pod_ready(pod: Json) -> bool:
    """True if a pod is Ready and not being deleted."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return "deletionTimestamp" not in pod["metadata"] and any(
        it["type"] == "Ready" and it["status"] == "True" for it in conditions
    )


def describe_pods(kube: Kubernetes, namespace: str, prefix: str) -> str:
    """States and logs of the pods whose names begin with `prefix`, for assertion messages."""
    api, descriptions = kube.plane.admin, []
    for pod in api.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]:
        name = pod["metadata"]["name"]
        if not name.startswith(prefix):
            continue
        try:
            log = api.request_text("GET", f"/api/v1/namespaces/{namespace}/pods/{name}/log?tailLines=30")
        except Exception as error:  # noqa: BLE001 - the assertion message must not hide the original failure
            log = f"(no log: {error})"
        descriptions.append(f"{name}: {pod['status'].get('containerStatuses')}\n{log}")
    return "\n".join(descriptions)


def find_process(kube: Kubernetes, pod: str) -> int:
    """The id of a process with the pod's name in POD_NAME. Raises AssertionError without one."""
    variable = f"POD_NAME={pod}".encode()
    for node in kube.nodes:
        for pid in node.machine.list_processes():
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if variable in environment:
                return pid
    raise AssertionError(f"pod {pod} has no running process")
