"""Mirrors between two Clusters in two namespaces on a real kubelet.

The source fails, and an edit of `role` makes the copy writable. The source comes back and mirrors
the copy, and then the original direction is restored. A third test mirrors an Apache Kafka outside
Kubernetes that requires TLS and credentials from Secrets.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.e2e.mirroring import read_records
from tests.e2e.secured_kafka import PASSWORD, USER, secured_kafka
from tests.kube.cluster import NODE_NETWORK, Kubernetes
from tests.kube.installed_operator import describe_pods
from tests.kube.managed_cluster import CLUSTER_NAME, NAMESPACE, ManagedCluster
from tests.kube.namespace_client import NamespaceClient
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
WEST, EAST = "west", "east"  # namespaces, and the Clusters in them
PARTITIONS = 2
GROUP = "readers"
READ = 120  # records of each partition that the group has read at the source
SPEC = {
    "replicas": 1,
    "storage": {"size": "1Gi"},
    "resources": {"requests": {"cpu": "100m"}},
    "listeners": [{"name": "plain", "port": 9092}, {"name": "out", "port": 9094, "type": "NodePort"}],
}


@contextmanager
def site(kube: Kubernetes, name: str, topic: str) -> Iterator[NamespaceClient]:
    """A namespace with a Cluster of one broker and a Topic. Deletes the namespace after the block."""
    made = NamespaceClient(kube.plane.admin, name)
    made.create_namespace()
    made.create("Cluster", name, SPEC)
    made.create("Topic", topic, {"clusterRef": {"name": name}, "partitions": PARTITIONS})
    try:
        made.wait_for_status("Cluster", name, within_s=180)
        made.wait_for_status("Topic", topic)
        yield made
    finally:
        made.api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def west(kube: Kubernetes, demo_cluster: ManagedCluster) -> Iterator[NamespaceClient]:
    with site(kube, WEST, "orders") as made:
        yield made


@pytest.fixture
def east(kube: Kubernetes, demo_cluster: ManagedCluster) -> Iterator[NamespaceClient]:
    with site(kube, EAST, "deliveries") as made:
        yield made


def wish(source: str, namespace: str, target: str, topic: str) -> dict[str, object]:
    """The spec of a Mirror. `source` is the name of a Cluster in `namespace`."""
    return {
        "source": {"bootstrap": f"{source}-plain-bootstrap.{namespace}.svc.cluster.local:9092"},
        "target": {"clusterRef": {"name": target}},
        "topics": [topic],
        "groups": [GROUP],
    }


def outside(kube: Kubernetes, resources: NamespaceClient, name: str) -> str:
    """Bootstrap server for clients outside Kubernetes."""
    port = resources.list_objects("v1", "services")[f"{name}-out-bootstrap"]["spec"]["ports"][0]["nodePort"]
    return f"{kube.nodes[0].address}:{port}"


def test_a_failover_is_an_edit_of_the_role(demo: ManagedCluster, west: NamespaceClient, kube: Kubernetes) -> None:
    source, target = outside(kube, west, WEST), demo.bootstrap()
    copied = [[b"%d of %d" % (number, it) for number in range(200)] for it in range(PARTITIONS)]
    for partition, values in enumerate(copied):
        rd.produce(source, "orders", messages(values), partition=partition)
    with rd.consumer(source, GROUP) as reader:
        reader.commit(offsets=[ck.TopicPartition("orders", it, READ) for it in range(PARTITIONS)], asynchronous=False)

    def said() -> str:
        return f"{demo.resources.get('Mirror', 'west').get('status')}\n{demo.describe()}\n{describe_pods(kube, WEST, 'west')}"

    def holds(type_: str) -> bool:
        return demo.resources.condition("Mirror", "west", type_).get("status") == "True"

    with demo.operator.active_pod_deleted("mirrored"):
        demo.resources.create("Mirror", "west", wish(WEST, WEST, CLUSTER_NAME, "orders"))
        eventually(lambda: holds("InSync") and holds("FailoverSafe"), within_s=90, message=said)
    eventually(lambda: committed(target) == [READ] * PARTITIONS, within_s=60, message=said)
    with pytest.raises(ck.KafkaException):
        rd.produce(target, "orders", messages([b"too early"]))

    west.delete("Cluster", "west")
    eventually(lambda: not holds("InSync"), within_s=60, message=said)
    assert holds("FailoverSafe"), said()
    assert "data-west-1" in west.list_objects("v1", "persistentvolumeclaims"), "records outlive their Cluster"
    assert "west-register" in west.list_objects("coordination.k8s.io/v1", "leases")

    def failed_over() -> bool:
        return demo.resources.condition("Mirror", "west").get("reason") == "FailedOver"

    with demo.operator.active_pod_deleted("failed-over"):
        demo.resources.patch_spec("Mirror", "west", {"role": "FailedOver"})
        eventually(failed_over, within_s=60, message=said)
    demo.resources.wait_for_status("Mirror", "west")
    for partition, values in enumerate(copied):
        assert rd.produce(target, "orders", messages([b"ours"]), partition=partition) == [200]
        found = rd.consume(target, "orders", partition=partition)
        assert [(it.offset(), it.value()) for it in found] == list(enumerate([*values, b"ours"]))
    assert first_records(target) == [values[READ] for values in copied], "the group goes on at the very next record"
    demo.resources.delete("Mirror", "west")


def test_the_old_source_comes_back_and_goes_home(demo: ManagedCluster, east: NamespaceClient, kube: Kubernetes) -> None:
    source, target, topic = outside(kube, east, EAST), demo.bootstrap(), "deliveries"

    def said() -> str:
        told_of = [
            demo.resources.api.get(demo.resources.path("mirrors", "east")),
            east.api.get(east.path("mirrors", "back")),
        ]
        return f"{[it and it.get('status') for it in told_of]}\n{describe_pods(kube, NAMESPACE, CLUSTER_NAME)}\n{describe_pods(kube, EAST, EAST)}"

    def becomes(resources: NamespaceClient, name: str, reason: str) -> str:
        """Wait until Ready has this reason; returns its message."""
        eventually(lambda: resources.condition("Mirror", name).get("reason") == reason, within_s=90, message=said)
        return resources.condition("Mirror", name)["message"]

    def values(bootstrap: str) -> list[bytes | None]:
        return [it.value for it in read_records(bootstrap, topic, 0)]

    def in_step(resources: NamespaceClient, name: str, *last: bytes) -> None:
        """Wait until both clusters have the same records and the Mirror is InSync. `last` are the
        last values.
        """
        eventually(lambda: read_records(source, topic, 0) == read_records(target, topic, 0), within_s=60, message=said)
        assert values(source)[-len(last) :] == list(last)
        eventually(
            lambda: resources.condition("Mirror", name, "InSync").get("status") == "True", within_s=60, message=said
        )

    rd.produce(source, topic, messages([b"of east"] * 50), partition=0)
    demo.resources.create("Mirror", "east", wish(EAST, EAST, CLUSTER_NAME, topic))
    in_step(demo.resources, "east", b"of east")
    demo.resources.patch_spec("Mirror", "east", {"role": "Paused"})
    becomes(demo.resources, "east", "Paused")
    rd.produce(source, topic, messages([b"never copied"] * 7), partition=0)
    demo.resources.patch_spec("Mirror", "east", {"role": "FailedOver"})
    becomes(demo.resources, "east", "FailedOver")
    rd.produce(target, topic, messages([b"of demo"] * 5), partition=0)

    # The other direction: the old source has records beyond the common prefix, and nothing allows
    # their truncation.
    east.create("Mirror", "back", wish(CLUSTER_NAME, NAMESPACE, EAST, topic))
    east.wait_for_status("Mirror", "back", "Failed", within_s=90)
    words = "7 records are here and not at the source (deliveries-0: 7); onDivergence: Truncate writes them to files and truncates the logs"
    for type_, holds in (("Ready", "False"), ("Stalled", "True"), ("InSync", "False"), ("FailoverSafe", "False")):
        found = east.condition("Mirror", "back", type_)
        assert (found["status"], found["reason"], found["message"]) == (holds, "Diverged", words), said()
    assert [it["state"] for it in east.get("Mirror", "back")["status"]["topics"]] == ["Stopped"]
    assert values(source)[-7:] == [b"never copied"] * 7, "nothing is cut without consent"
    with pytest.raises(ck.KafkaException):
        rd.produce(source, topic, messages([b"not here any more"]), partition=0)

    with demo.operator.active_pod_deleted("truncated"):
        east.patch_spec("Mirror", "back", {"onDivergence": "Truncate"})
        becomes(east, "back", "Replicating")
    in_step(east, "back", *[b"of demo"] * 5)
    saved = list((kube.folder / "volumes").rglob(f"{topic}-0/diverged/*/*.log"))
    assert [it.read_bytes().count(b"never copied") for it in saved] == [7]
    rd.produce(target, topic, messages([b"and on"]), partition=0)
    in_step(east, "back", b"of demo", b"and on")

    # Back to the original direction.
    east.patch_spec("Mirror", "back", {"role": "FailedOver"})
    assert becomes(east, "back", "FailedOver") == "open for writing; the source was 0 records ahead when last reached"
    rd.produce(source, topic, messages([b"home"]), partition=0)
    demo.resources.patch_spec("Mirror", "east", {"role": "Replicate"})
    in_step(demo.resources, "east", b"and on", b"home")
    becomes(demo.resources, "east", "Replicating")

    # Reverting a failover drill: only records produced during the drill are at stake.
    demo.resources.patch_spec("Mirror", "east", {"role": "FailedOver"})
    becomes(demo.resources, "east", "FailedOver")
    rd.produce(target, topic, messages([b"in the drill"]), partition=0)
    demo.resources.patch_spec("Mirror", "east", {"role": "Replicate"})
    demo.resources.wait_for_status("Mirror", "east", "Failed")
    assert demo.resources.condition("Mirror", "east")["message"].startswith("1 records are here and not at the source")
    demo.resources.patch_spec("Mirror", "east", {"onDivergence": "Truncate"})
    in_step(demo.resources, "east", b"and on", b"home")
    demo.resources.delete("Mirror", "east")


def test_a_source_outside_that_wants_tls_and_a_login(demo: ManagedCluster, kube: Kubernetes, tmp_path: Path) -> None:
    """Apache Kafka outside Kubernetes. The operator notices a Secret that is created later, and a
    change of one with a wrong password.
    """
    with secured_kafka(tmp_path, f"{NODE_NETWORK}.1") as source:
        rd.create_topic(source.broker.bootstrap, "invoices", 1)
        rd.produce(source.broker.bootstrap, "invoices", messages([b"copied"] * 50))
        secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        api = demo.resources.api
        login = {"mechanism": "SCRAM-SHA-512", "secretRef": {"name": "south-login"}}
        at = {
            "bootstrap": source.addresses["SASL_SSL"],
            "tls": {"caSecretRef": {"name": "south-ca"}},
            "credentials": login,
        }
        demo.resources.create(
            "Mirror", "south", {"source": at, "target": {"clusterRef": {"name": CLUSTER_NAME}}, "topics": ["invoices"]}
        )

        def said() -> str:
            return f"{demo.resources.get('Mirror', 'south').get('status')}\n{demo.describe()}"

        def told_as(reason: str) -> str:
            eventually(
                lambda: demo.resources.condition("Mirror", "south").get("reason") == reason, within_s=90, message=said
            )
            return demo.resources.condition("Mirror", "south")["message"]

        assert told_as("CredentialsUnusable") == "Secret south-ca does not exist"
        ca = {"ca.crt": source.authority.certificate.read_text()}
        api.request("POST", secrets, {"metadata": {"name": "south-ca"}, "stringData": ca})
        wrong = {"username": USER, "password": "not the password"}
        api.request("POST", secrets, {"metadata": {"name": "south-login"}, "stringData": wrong})
        assert "Authentication failed" in told_as("SourceUnreachable")
        api.request("PATCH", f"{secrets}/south-login", {"stringData": {"password": PASSWORD}})
        told_as("Replicating")
        eventually(
            lambda: demo.resources.condition("Mirror", "south", "InSync").get("status") == "True",
            within_s=60,
            message=said,
        )
        assert read_records(demo.bootstrap(), "invoices", 0) == read_records(source.broker.bootstrap, "invoices", 0)
        everything = said() + str(demo.resources.list_objects("v1", "events"))
        assert PASSWORD not in everything and "not the password" not in everything
        demo.resources.delete("Mirror", "south")


def messages(values: list[bytes]) -> list[Message]:
    return [Message(None, it, START_MS) for it in values]


def committed(bootstrap: str) -> list[int]:
    with rd.consumer(bootstrap, GROUP) as reader:
        wanted = [ck.TopicPartition("orders", it) for it in range(PARTITIONS)]
        return [it.offset for it in reader.committed(wanted, timeout=20)]


def first_records(bootstrap: str) -> list[bytes | None]:
    """The first value that the group reads in each partition."""
    found: dict[int, bytes | None] = {}
    with rd.consumer(bootstrap, GROUP) as reader:
        reader.subscribe(["orders"])
        while len(found) < PARTITIONS:
            message = rd.poll_message(reader)
            assert message.error() is None, message.error()
            found.setdefault(message.partition(), message.value())
    return [found[it] for it in range(PARTITIONS)]
