"""Brokers on three nodes in three racks behind load balancers; one node loses power under load and
comes back.
"""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.kube.cluster import Kube
from tests.kube.installed import Installed, ready
from tests.kube.kept import PARTITIONS, SPEC, Kept
from tests.kube.node import Node
from tests.kube.under_load import go_on
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
ZONE = "topology.kubernetes.io/zone"
BALANCED = "10.250.1"  # the network of the load balancers' addresses
LISTENERS = [*SPEC["listeners"], {"name": "cloud", "port": 9095, "type": "LoadBalancer"}]
SERVICES = ("spread-cloud-bootstrap", "spread-cloud-1", "spread-cloud-2", "spread-cloud-3")
POWER = "power-lost"


@pytest.fixture(scope="module")
def nodes(kube: Kube, images: dict[str, Path]) -> Iterator[list[Node]]:
    """Three nodes, each in its own zone. Two are removed afterwards: other tests expect one node.
    """
    added: list[Node] = []
    try:
        for _ in range(2):
            added.append(kube.add_node([images["broker"]]))
        for node in kube.nodes:
            label = {"metadata": {"labels": {ZONE: f"zone-{node.number}"}}}
            kube.plane.admin.ask("PATCH", f"/api/v1/nodes/{node.name}", label)
        yield list(kube.nodes)
    finally:
        for node in reversed(added):
            kube.remove(node)


@pytest.fixture(scope="module")
def spread(installed: Installed, kept: Kept, nodes: list[Node]) -> Iterator[Kept]:
    made = Kept(installed, kept.resources, kept.moments, "spread")
    spec = {"rack": {"topologyKey": ZONE}, "listeners": LISTENERS}
    made.make(spec, meanwhile=lambda: give_addresses(made))
    yield made
    made.resources.delete("Cluster", made.name)
    eventually(lambda: not made.pods(), within_s=90, message=made.said)
    assert made.moments.troubles() == []


def give_addresses(made: Kept) -> None:
    """Does what a cloud provider does: gives each load balancer an address that is routed to the
    nodes.
    """
    kube, namespace = made.installed.kube, made.resources.namespace
    kube.premises.run("ip", "route", "replace", f"{BALANCED}.0/24", "via", kube.nodes[0].address)
    for number, service in enumerate(SERVICES):
        eventually(lambda: service in made.resources.of("v1", "services"), message=made.said)  # noqa: B023
        given = {"status": {"loadBalancer": {"ingress": [{"ip": f"{BALANCED}.{number + 1}"}]}}}
        kube.plane.admin.ask("PATCH", f"/api/v1/namespaces/{namespace}/services/{service}/status", given)


def test_there_is_a_broker_on_each_node_and_it_knows_its_rack(spread: Kept) -> None:
    where = {int(name.rpartition("-")[2]): it["spec"]["nodeName"] for name, it in spread.pods().items()}
    assert sorted(where.values()) == ["node-1", "node-2", "node-3"]
    admin = rd.admin_client(spread.bootstrap())
    known = admin.describe_cluster().result(30).nodes
    assert {it.id: it.rack for it in known} == {id_: node.replace("node", "zone") for id_, node in where.items()}


def test_clients_come_through_load_balancers(spread: Kept) -> None:
    spread.topic("balanced")
    begin = spread.status["bootstrap"]["cloud"]
    assert begin == f"{BALANCED}.1:9095"
    told = {f"{it.host}:{it.port}" for it in rd.admin_client(begin).list_topics(timeout=10).brokers.values()}
    assert told == {f"{BALANCED}.{number}:9095" for number in (2, 3, 4)}
    for partition in range(PARTITIONS):
        value = b"to %d" % partition
        rd.produce(begin, "balanced", [Message(None, value, START_MS)], partition=partition)
        (found,) = rd.consume(begin, "balanced", partition=partition)
        assert found.value() == value


def test_a_node_loses_its_power_and_comes_back(spread: Kept, kube: Kube, images: dict[str, Path]) -> None:
    lost = kube.nodes[-1]
    (name,) = (name for name, it in spread.pods().items() if it["spec"]["nodeName"] == lost.name)
    with spread.under_load(POWER) as load:
        with spread.installed.killed_meanwhile(POWER):
            kube.power_off(lost)
            eventually(lambda: others_lead(spread, int(name.rpartition("-")[2])), within_s=60, message=spread.said)
            go_on(load)
        eventually(lambda: not ready(spread.pods()[name]), within_s=60, message="Kubernetes knows that it is away")
        spread.wait("InProgress")
        kube.power_on(lost, [images["broker"]])
        spread.wait()


def others_lead(spread: Kept, broker: int) -> bool:
    try:
        return broker not in spread.leading(POWER)
    except ck.KafkaException:  # Services hand on to the one that is away until Kubernetes has noticed
        return False
