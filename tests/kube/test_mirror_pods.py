"""Two Clusters in two namespaces on a real kubelet, one the copy of the other; the source goes, and an edit of `role` opens the copy for writing."""

from collections.abc import Iterator

import confluent_kafka as ck
import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample import START_MS, Message
from tests.kube.cluster import Kube
from tests.kube.installed import told
from tests.kube.kept import DEMO, Kept
from tests.kube.operators import Resources
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
WEST = "west"
PARTITIONS = 2
GROUP = "readers"
READ = 120  # records of each partition that the group has read at the source
SPEC = {
    "replicas": 1,
    "storage": {"size": "1Gi"},
    "resources": {"requests": {"cpu": "100m"}},
    "listeners": [{"name": "plain", "port": 9092}, {"name": "out", "port": 9094, "type": "NodePort"}],
}
WISH = {
    "source": {"bootstrap": f"west-plain-bootstrap.{WEST}.svc.cluster.local:9092"},
    "target": {"clusterRef": {"name": DEMO}},
    "topics": ["orders"],
    "groups": [GROUP],
}


@pytest.fixture(scope="module")
def west(kube: Kube, kept: Kept) -> Iterator[Resources]:
    """A Cluster of one with a topic, in a namespace of its own."""
    made = Resources(kube.plane.admin, WEST)
    made.make_namespace()
    made.make("Cluster", "west", SPEC)
    made.make("Topic", "orders", {"clusterRef": {"name": "west"}, "partitions": PARTITIONS})
    try:
        made.wait("Cluster", "west", within_s=180)
        made.wait("Topic", "orders")
        yield made
    finally:
        made.api.ask("DELETE", f"/api/v1/namespaces/{WEST}")


def test_a_failover_is_an_edit_of_the_role(demo: Kept, west: Resources, kube: Kube) -> None:
    port = west.of("v1", "services")["west-out-bootstrap"]["spec"]["ports"][0]["nodePort"]
    source, target = f"{kube.nodes[0].address}:{port}", demo.bootstrap()
    copied = [[b"%d of %d" % (number, it) for number in range(200)] for it in range(PARTITIONS)]
    for partition, values in enumerate(copied):
        rd.produce(source, "orders", messages(values), partition=partition)
    with rd.consumer(source, GROUP) as reader:
        reader.commit(offsets=[ck.TopicPartition("orders", it, READ) for it in range(PARTITIONS)], asynchronous=False)

    def said() -> str:
        return f"{demo.resources.get('Mirror', 'west').get('status')}\n{demo.said()}\n{told(kube, WEST, 'west')}"

    def holds(type_: str) -> bool:
        return demo.resources.condition("Mirror", "west", type_).get("status") == "True"

    with demo.installed.killed_meanwhile("mirrored"):
        demo.resources.make("Mirror", "west", WISH)
        eventually(lambda: holds("InSync") and holds("FailoverSafe"), within_s=90, what=said)
    eventually(lambda: committed(target) == [READ] * PARTITIONS, within_s=60, what=said)
    with pytest.raises(ck.KafkaException):
        rd.produce(target, "orders", messages([b"too early"]))

    west.delete("Cluster", "west")
    eventually(lambda: not holds("InSync"), within_s=60, what=said)
    assert holds("FailoverSafe"), said()
    assert "data-west-1" in west.of("v1", "persistentvolumeclaims"), "records outlive their Cluster"
    assert "west-register" in west.of("coordination.k8s.io/v1", "leases")

    def failed_over() -> bool:
        return demo.resources.condition("Mirror", "west").get("reason") == "FailedOver"

    with demo.installed.killed_meanwhile("failed-over"):
        demo.resources.edit("Mirror", "west", {"role": "FailedOver"})
        eventually(failed_over, within_s=60, what=said)
    demo.resources.wait("Mirror", "west")
    for partition, values in enumerate(copied):
        assert rd.produce(target, "orders", messages([b"ours"]), partition=partition) == [200]
        found = rd.consume(target, "orders", partition=partition)
        assert [(it.offset(), it.value()) for it in found] == list(enumerate([*values, b"ours"]))
    assert first_records(target) == [values[READ] for values in copied], "the group goes on at the very next record"
    demo.resources.delete("Mirror", "west")


def messages(values: list[bytes]) -> list[Message]:
    return [Message(None, it, START_MS) for it in values]


def committed(bootstrap: str) -> list[int]:
    with rd.consumer(bootstrap, GROUP) as reader:
        wanted = [ck.TopicPartition("orders", it) for it in range(PARTITIONS)]
        return [it.offset for it in reader.committed(wanted, timeout=20)]


def first_records(bootstrap: str) -> list[bytes | None]:
    """Of each partition, what the group is given first when it goes on here."""
    found: dict[int, bytes | None] = {}
    with rd.consumer(bootstrap, GROUP) as reader:
        reader.subscribe(["orders"])
        while len(found) < PARTITIONS:
            message = rd.next_message(reader)
            assert message.error() is None, message.error()
            found.setdefault(message.partition(), message.value())
    return [found[it] for it in range(PARTITIONS)]
