"""Three brokers in pods, and what befalls pods and the API server: clients beside the nodes lose nothing, and see nothing twice."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import NewTopic

from tests.clients import librdkafka as rd
from tests.e2e.rounds.load import Load
from tests.kube import under_load as loaded
from tests.kube.broker_pods import BrokerPods
from tests.kube.cluster import Kube
from tests.kube.under_load import HEALS_WITHIN_S, go_on
from tests.waiting import eventually

BROKERS = (0, 1, 2)
PARTITIONS = 3
SETTINGS = {"default.replication.factor": "3", "min.insync.replicas": "2", "offsets.topic.num.partitions": "3"}

pytestmark = pytest.mark.timeout(900)  # the image may have to be built


@pytest.fixture(scope="module")
def pods(kube: Kube) -> BrokerPods:
    made = BrokerPods(kube.plane.admin, "three")
    made.make(3, SETTINGS)
    made.wait_ready(*BROKERS)
    return made


@contextmanager
def under_load(pods: BrokerPods, topic: str) -> Iterator[Load]:
    """While the block runs, an idempotent producer and a group go on."""

    def whole() -> bool:
        return pods.whole(3, pods.bootstrap(*BROKERS))

    eventually(whole, within_s=HEALS_WITHIN_S, message="the cluster is whole")
    admin = rd.admin_client(pods.bootstrap(*BROKERS))
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
    with loaded.under_load(topic, PARTITIONS, lambda: pods.bootstrap(*BROKERS), whole) as load:
        yield load


def test_every_pod_is_deleted_one_after_the_other(pods: BrokerPods) -> None:
    with under_load(pods, "rolled") as load:
        for broker in BROKERS:
            old = uid(pods, broker)
            pods.delete(broker)
            eventually(lambda: uid(pods, broker) not in (None, old), within_s=60, message="another pod")  # noqa: B023
            pods.wait_ready(broker)
            eventually(
                lambda: pods.whole(3, pods.bootstrap(*BROKERS)), within_s=HEALS_WITHIN_S, message="a whole cluster"
            )
            go_on(load)


def test_the_controller_is_killed(pods: BrokerPods, kube: Kube) -> None:
    with under_load(pods, "controller-killed") as load:
        bootstrap = pods.bootstrap(*BROKERS)
        before = pods.controller(bootstrap)
        pods.kill(before, kube.nodes[0].machine)
        eventually(lambda: pods.controller(bootstrap) not in (-1, before), within_s=30, message="another controller")
        go_on(load)


def test_a_leader_is_killed_while_the_api_server_is_away(pods: BrokerPods, kube: Kube) -> None:
    with under_load(pods, "api-server-away") as load:
        bootstrap = pods.bootstrap(*BROKERS)
        controller = pods.controller(bootstrap)
        kube.plane.api_server.kill()
        try:
            victim = next(broker for broker in BROKERS if broker != controller)
            assert leads(bootstrap, "api-server-away", victim)
            pods.kill(victim, kube.nodes[0].machine)
            eventually(lambda: not leads(bootstrap, "api-server-away", victim), within_s=20, message="others lead")
            go_on(load, 1000)
            # The kubelet starts its container again.
            eventually(lambda: pods.whole(3, bootstrap), within_s=HEALS_WITHIN_S, message="the cluster is whole")
            go_on(load)
        finally:
            kube.plane.start_api_server()


def test_the_controller_is_killed_while_the_api_server_is_away(pods: BrokerPods, kube: Kube) -> None:
    with under_load(pods, "both-away") as load:
        bootstrap = pods.bootstrap(*BROKERS)
        controller = pods.controller(bootstrap)
        kube.plane.api_server.kill()
        try:
            pods.kill(controller, kube.nodes[0].machine)
            eventually(lambda: pods.controller(bootstrap) not in (-1, controller), within_s=20, message="a controller")
            go_on(load, 1000)
        finally:
            kube.plane.start_api_server()
        go_on(load)


def leads(bootstrap: str, topic: str, broker: int) -> bool:
    told = rd.admin_client(bootstrap).list_topics(topic, timeout=10).topics[topic]
    return any(partition.leader == broker for partition in told.partitions.values())


def uid(pods: BrokerPods, broker: int) -> str | None:
    pod = pods.pod(broker)
    return None if pod is None else str(pod["metadata"]["uid"])
