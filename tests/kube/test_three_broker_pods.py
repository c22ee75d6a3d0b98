"""Failures of three broker pods and of the API server: no acknowledged record is lost or
stored twice.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import NewTopic

from tests.clients import librdkafka as rd
from tests.e2e.rounds.load import Load
from tests.kube import client_load
from tests.kube.broker_pods import BrokerPods, find_controller
from tests.kube.client_load import RECOVERY_WITHIN_S, wait_for_progress
from tests.kube.cluster import Kubernetes
from tests.waiting import eventually

BROKERS = (0, 1, 2)
PARTITIONS = 3
SETTINGS = {"default.replication.factor": "3", "min.insync.replicas": "2", "offsets.topic.num.partitions": "3"}

pytestmark = pytest.mark.timeout(900)  # the image may have to be built


@pytest.fixture(scope="module")
def pods(kube: Kubernetes) -> BrokerPods:
    brokers = BrokerPods(kube.plane.admin, "three")
    brokers.create(3, SETTINGS)
    brokers.wait_until_ready(*BROKERS)
    return brokers


@contextmanager
def run_clients(pods: BrokerPods, topic: str) -> Iterator[Load]:
    """Creates a topic, and runs a producer and a consumer group on it during the block."""

    def is_recovered() -> bool:
        return pods.is_fully_replicated(3, pods.bootstrap(*BROKERS))

    eventually(is_recovered, within_s=RECOVERY_WITHIN_S, message="all replicas are in sync")
    admin = rd.admin_client(pods.bootstrap(*BROKERS))
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
    with client_load.run_clients(topic, PARTITIONS, lambda: pods.bootstrap(*BROKERS), is_recovered) as load:
        yield load


def test_clients_continue_when_each_broker_pod_is_deleted_in_turn(pods: BrokerPods) -> None:
    with run_clients(pods, "rolled") as load:
        for broker in BROKERS:
            old = uid(pods, broker)
            pods.delete_pod(broker)
            eventually(lambda: uid(pods, broker) not in (None, old), within_s=60, message="the pod is replaced")  # noqa: B023
            pods.wait_until_ready(broker)
            eventually(
                lambda: pods.is_fully_replicated(3, pods.bootstrap(*BROKERS)),
                within_s=RECOVERY_WITHIN_S,
                message="all replicas are in sync",
            )
            wait_for_progress(load)


def test_clients_continue_when_the_controller_is_killed(pods: BrokerPods, kube: Kubernetes) -> None:
    with run_clients(pods, "controller-killed") as load:
        bootstrap = pods.bootstrap(*BROKERS)
        before = find_controller(bootstrap)
        pods.kill_process(before, kube.nodes[0].machine)
        eventually(
            lambda: find_controller(bootstrap) not in (-1, before), within_s=30, message="another broker is controller"
        )
        wait_for_progress(load)


def test_clients_continue_when_a_leader_is_killed_while_the_api_server_is_unavailable(
    pods: BrokerPods, kube: Kubernetes
) -> None:
    with run_clients(pods, "api-server-outage") as load:
        bootstrap = pods.bootstrap(*BROKERS)
        controller = find_controller(bootstrap)
        kube.plane.api_server.kill()
        try:
            victim = next(broker for broker in BROKERS if broker != controller)
            assert is_leader(bootstrap, "api-server-outage", victim)
            pods.kill_process(victim, kube.nodes[0].machine)
            eventually(
                lambda: not is_leader(bootstrap, "api-server-outage", victim),
                within_s=20,
                message="other brokers lead its partitions",
            )
            wait_for_progress(load, 1000)
            # The kubelet restarts the container.
            eventually(
                lambda: pods.is_fully_replicated(3, bootstrap),
                within_s=RECOVERY_WITHIN_S,
                message="all replicas are in sync",
            )
            wait_for_progress(load)
        finally:
            kube.plane.start_api_server()


def test_clients_continue_after_the_controller_was_killed_while_the_api_server_was_unavailable(
    pods: BrokerPods, kube: Kubernetes
) -> None:
    with run_clients(pods, "both-unavailable") as load:
        bootstrap = pods.bootstrap(*BROKERS)
        controller = find_controller(bootstrap)
        kube.plane.api_server.kill()
        try:
            pods.kill_process(controller, kube.nodes[0].machine)
            eventually(
                lambda: find_controller(bootstrap) not in (-1, controller),
                within_s=20,
                message="another broker is controller",
            )
            wait_for_progress(load, 1000)
        finally:
            kube.plane.start_api_server()
        wait_for_progress(load)


def is_leader(bootstrap: str, topic: str, broker: int) -> bool:
    """True if the broker leads any partition of the topic."""
    metadata = rd.admin_client(bootstrap).list_topics(topic, timeout=10).topics[topic]
    return any(partition.leader == broker for partition in metadata.partitions.values())


def uid(pods: BrokerPods, broker: int) -> str | None:
    pod = pods.get_pod(broker)
    return None if pod is None else str(pod["metadata"]["uid"])
