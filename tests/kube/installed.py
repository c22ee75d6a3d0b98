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

from tests.kube import helm
from tests.kube.api import Json
from tests.kube.cluster import Kube
from tests.kube.images import build
from tests.waiting import eventually

HOME = "ottla"
PODS = 2
LATEST_KILL_S = 6.0
VALUES = {
    "image.repository": f"{build.REGISTRY}/ottla-operator",
    "image.tag": "test",
    "broker.repository": f"{build.REGISTRY}/ottla-broker",
    "broker.version": "test",
    "pipelines.repository": f"{build.REGISTRY}/ottla-spark",
    "pipelines.tag": "test",
    "pipelines.pullPolicy": "Never",
    "rbac.secrets": "true",  # for certificates of listeners, and credentials of mirrors' sources
    "replicas": PODS,
    "resources.requests.cpu": "300m",  # else it starves on a machine that does other things
}


@dataclass
class Installed:
    kube: Kube

    def install(self) -> None:
        options = [part for key, value in VALUES.items() for part in ("--set", f"{key}={value}")]
        waits = ("--create-namespace", "--wait", "--timeout", "240s")
        done = helm.run("install", "ottla", helm.CHART, *self._where, *waits, *options)
        assert done.returncode == 0, done.stderr + self.said()

    def uninstall(self) -> None:
        done = helm.run("uninstall", "ottla", *self._where, "--wait")
        assert done.returncode == 0, done.stderr

    def pods(self) -> dict[str, Json]:
        found = self.kube.plane.admin.ask("GET", f"/api/v1/namespaces/{HOME}/pods")["items"]
        return {it["metadata"]["name"]: it for it in found}

    def whole(self) -> bool:
        """Whether all pods are Ready, so that a standby can take over."""
        return [ready(it) for it in self.pods().values()] == PODS * [True]

    def active(self) -> str:
        """Name of the pod that holds the operator's Lease; empty if none does."""
        lease = self.kube.plane.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/ottla-operator")
        holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or ""
        return str(holder).rpartition("-")[0]

    def kill(self, name: str = "") -> str:
        """Send SIGKILL to the operator process in the active pod, or in pod `name`, and return the
        pod's name. The pod remains.
        """
        name = name or self._holder()
        os.kill(process_of(self.kube, name), signal.SIGKILL)
        return name

    def delete(self) -> None:
        """Delete the active pod without a grace period."""
        name = self._holder()
        self.kube.plane.admin.ask("DELETE", f"/api/v1/namespaces/{HOME}/pods/{name}?gracePeriodSeconds=0")

    def _holder(self) -> str:
        """Wait until the Lease names an existing pod, and return its name. After a deletion the
        Lease names the deleted pod for a while.
        """
        return eventually(lambda: (now := self.active()) in self.pods() and now, within_s=60, message=self.said) or ""

    @contextmanager
    def killed_meanwhile(self, seed: str) -> Iterator[None]:
        """Delete the active pod at a random moment, derived from `seed`, during the block or just
        after it.
        """
        moment_s = random.Random(seed).uniform(0, LATEST_KILL_S)

        def kill() -> None:
            time.sleep(moment_s)
            self.delete()

        with ThreadPoolExecutor(1) as killer:
            killed = killer.submit(kill)
            yield
            killed.result()

    def scale(self, replicas: int) -> None:
        deployment = f"/apis/apps/v1/namespaces/{HOME}/deployments/ottla"
        self.kube.plane.admin.ask("PATCH", deployment, {"spec": {"replicas": replicas}})
        eventually(lambda: len(self.pods()) == replicas, within_s=60, message=self.said)

    def figures(self) -> dict[str, float]:
        """Of the active one."""
        pod = self.pods()[eventually(self.active)]
        with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080/metrics", timeout=5) as answer:
            lines = [it for it in answer.read().decode().splitlines() if not it.startswith("#")]
        return {name: float(value) for name, _, value in (it.rpartition(" ") for it in lines)}

    def writes(self) -> dict[str, float]:
        """Number of writes by kind, without renewals of the operator's Lease."""
        begin = "ottla_operator_writes_total{"
        return {it: value for it, value in self.figures().items() if it.startswith(begin) and '"Lease"' not in it}

    def looks(self, kind: str) -> float:
        return self.figures().get(f'ottla_operator_reconciles_total{{kind="{kind}",result="done"}}', 0)

    def resident_kib(self) -> int:
        """Of the active one."""
        status = Path(f"/proc/{process_of(self.kube, eventually(self.active))}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    def said(self) -> str:
        """States and logs of the operator's pods, for assertion messages."""
        return told(self.kube, HOME, "")

    @property
    def _where(self) -> tuple[str | Path, ...]:
        return ("--kubeconfig", self.kube.plane.kubeconfig(), "--namespace", HOME)


def ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return "deletionTimestamp" not in pod["metadata"] and any(
        it["type"] == "Ready" and it["status"] == "True" for it in conditions
    )


def told(kube: Kube, namespace: str, prefix: str) -> str:
    """States and logs of the pods whose names begin with `prefix`, for assertion messages."""
    api, found = kube.plane.admin, []
    for pod in api.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]:
        name = pod["metadata"]["name"]
        if not name.startswith(prefix):
            continue
        try:
            log = api.ask_text("GET", f"/api/v1/namespaces/{namespace}/pods/{name}/log?tailLines=30")
        except Exception as error:  # noqa: BLE001 - it is for a message about something worse
            log = f"(no log: {error})"
        found.append(f"{name}: {pod['status'].get('containerStatuses')}\n{log}")
    return "\n".join(found)


def process_of(kube: Kube, pod: str) -> int:
    """The id of the process of a pod whose container has the pod's name in POD_NAME."""
    mark = f"POD_NAME={pod}".encode()
    for node in kube.nodes:
        for pid in node.machine.processes():
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if mark in environment:
                return pid
    raise AssertionError(f"no process of pod {pod} runs")
