"""Mirrors on a real API server without nodes; the brokers of both clusters are processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla_operator.plan.conditions import kstatus
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.e2e.mirroring import produce, read_records, read_watermarks
from tests.e2e.secured_kafka import PASSWORD, USER, run_secured_kafka
from tests.kube.fake_kubelet import create_cluster_with_broker, run_broker_process
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.waiting import eventually


@pytest.fixture
def target() -> Iterator[BrokerProcess]:
    with run_broker_process("127.9.1.3") as broker:
        yield broker


@pytest.fixture
def resources(resources: NamespaceClient, target: BrokerProcess, operator: OperatorProcess) -> NamespaceClient:
    """A namespace with the Cluster `here`, whose only broker is `target`."""
    create_cluster_with_broker(resources, target, "here")
    return resources


def test_a_mirror_copies_and_fails_over_after_an_edit_of_its_role(
    resources: NamespaceClient, target: BrokerProcess, operator: OperatorProcess
) -> None:
    with run_ottla_broker() as source:
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
        produce(source.bootstrap, "orders", [b"copied"] * 50)
        spec = {"source": {"bootstrap": source.bootstrap}, "target": {"clusterRef": {"name": "here"}}, "topics": ["*"]}
        resources.create("Mirror", "west", spec)
        resources.wait_for_status("Mirror", "west")

        def is_in_sync() -> bool:
            return resources.condition("Mirror", "west", "InSync").get("status") == "True"

        eventually(
            is_in_sync, within_s=60, message=lambda: f"{resources.get('Mirror', 'west')}\n{operator.daemon.log_tail()}"
        )
        assert resources.condition("Mirror", "west", "FailoverSafe")["status"] == "True"
        status = resources.get("Mirror", "west")["status"]
        assert (status["role"], status["lagRecords"], status["topics"][0]["topic"]) == ("Replicate", 0, "orders")
        assert read_watermarks(target.bootstrap, "orders", 0) == (0, 50)
        before = resources.get("Mirror", "west")["metadata"]["resourceVersion"]
        reconciles = operator.count_reconciles("Mirror")
        eventually(lambda: operator.count_reconciles("Mirror") >= reconciles + 1, within_s=30)
        assert resources.get("Mirror", "west")["metadata"]["resourceVersion"] == before, "nothing was written"

        resources.patch_spec("Mirror", "west", {"role": "FailedOver"})

        def is_writable() -> bool:
            return resources.condition("Mirror", "west").get("reason") == "FailedOver"

        eventually(is_writable, within_s=30, message=lambda: str(resources.get("Mirror", "west")))
        produce(target.bootstrap, "orders", [b"ours"])
        assert [it.value for it in read_records(target.bootstrap, "orders", 0)] == [b"copied"] * 50 + [b"ours"]
        resources.delete("Mirror", "west")


def test_invalid_and_unreachable_mirrors_are_reported(resources: NamespaceClient) -> None:
    spec = {"source": {"bootstrap": "127.0.0.1:1"}, "target": {"clusterRef": {"name": "here"}}, "topics": ["*"]}
    resources.create("Mirror", "with-groups", {**spec, "offsets": "Appended", "groups": ["a"]})
    assert resources.wait_for_status("Mirror", "with-groups", "Failed")
    assert (
        "spec.groups cannot be copied with offsets: Appended" in resources.condition("Mirror", "with-groups")["message"]
    )
    resources.create("Mirror", "without-cluster", {**spec, "target": {"clusterRef": {"name": "nothing"}}})
    eventually(lambda: resources.condition("Mirror", "without-cluster").get("reason") == "ClusterNotFound", within_s=30)
    assert kstatus(resources.get("Mirror", "without-cluster")) == "InProgress"
    resources.create("Mirror", "unreachable", spec)
    eventually(lambda: resources.condition("Mirror", "unreachable").get("reason") == "SourceUnreachable", within_s=30)
    message = resources.condition("Mirror", "unreachable")["message"]
    assert message.startswith("the source at 127.0.0.1:1: ") and "refused" in message.lower(), message


def test_an_unresponsive_source_and_a_conflicting_topic_are_reported(
    resources: NamespaceClient, target: BrokerProcess, operator: OperatorProcess
) -> None:
    """The source's brokers are paused: connections stay open but get no response, so the lag is
    unknown.
    """
    with run_ottla_broker() as source:
        for broker, topic in ((source, "orders"), (source, "taken"), (target, "taken")):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
        produce(source.bootstrap, "orders", [b"copied"] * 50)
        spec = {"source": {"bootstrap": source.bootstrap}, "target": {"clusterRef": {"name": "here"}}, "topics": ["*"]}
        resources.create("Mirror", "west", spec)

        def describe() -> str:
            return f"{resources.get('Mirror', 'west')}\n{operator.daemon.log_tail()}"

        def is_true(condition: str) -> bool:
            return resources.condition("Mirror", "west", condition).get("status") == "True"

        eventually(lambda: is_true("Ready") and is_true("InSync"), within_s=60, message=describe)
        reason = "a topic of that name exists and is not mirrored: delete it, or exclude it from the mirror's topics"
        assert resources.condition("Mirror", "west")["message"].endswith(f"; taken is not copied: {reason}.")
        orders, taken = resources.get("Mirror", "west")["status"]["topics"]
        assert taken == {"topic": "taken", "state": "Refused", "why": reason}
        assert "silentSeconds" not in orders
        source.pause()
        try:
            eventually(lambda: not is_true("Ready"), within_s=60, message=describe)
            ready, status = resources.condition("Mirror", "west"), resources.get("Mirror", "west")["status"]
            assert ready["reason"] == "SourceUnreachable", ready
            assert not is_true("InSync") and is_true("FailoverSafe")
            assert status["silentSeconds"] >= 10 and status["topics"][0]["silentSeconds"] >= 10
        finally:
            source.resume()
        eventually(lambda: is_true("Ready") and is_true("InSync"), within_s=60, message=describe)
        assert "silentSeconds" not in resources.get("Mirror", "west")["status"]
        resources.delete("Mirror", "west")


def test_credentials_come_from_secrets(
    resources: NamespaceClient, target: BrokerProcess, operator: OperatorProcess, tmp_path: Path
) -> None:
    with run_secured_kafka(tmp_path) as source:
        admin = AdminClient({"bootstrap.servers": source.broker.bootstrap})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
        produce(source.broker.bootstrap, "orders", [b"copied"] * 50)
        credentials = {"mechanism": "SCRAM-SHA-256", "secretRef": {"name": "west-login"}}
        tls = {"caSecretRef": {"name": "west-ca"}}
        source_spec = {"bootstrap": source.addresses["SASL_SSL"], "tls": tls, "credentials": credentials}
        spec = {"source": source_spec, "target": {"clusterRef": {"name": "here"}}, "topics": ["*"]}
        resources.create("Mirror", "west", spec)

        def ready_condition() -> dict[str, str]:
            return resources.condition("Mirror", "west")

        eventually(
            lambda: ready_condition().get("reason") == "CredentialsUnusable",
            within_s=60,
            message=operator.daemon.log_tail,
        )
        assert ready_condition()["message"] == "Secret west-ca does not exist"
        secrets = f"/api/v1/namespaces/{resources.namespace}/secrets"

        def create_secret(name: str, **values: str) -> None:
            resources.api.request("POST", secrets, {"metadata": {"name": name}, "stringData": values})

        create_secret("west-ca", **{"ca.crt": source.authority.certificate.read_text()})
        create_secret("west-login", username=USER, password=PASSWORD)
        eventually(
            lambda: read_watermarks(target.bootstrap, "orders", 0) == (0, 50),
            within_s=60,
            message=lambda: str(ready_condition()),
        )
        assert PASSWORD not in operator.daemon.log_tail() and PASSWORD not in str(resources.get("Mirror", "west"))
        resources.delete("Mirror", "west")
