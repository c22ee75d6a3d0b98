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
from tests.e2e.secured_kafka import PASSWORD, USER, run_secured_kafka
from tests.kube.cluster import NODE_NETWORK, Kubernetes
from tests.kube.installed_operator import describe_pods
from tests.kube.managed_cluster import CLUSTER_NAME, NAMESPACE, ManagedCluster, external_bootstrap
from tests.kube.namespace_client import NamespaceClient
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
WEST, EAST = "west", "east"  # namespaces, and the Clusters in them
PARTITIONS = 2
GROUP = "readers"
COMMITTED = 120  # offset that the group has committed in each partition of the source
SPEC = {
    "replicas": 1,
    "storage": {"size": "1Gi"},
    "resources": {"requests": {"cpu": "100m"}},
    "listeners": [{"name": "plain", "port": 9092}, {"name": "out", "port": 9094, "type": "NodePort"}],
}


@contextmanager
def run_site(kube: Kubernetes, name: str, topic: str) -> Iterator[NamespaceClient]:
    """A namespace with a Cluster of one broker and a Topic. Deletes the namespace after the
    block.
    """
    client = NamespaceClient(kube.plane.admin, name)
    client.create_namespace()
    client.create("Cluster", name, SPEC)
    client.create("Topic", topic, {"clusterRef": {"name": name}, "partitions": PARTITIONS})
    try:
        client.wait_for_status("Cluster", name, within_s=180)
        client.wait_for_status("Topic", topic)
        yield client
    finally:
        client.api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def west(kube: Kubernetes, demo_cluster: ManagedCluster) -> Iterator[NamespaceClient]:
    """The Cluster `west` with the Topic `orders`."""
    with run_site(kube, WEST, "orders") as client:
        yield client


@pytest.fixture
def east(kube: Kubernetes, demo_cluster: ManagedCluster) -> Iterator[NamespaceClient]:
    """The Cluster `east` with the Topic `deliveries`."""
    with run_site(kube, EAST, "deliveries") as client:
        yield client


def mirror_spec(source: str, namespace: str, target: str, topic: str) -> dict[str, object]:
    """The spec of a Mirror. `source` is the name of a Cluster in `namespace`."""
    return {
        "source": {"bootstrap": f"{source}-plain-bootstrap.{namespace}.svc.cluster.local:9092"},
        "target": {"clusterRef": {"name": target}},
        "topics": [topic],
        "groups": [GROUP],
    }


def test_clients_fail_over_to_the_copy_after_an_edit_of_the_role(
    demo: ManagedCluster, west: NamespaceClient, kube: Kubernetes
) -> None:
    source, target = external_bootstrap(kube, west, WEST), demo.bootstrap()
    copied = [[b"%d of %d" % (number, it) for number in range(200)] for it in range(PARTITIONS)]
    for partition, values in enumerate(copied):
        rd.produce(source, "orders", messages(values), partition=partition)
    with rd.open_consumer(source, GROUP) as reader:
        reader.commit(
            offsets=[ck.TopicPartition("orders", it, COMMITTED) for it in range(PARTITIONS)], asynchronous=False
        )

    def describe() -> str:
        status = demo.resources.get("Mirror", "west").get("status")
        return f"{status}\n{demo.describe()}\n{describe_pods(kube, WEST, 'west')}"

    def is_true(condition: str) -> bool:
        return demo.resources.condition("Mirror", "west", condition).get("status") == "True"

    with demo.operator.active_pod_deleted("mirrored"):
        demo.resources.create("Mirror", "west", mirror_spec(WEST, WEST, CLUSTER_NAME, "orders"))
        eventually(lambda: is_true("InSync") and is_true("FailoverSafe"), within_s=90, message=describe)
    eventually(lambda: committed_offsets(target) == [COMMITTED] * PARTITIONS, within_s=60, message=describe)
    with pytest.raises(ck.KafkaException):
        rd.produce(target, "orders", messages([b"too early"]))

    west.delete("Cluster", "west")
    eventually(lambda: not is_true("InSync"), within_s=60, message=describe)
    assert is_true("FailoverSafe"), describe()
    assert "data-west-1" in west.list_objects("v1", "persistentvolumeclaims"), (
        "the volume claims of a deleted Cluster remain"
    )

    def is_failed_over() -> bool:
        return demo.resources.condition("Mirror", "west").get("reason") == "FailedOver"

    with demo.operator.active_pod_deleted("failed-over"):
        demo.resources.patch_spec("Mirror", "west", {"role": "FailedOver"})
        eventually(is_failed_over, within_s=60, message=describe)
    demo.resources.wait_for_status("Mirror", "west")
    for partition, values in enumerate(copied):
        assert rd.produce(target, "orders", messages([b"ours"]), partition=partition) == [200]
        consumed = rd.consume(target, "orders", partition=partition)
        assert [(it.offset(), it.value()) for it in consumed] == list(enumerate([*values, b"ours"]))
    assert first_values(target) == [values[COMMITTED] for values in copied], (
        "the group continues at its committed offset"
    )
    demo.resources.delete("Mirror", "west")


def test_the_old_source_mirrors_the_copy_and_becomes_the_source_again(
    demo: ManagedCluster, east: NamespaceClient, kube: Kubernetes
) -> None:
    source, target, topic = external_bootstrap(kube, east, EAST), demo.bootstrap(), "deliveries"

    def describe() -> str:
        mirrors = [
            demo.resources.api.get(demo.resources.path("mirrors", "east")),
            east.api.get(east.path("mirrors", "back")),
        ]
        pods = [describe_pods(kube, NAMESPACE, CLUSTER_NAME), describe_pods(kube, EAST, EAST)]
        return "\n".join([str([it and it.get("status") for it in mirrors]), *pods])

    def wait_for_reason(resources: NamespaceClient, name: str, reason: str) -> str:
        """Waits until Ready has this reason; returns its message."""
        eventually(lambda: resources.condition("Mirror", name).get("reason") == reason, within_s=90, message=describe)
        return resources.condition("Mirror", name)["message"]

    def values(bootstrap: str) -> list[bytes | None]:
        return [it.value for it in read_records(bootstrap, topic, 0)]

    def wait_until_equal(resources: NamespaceClient, name: str, *last: bytes) -> None:
        """Waits until both clusters have the same records and the Mirror is InSync. `last` are the
        last values.
        """
        eventually(
            lambda: read_records(source, topic, 0) == read_records(target, topic, 0), within_s=60, message=describe
        )
        assert values(source)[-len(last) :] == list(last)
        eventually(
            lambda: resources.condition("Mirror", name, "InSync").get("status") == "True", within_s=60, message=describe
        )

    rd.produce(source, topic, messages([b"from east"] * 50), partition=0)
    demo.resources.create("Mirror", "east", mirror_spec(EAST, EAST, CLUSTER_NAME, topic))
    wait_until_equal(demo.resources, "east", b"from east")
    demo.resources.patch_spec("Mirror", "east", {"role": "Paused"})
    wait_for_reason(demo.resources, "east", "Paused")
    rd.produce(source, topic, messages([b"not mirrored"] * 7), partition=0)
    demo.resources.patch_spec("Mirror", "east", {"role": "FailedOver"})
    wait_for_reason(demo.resources, "east", "FailedOver")
    rd.produce(target, topic, messages([b"from demo"] * 5), partition=0)

    # The other direction: the old source has records beyond the common prefix, and nothing allows
    # their truncation.
    east.create("Mirror", "back", mirror_spec(CLUSTER_NAME, NAMESPACE, EAST, topic))
    east.wait_for_status("Mirror", "back", "Failed", within_s=90)
    diverged = (
        "7 records are here and not at the source (deliveries-0: 7); onDivergence: Truncate writes them to files "
        "and truncates the logs"
    )
    for condition, status in (("Ready", "False"), ("Stalled", "True"), ("InSync", "False"), ("FailoverSafe", "False")):
        found = east.condition("Mirror", "back", condition)
        assert (found["status"], found["reason"], found["message"]) == (status, "Diverged", diverged), describe()
    assert [it["state"] for it in east.get("Mirror", "back")["status"]["topics"]] == ["Stopped"]
    assert values(source)[-7:] == [b"not mirrored"] * 7, "nothing is truncated without onDivergence"
    with pytest.raises(ck.KafkaException):
        rd.produce(source, topic, messages([b"rejected"]), partition=0)

    with demo.operator.active_pod_deleted("truncated"):
        east.patch_spec("Mirror", "back", {"onDivergence": "Truncate"})
        wait_for_reason(east, "back", "Replicating")
    wait_until_equal(east, "back", *[b"from demo"] * 5)
    truncated = list((kube.folder / "volumes").rglob(f"{topic}-0/diverged/*/*.log"))
    assert [it.read_bytes().count(b"not mirrored") for it in truncated] == [7]
    rd.produce(target, topic, messages([b"more from demo"]), partition=0)
    wait_until_equal(east, "back", b"from demo", b"more from demo")

    # Back to the original direction.
    east.patch_spec("Mirror", "back", {"role": "FailedOver"})
    assert (
        wait_for_reason(east, "back", "FailedOver")
        == "open for writing; the source was 0 records ahead when last reached"
    )
    rd.produce(source, topic, messages([b"more from east"]), partition=0)
    demo.resources.patch_spec("Mirror", "east", {"role": "Replicate"})
    wait_until_equal(demo.resources, "east", b"more from demo", b"more from east")
    wait_for_reason(demo.resources, "east", "Replicating")

    # Reverting a failover drill: only records produced during the drill are at stake.
    demo.resources.patch_spec("Mirror", "east", {"role": "FailedOver"})
    wait_for_reason(demo.resources, "east", "FailedOver")
    rd.produce(target, topic, messages([b"from the drill"]), partition=0)
    demo.resources.patch_spec("Mirror", "east", {"role": "Replicate"})
    demo.resources.wait_for_status("Mirror", "east", "Failed")
    assert demo.resources.condition("Mirror", "east")["message"].startswith("1 record is here and not at the source")
    demo.resources.patch_spec("Mirror", "east", {"onDivergence": "Truncate"})
    wait_until_equal(demo.resources, "east", b"more from demo", b"more from east")
    demo.resources.delete("Mirror", "east")


def test_a_source_outside_kubernetes_is_mirrored_with_tls_and_credentials_from_secrets(
    demo: ManagedCluster, kube: Kubernetes, tmp_path: Path
) -> None:
    """The source is an Apache Kafka. The operator notices a Secret that is created later, and one
    whose wrong password is corrected.
    """
    with run_secured_kafka(tmp_path, f"{NODE_NETWORK}.1") as source:
        rd.create_topic(source.broker.bootstrap, "invoices", 1)
        rd.produce(source.broker.bootstrap, "invoices", messages([b"copied"] * 50))
        secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        api = demo.resources.api
        credentials = {"mechanism": "SCRAM-SHA-512", "secretRef": {"name": "south-login"}}
        tls = {"caSecretRef": {"name": "south-ca"}}
        source_spec = {"bootstrap": source.addresses["SASL_SSL"], "tls": tls, "credentials": credentials}
        demo.resources.create(
            "Mirror",
            "south",
            {"source": source_spec, "target": {"clusterRef": {"name": CLUSTER_NAME}}, "topics": ["invoices"]},
        )

        def describe() -> str:
            return f"{demo.resources.get('Mirror', 'south').get('status')}\n{demo.describe()}"

        def wait_for_reason(reason: str) -> str:
            """Waits until Ready has this reason; returns its message."""
            eventually(
                lambda: demo.resources.condition("Mirror", "south").get("reason") == reason,
                within_s=90,
                message=describe,
            )
            return demo.resources.condition("Mirror", "south")["message"]

        assert wait_for_reason("CredentialsUnusable") == "Secret south-ca does not exist"
        ca_data = {"ca.crt": source.authority.certificate.read_text()}
        api.request("POST", secrets, {"metadata": {"name": "south-ca"}, "stringData": ca_data})
        wrong_login = {"username": USER, "password": "not the password"}
        api.request("POST", secrets, {"metadata": {"name": "south-login"}, "stringData": wrong_login})
        assert "Authentication failed" in wait_for_reason("SourceUnreachable")
        api.request("PATCH", f"{secrets}/south-login", {"stringData": {"password": PASSWORD}})
        wait_for_reason("Replicating")
        eventually(
            lambda: demo.resources.condition("Mirror", "south", "InSync").get("status") == "True",
            within_s=60,
            message=describe,
        )
        assert read_records(demo.bootstrap(), "invoices", 0) == read_records(source.broker.bootstrap, "invoices", 0)
        texts = describe() + str(demo.resources.list_objects("v1", "events"))
        assert PASSWORD not in texts and "not the password" not in texts
        demo.resources.delete("Mirror", "south")


def messages(values: list[bytes]) -> list[Message]:
    return [Message(None, it, START_MS) for it in values]


def committed_offsets(bootstrap: str) -> list[int]:
    """The group's committed offsets by partition."""
    with rd.open_consumer(bootstrap, GROUP) as reader:
        partitions = [ck.TopicPartition("orders", it) for it in range(PARTITIONS)]
        return [it.offset for it in reader.committed(partitions, timeout=20)]


def first_values(bootstrap: str) -> list[bytes | None]:
    """The first value that the group reads in each partition."""
    first: dict[int, bytes | None] = {}
    with rd.open_consumer(bootstrap, GROUP) as reader:
        reader.subscribe(["orders"])
        while len(first) < PARTITIONS:
            message = rd.poll_message(reader)
            assert message.error() is None, message.error()
            first.setdefault(message.partition(), message.value())
    return [first[it] for it in range(PARTITIONS)]
