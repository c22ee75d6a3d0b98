"""Three brokers in pods, and what befalls pods and the API server: clients beside the nodes lose nothing, and see nothing twice."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import NewTopic

from tests.clients import librdkafka as rd
from tests.e2e.rounds import checks
from tests.e2e.rounds.load import Load, Member, Producer, committed_offsets, kept
from tests.kube.broker_pods import BrokerPods
from tests.kube.cluster import Kube
from tests.waiting import eventually

BROKERS = (0, 1, 2)
PARTITIONS = 3
HEALS_WITHIN_S = 90.0
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
    """An idempotent producer and a group go on while the block runs; afterwards every promise is checked."""
    eventually(lambda: pods.whole(3, pods.bootstrap(*BROKERS)), within_s=HEALS_WITHIN_S, what="the cluster is whole")
    bootstrap = pods.bootstrap(*BROKERS)
    admin = rd.admin(bootstrap)
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
    producer = Producer("once", bootstrap, topic, PARTITIONS, {"enable.idempotence": True})
    load = Load([producer], [Member(f"member-{n}", bootstrap, topic, f"readers-of-{topic}") for n in (1, 2)])
    load.start()
    try:
        eventually(lambda: load.acked() > 300 and load.seen(), within_s=60, what="acknowledged and consumed records")
        yield load
        eventually(
            lambda: pods.whole(3, pods.bootstrap(*BROKERS)), within_s=HEALS_WITHIN_S, what="the cluster is whole"
        )
        load.stop_producers()
        places = [(topic, partition) for partition in range(PARTITIONS)]
        bootstrap = pods.bootstrap(*BROKERS)
        contents = kept(bootstrap, topic, PARTITIONS)
        eventually(
            lambda: all(contents[place].keys() <= load.seen().get(place, {}).keys() for place in places),
            within_s=60,
            what="the group has read everything",
        )
    finally:
        load.stop_producers()
        load.stop_members()
        print(
            f"{topic}: {load.acked()} records, longest time without an acknowledgement {producer.longest_gap_s():.2f} s"
        )
    committed = committed_offsets(bootstrap, load.members[0].group, places)
    assert checks.broken_promises(load, contents, committed) == []
    assert load.acked() == producer.sent


def go_on(load: Load, records: int = 300) -> None:
    """Returns when so many more were acknowledged."""
    before = load.acked()
    eventually(lambda: load.acked() >= before + records, within_s=60, what="more acknowledged records")


def test_every_pod_is_deleted_one_after_the_other(pods: BrokerPods) -> None:
    with under_load(pods, "rolled") as load:
        for broker in BROKERS:
            old = uid(pods, broker)
            pods.delete(broker)
            eventually(lambda: uid(pods, broker) not in (None, old), within_s=60, what="another pod")  # noqa: B023
            pods.wait_ready(broker)
            eventually(lambda: pods.whole(3, pods.bootstrap(*BROKERS)), within_s=HEALS_WITHIN_S, what="a whole cluster")
            go_on(load)


def test_the_controller_is_killed(pods: BrokerPods, kube: Kube) -> None:
    with under_load(pods, "controller-killed") as load:
        before = pods.holder()
        pods.kill(before, kube.nodes[0].machine)
        eventually(lambda: pods.holder() not in (-1, before), within_s=30, what="another broker holds the Lease")
        go_on(load)


def test_a_leader_is_killed_while_the_api_server_is_away(pods: BrokerPods, kube: Kube) -> None:
    with under_load(pods, "api-server-away") as load:
        controller, bootstrap = pods.holder(), pods.bootstrap(*BROKERS)
        kube.plane.api_server.kill()
        try:
            victim = next(broker for broker in BROKERS if broker != controller)
            assert leads(bootstrap, "api-server-away", victim)
            pods.kill(victim, kube.nodes[0].machine)
            eventually(lambda: not leads(bootstrap, "api-server-away", victim), within_s=20, what="others lead")
            go_on(load, 1000)
            # The kubelet starts its container again, and it serves without having asked the register.
            eventually(lambda: pods.whole(3, bootstrap), within_s=HEALS_WITHIN_S, what="the cluster is whole")
            go_on(load)
        finally:
            kube.plane.start_api_server()


def test_the_controller_is_killed_while_the_api_server_is_away(pods: BrokerPods, kube: Kube) -> None:
    with under_load(pods, "both-away") as load:
        controller = pods.holder()
        kube.plane.api_server.kill()
        try:
            pods.kill(controller, kube.nodes[0].machine)
        finally:
            kube.plane.start_api_server()
        go_on(load)


def leads(bootstrap: str, topic: str, broker: int) -> bool:
    told = rd.admin(bootstrap).list_topics(topic, timeout=10).topics[topic]
    return any(partition.leader == broker for partition in told.partitions.values())


def uid(pods: BrokerPods, broker: int) -> str | None:
    pod = pods.pod(broker)
    return None if pod is None else str(pod["metadata"]["uid"])
