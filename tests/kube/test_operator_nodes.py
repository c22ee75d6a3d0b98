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
BALANCED = "10.250.1"  # the network of the load balancers' addresses
LISTENERS = [*SPEC["listeners"], {"name": "cloud", "port": 9095, "type": "LoadBalancer"}]
SERVICES = ("spread-cloud-bootstrap", "spread-cloud-1", "spread-cloud-2", "spread-cloud-3")
POWER = "power-lost"


@pytest.fixture(scope="module")
def nodes(kube: Kubernetes, images: dict[str, Path]) -> Iterator[list[Node]]:
    """Three nodes, each in its own zone. Two are removed afterwards: other tests expect one node."""
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
    made = ManagedCluster(installed_operator, demo_cluster.resources, demo_cluster.history, "spread")
    spec = {"rack": {"topologyKey": ZONE}, "listeners": LISTENERS}
    made.create(spec, while_starting=lambda: give_addresses(made))
    yield made
    made.resources.delete("Cluster", made.name)
    eventually(lambda: not made.pods(), within_s=90, message=made.describe)
    assert made.history.find_violations() == []


def give_addresses(made: ManagedCluster) -> None:
    """Does what a cloud provider does: gives each load balancer an address that is routed to the
    nodes.
    """
    kube, namespace = made.operator.kube, made.resources.namespace
    kube.host.run("ip", "route", "replace", f"{BALANCED}.0/24", "via", kube.nodes[0].address)
    for number, service in enumerate(SERVICES):
        eventually(lambda: service in made.resources.list_objects("v1", "services"), message=made.describe)  # noqa: B023
        given = {"status": {"loadBalancer": {"ingress": [{"ip": f"{BALANCED}.{number + 1}"}]}}}
        kube.plane.admin.request("PATCH", f"/api/v1/namespaces/{namespace}/services/{service}/status", given)


def test_there_is_a_broker_on_each_node_and_it_knows_its_rack(spread: ManagedCluster) -> None:
    where = {int(name.rpartition("-")[2]): it["spec"]["nodeName"] for name, it in spread.pods().items()}
    assert sorted(where.values()) == ["node-1", "node-2", "node-3"]
    admin = rd.admin_client(spread.bootstrap())
    known = admin.describe_cluster().result(30).nodes
    assert {it.id: it.rack for it in known} == {id_: node.replace("node", "zone") for id_, node in where.items()}


def test_clients_come_through_load_balancers(spread: ManagedCluster) -> None:
    spread.create_topic("balanced")
    begin = spread.status["bootstrap"]["cloud"]
    assert begin == f"{BALANCED}.1:9095"
    told = {f"{it.host}:{it.port}" for it in rd.admin_client(begin).list_topics(timeout=10).brokers.values()}
    assert told == {f"{BALANCED}.{number}:9095" for number in (2, 3, 4)}
    for partition in range(PARTITIONS):
        value = b"to %d" % partition
        rd.produce(begin, "balanced", [Message(None, value, START_MS)], partition=partition)
        (found,) = rd.consume(begin, "balanced", partition=partition)
        assert found.value() == value


def test_a_node_loses_its_power_and_comes_back(
    spread: ManagedCluster, kube: Kubernetes, images: dict[str, Path]
) -> None:
    lost = kube.nodes[-1]
    (name,) = (name for name, it in spread.pods().items() if it["spec"]["nodeName"] == lost.name)
    with spread.run_clients(POWER) as load:
        with spread.operator.active_pod_deleted(POWER):
            kube.power_off(lost)
            eventually(lambda: others_lead(spread, int(name.rpartition("-")[2])), within_s=60, message=spread.describe)
            wait_for_progress(load)
        eventually(
            lambda: not is_pod_ready(spread.pods()[name]), within_s=60, message="Kubernetes knows that it is away"
        )
        spread.wait_for_status("InProgress")
        kube.power_on(lost, [images["broker"]])
        spread.wait_for_status()


def others_lead(spread: ManagedCluster, broker: int) -> bool:
    try:
        return broker not in spread.leader_brokers(POWER)
    except ck.KafkaException:  # Services hand on to the one that is away until Kubernetes has noticed
        return False
