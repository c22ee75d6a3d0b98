"""Kubernetes' own scheduler packs brokers as `brokersPerNode` says.

The nodes are objects of a real API server without kubelets: pods are assigned to them and stay
pending there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import pytest

from tests.kube.control_plane import ControlPlane
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.kube.volume_provisioner import VolumeProvisioner
from tests.waiting import eventually

CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "110"}


@pytest.fixture(scope="module", autouse=True)
def controllers(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    plane.start_controllers()
    volumes = VolumeProvisioner(plane.admin, tmp_path_factory.mktemp("volumes") / "folders")
    volumes.start()
    yield
    volumes.stop()


def add_node(plane: ControlPlane, name: str) -> None:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    plane.admin.request("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})


def report_ready(plane: ControlPlane, name: str) -> None:
    """Sends a heartbeat as a kubelet does. Without one for twelve seconds, the node is tainted."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
    status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [ready]}
    plane.admin.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})


def wait_for(
    plane: ControlPlane, nodes: Sequence[str], condition: Callable[[], bool], message: Callable[[], str]
) -> None:
    """Waits for the condition while the nodes send heartbeats."""

    def holds() -> bool:
        for node in nodes:
            report_ready(plane, node)
        return condition()

    eventually(holds, within_s=120, message=message)


def count_pods(resources: NamespaceClient) -> dict[str | None, int]:
    """Number of pods by the node that they are assigned to; None is for pods without a node."""
    return Counter(it["spec"].get("nodeName") for it in resources.list_objects("v1", "pods").values())


def says_why_a_pod_is_pending(resources: NamespaceClient) -> bool:
    ready = resources.condition("Cluster", "demo")
    return ready.get("reason") == "Unschedulable" and "topology spread constraints" in ready["message"]


def test_a_node_takes_no_more_brokers_than_brokers_per_node(
    plane: ControlPlane, resources: NamespaceClient, operator: OperatorProcess
) -> None:
    nodes = ["node-1", "node-2", "node-3"]
    for name in nodes:
        add_node(plane, name)
        report_ready(plane, name)
    resources.create("Cluster", "demo", {"replicas": 7, "brokersPerNode": 2, "storage": {"size": "1Gi"}})
    packed = {"node-1": 2, "node-2": 2, "node-3": 2, None: 1}
    wait_for(plane, nodes, lambda: count_pods(resources) == packed, lambda: f"{count_pods(resources)}")
    wait_for(
        plane,
        nodes,
        lambda: says_why_a_pod_is_pending(resources),
        lambda: f"{resources.condition('Cluster', 'demo')}",
    )
    add_node(plane, "node-4")
    nodes.append("node-4")
    packed = {"node-1": 2, "node-2": 2, "node-3": 2, "node-4": 1}
    wait_for(plane, nodes, lambda: count_pods(resources) == packed, lambda: f"{count_pods(resources)}")
