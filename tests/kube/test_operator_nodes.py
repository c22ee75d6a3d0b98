"""Brokers on three nodes in three racks behind load balancers; one node loses power under load and
comes back.
"""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.kube.client_load import wait_for_progress
from tests.kube.cluster import Kubernetes
from tests.kube.installed_operator import InstalledOperator, is_pod_ready
from tests.kube.managed_cluster import PARTITIONS, SPEC, ManagedCluster
from tests.kube.node import Node
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
ZONE = "topology.kubernetes.io/zone"
LOAD_BALANCER_NETWORK = "10.250.1"  # of the load balancers, without the last byte
LISTENERS = [*SPEC["listeners"], {"name": "cloud", "port": 9095, "type": "LoadBalancer"}]
SERVICES = ("spread-cloud-bootstrap", "spread-cloud-1", "spread-cloud-2", "spread-cloud-3")
POWER_TOPIC = "power-lost"


@pytest.fixture(scope="module")
def nodes(kube: Kubernetes, images: dict[str, Path]) -> Iterator[list[Node]]:
    """Three nodes, each in its own zone. Two are removed afterwards: other tests expect one
    node.
    """
    added: list[Node] = []
    try:
        for _ in range(2):
            added.append(kube.add_node([images["broker"]]))
        for node in kube.nodes:
            label = {"metadata": {"labels": {ZONE: f"zone-{node.number}"}}}
            kube.plane.admin.request("PATCH", f"/api/v1/nodes/{node.name}", label)
        yield list(kube.nodes)
    finally:
        for node in reversed(added):
            kube.remove_node(node)


@pytest.fixture(scope="module")
def spread(
    installed_operator: InstalledOperator, demo_cluster: ManagedCluster, nodes: list[Node]
) -> Iterator[ManagedCluster]:
    """A Cluster with racks and a load balancer listener, one broker per node."""
    cluster = ManagedCluster(installed_operator, demo_cluster.resources, demo_cluster.history, "spread")
    spec = {"rack": {"topologyKey": ZONE}, "listeners": LISTENERS}
    cluster.create(spec, while_starting=lambda: assign_load_balancer_addresses(cluster))
    yield cluster
    cluster.resources.delete("Cluster", cluster.name)
    eventually(lambda: not cluster.pods(), within_s=90, message=cluster.describe)
    assert cluster.history.find_violations() == []


def assign_load_balancer_addresses(cluster: ManagedCluster) -> None:
    """Gives each load balancer Service an address that is routed to the nodes, as a cloud provider
    does.
    """
    kube, namespace = cluster.operator.kube, cluster.resources.namespace
    kube.host.run("ip", "route", "replace", f"{LOAD_BALANCER_NETWORK}.0/24", "via", kube.nodes[0].address)
    for number, service in enumerate(SERVICES):
        eventually(lambda: service in cluster.resources.list_objects("v1", "services"), message=cluster.describe)  # noqa: B023
        patch = {"status": {"loadBalancer": {"ingress": [{"ip": f"{LOAD_BALANCER_NETWORK}.{number + 1}"}]}}}
        kube.plane.admin.request("PATCH", f"/api/v1/namespaces/{namespace}/services/{service}/status", patch)


def test_each_node_has_one_broker_with_its_zone_as_rack(spread: ManagedCluster) -> None:
    node_names = {int(name.rpartition("-")[2]): it["spec"]["nodeName"] for name, it in spread.pods().items()}
    assert sorted(node_names.values()) == ["node-1", "node-2", "node-3"]
    admin = rd.admin_client(spread.bootstrap())
    brokers = admin.describe_cluster().result(30).nodes
    assert {it.id: it.rack for it in brokers} == {id_: node.replace("node", "zone") for id_, node in node_names.items()}


def test_clients_reach_all_brokers_through_load_balancers(spread: ManagedCluster) -> None:
    spread.create_topic("balanced")
    bootstrap = spread.status["bootstrap"]["cloud"]
    assert bootstrap == f"{LOAD_BALANCER_NETWORK}.1:9095"
    brokers = rd.admin_client(bootstrap).list_topics(timeout=10).brokers
    assert {f"{it.host}:{it.port}" for it in brokers.values()} == {
        f"{LOAD_BALANCER_NETWORK}.{number}:9095" for number in (2, 3, 4)
    }
    for partition in range(PARTITIONS):
        value = b"to %d" % partition
        rd.produce(bootstrap, "balanced", [Message(None, value, START_MS)], partition=partition)
        (message,) = rd.consume(bootstrap, "balanced", partition=partition)
        assert message.value() == value


def test_clients_continue_when_a_node_loses_power_and_returns(
    spread: ManagedCluster, kube: Kubernetes, images: dict[str, Path]
) -> None:
    node = kube.nodes[-1]
    (name,) = (name for name, it in spread.pods().items() if it["spec"]["nodeName"] == node.name)
    with spread.run_clients(POWER_TOPIC) as load:
        with spread.operator.active_pod_deleted(POWER_TOPIC):
            kube.power_off(node)
            eventually(lambda: others_lead(spread, int(name.rpartition("-")[2])), within_s=60, message=spread.describe)
            wait_for_progress(load)
        eventually(
            lambda: not is_pod_ready(spread.pods()[name]), within_s=60, message="Kubernetes marks the pod as not ready"
        )
        spread.wait_for_status("InProgress")
        kube.power_on(node, [images["broker"]])
        spread.wait_for_status()


def others_lead(spread: ManagedCluster, broker: int) -> bool:
    """True if clients reach the cluster and `broker` leads none of the topic's partitions."""
    try:
        return broker not in spread.leader_brokers(POWER_TOPIC)
    except ck.KafkaException:  # Services route to the lost broker until its pod is marked as not ready
        return False
