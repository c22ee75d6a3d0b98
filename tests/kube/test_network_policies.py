"""NetworkPolicies on a node that enforces them: brokers and the operator reach each other, and
clients reach only the listeners that admit them.
"""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.kube.api_client import Json
from tests.kube.images import build
from tests.kube.installed_operator import InstalledOperator
from tests.kube.managed_cluster import READY_WITHIN_S
from tests.kube.namespace_client import NamespaceClient
from tests.kube.network_plugin import enforce_network_policies

CLUSTER = "guarded"
GUARDED, OPEN, BETWEEN_BROKERS = 9092, 9094, 9091
# The plugin learns of a new pod's labels shortly after the pod has started.
CONNECT = """
import socket, sys, time
until = time.monotonic() + 15
while True:
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3)
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.2)
"""
LISTENERS: list[Json] = [
    {
        "name": "guarded",
        "port": GUARDED,
        "networkPolicyPeers": [{"podSelector": {"matchLabels": {"role": "client"}}}],
    },
    {"name": "open", "port": OPEN},
]


@pytest.fixture(scope="module")
def guarded(installed_operator: InstalledOperator) -> Iterator[NamespaceClient]:
    """A namespace with a Cluster of two brokers, started while policies are enforced."""
    kube = installed_operator.kube
    resources = NamespaceClient(kube.plane.admin, "guarded")
    resources.create_namespace()
    with enforce_network_policies(kube.nodes[0], kube.plane):
        spec = {"replicas": 2, "storage": {"size": "1Gi"}, "resources": {"requests": {"cpu": "100m"}}}
        resources.create("Cluster", CLUSTER, {**spec, "listeners": LISTENERS})
        resources.wait_for_status("Cluster", CLUSTER, within_s=READY_WITHIN_S)
        yield resources
        resources.delete("Cluster", CLUSTER)


def can_connect(resources: NamespaceClient, port: int, **labels: str) -> bool:
    """True if a new pod with these labels connects to a port of the first broker."""
    address = resources.list_objects("v1", "pods")[f"{CLUSTER}-1"]["status"]["podIP"]
    name = f"client-{uuid4().hex[:8]}"
    container: Json = {
        "name": "client",
        "image": f"{build.REGISTRY}/ottla-broker:test",
        "imagePullPolicy": "Never",
        "command": ["python", "-c", CONNECT, address, str(port)],
    }
    has_succeeded, log = resources.run_pod(name, container, pod_spec={}, labels=labels)
    assert has_succeeded or "TimeoutError" in log or "Connection refused" in log, log
    return has_succeeded


@pytest.mark.timeout(900)  # the images may have to be built
def test_brokers_and_the_operator_reach_each_other(guarded: NamespaceClient) -> None:
    guarded.create("Topic", "copied", {"clusterRef": {"name": CLUSTER}, "partitions": 2, "replicas": 2})
    status = guarded.wait_for_status("Topic", "copied", within_s=60)["status"]
    assert status["partitions"] == 2
    policy = guarded.list_objects("networking.k8s.io/v1", "networkpolicies")[CLUSTER]
    assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} >= {GUARDED, BETWEEN_BROKERS}


def test_only_its_peers_reach_a_listener_that_names_them(guarded: NamespaceClient) -> None:
    assert can_connect(guarded, GUARDED, role="client")
    assert not can_connect(guarded, GUARDED, role="other")
    assert can_connect(guarded, OPEN, role="other")


def test_no_client_reaches_the_port_between_brokers(guarded: NamespaceClient) -> None:
    assert not can_connect(guarded, BETWEEN_BROKERS, role="client")
