"""Schemas on a real API server without nodes; the broker and its registry are a process."""

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.brokers import BrokerProcess
from tests.kube.api_client import ApiError, Json
from tests.kube.fake_kubelet import create_cluster_with_broker, run_broker_process
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.waiting import eventually

NUMBERS = itertools.count(1)
CLUSTER = {"clusterRef": {"name": "demo"}}
TEXT = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'
INCOMPATIBLE = TEXT.replace('"string"', '"int"')


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    """A broker at an address of its own, because the operator still reconciles the namespaces of
    earlier tests.
    """
    host = f"127.9.5.{next(NUMBERS)}"
    with run_broker_process(host, {"schema.registry.listener": f"{host}:8081"}) as broker:
        yield broker


@pytest.fixture
def resources(resources: NamespaceClient, broker: BrokerProcess, operator: OperatorProcess) -> NamespaceClient:
    """A namespace with a Cluster whose only broker is `broker`."""
    create_cluster_with_broker(resources, broker, schemaRegistry={})
    return resources


@pytest.fixture
def registry(broker: BrokerProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": f"http://{broker.host}:8081"})


def create_config_map(resources: NamespaceClient, text: str) -> str:
    """Creates the ConfigMap `schemas`, and returns its path."""
    path = f"/api/v1/namespaces/{resources.namespace}/configmaps"
    resources.api.request("POST", path, {"metadata": {"name": "schemas"}, "data": {"order.avsc": text}})
    return f"{path}/schemas"


def test_a_schema_is_registered_and_says_its_version_and_id(
    resources: NamespaceClient, registry: SchemaRegistryClient, operator: OperatorProcess
) -> None:
    resources.create("Schema", "orders-value", {**CLUSTER, "schema": TEXT, "compatibility": "FULL"})
    status = resources.wait_for_status("Schema", "orders-value")["status"]
    assert (status["subject"], status["version"], status["id"]) == ("orders-value", 1, 1)
    assert status["compatibility"] == registry.get_compatibility("orders-value") == "FULL"
    before = resources.get("Schema", "orders-value")["metadata"]
    assert "finalizers" not in before
    reconciles = operator.count_reconciles("Schema")
    eventually(lambda: operator.count_reconciles("Schema") > reconciles, within_s=60, message="another reconcile")
    assert resources.get("Schema", "orders-value")["metadata"]["resourceVersion"] == before["resourceVersion"]
    resources.delete("Schema", "orders-value")
    assert registry.get_subjects() == ["orders-value"]


def test_an_incompatible_change_is_stalled_and_says_which_pipelines_read_the_subject(
    resources: NamespaceClient, operator: OperatorProcess
) -> None:
    pipeline = {
        **CLUSTER,
        "sources": {"orders": {"topic": "orders", "format": {"type": "avro", "schemaRef": {"version": 1}}}},
        "sinks": [{"from": "orders", "console": {}}],
        "checkpoint": {"pvc": {"size": "1Gi"}},
        "deadLetter": {"topic": "rejected"},
    }
    for name in ("orders", "rejected"):
        resources.create("Topic", name, {**CLUSTER, "partitions": 1})
    resources.create("Schema", "orders-value", {**CLUSTER, "schema": TEXT})
    resources.wait_for_status("Schema", "orders-value")
    resources.create("Pipeline", "hourly", pipeline)
    eventually(
        lambda: resources.get("Pipeline", "hourly").get("status", {}).get("state") == "Starting",
        message=lambda: f"{resources.get('Pipeline', 'hourly').get('status')} {operator.daemon.log_tail()}",
    )
    resources.patch_spec("Schema", "orders-value", {"schema": INCOMPATIBLE})
    resources.wait_for_status("Schema", "orders-value", "Failed")
    stalled = resources.condition("Schema", "orders-value", "Stalled")
    assert stalled["reason"] == "IncompatibleSchema"
    assert "TYPE_MISMATCH" in stalled["message"] and "oldSchemaVersion: 1" in stalled["message"]
    assert "running Pipelines read orders-value: hourly (source orders, version 1)" in stalled["message"]
    events = resources.list_objects("v1", "events").values()
    assert ("IncompatibleSchema", "Warning") in {(it["reason"], it["type"]) for it in events}
    resources.patch_spec("Schema", "orders-value", {"schema": TEXT})
    resources.wait_for_status("Schema", "orders-value")


def test_the_text_of_a_config_map_is_registered_as_it_changes(
    resources: NamespaceClient, registry: SchemaRegistryClient
) -> None:
    source = {"configMapKeyRef": {"name": "schemas", "key": "order.avsc"}}
    resources.create("Schema", "orders-value", {**CLUSTER, "schemaFrom": source})
    eventually(lambda: resources.condition("Schema", "orders-value").get("reason") == "SchemaSourceNotFound")
    path = create_config_map(resources, TEXT)
    assert resources.wait_for_status("Schema", "orders-value")["status"]["version"] == 1
    added = TEXT.replace("]}", ',{"name":"note","type":"string","default":""}]}')
    resources.api.request("PATCH", path, {"data": {"order.avsc": added}})
    eventually(lambda: resources.get("Schema", "orders-value")["status"]["version"] == 2, within_s=90)
    assert registry.get_versions("orders-value") == [1, 2]


def test_a_subject_is_deleted_with_a_schema_whose_policy_is_delete(
    resources: NamespaceClient, registry: SchemaRegistryClient, operator: OperatorProcess
) -> None:
    resources.create("Schema", "orders-value", {**CLUSTER, "schema": TEXT, "deletionPolicy": "Delete"})
    resources.wait_for_status("Schema", "orders-value")
    assert resources.get("Schema", "orders-value")["metadata"]["finalizers"] == ["ottla.dev/subject"]
    operator.daemon.stop()
    resources.delete("Schema", "orders-value")
    assert registry.get_subjects() == ["orders-value"]
    operator.start()
    eventually(
        lambda: resources.api.get(resources.path("schemas", "orders-value")) is None,
        within_s=60,
        message=operator.daemon.log_tail,
    )
    assert registry.get_subjects() == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"schema": TEXT, "schemaFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}, "exactly one of schema and"),
        ({"schemaFrom": {"file": "order.avsc"}}, "schemaFrom.file is only for `ottla up`"),
        ({"schema": TEXT, "references": [{"name": "a", "subject": "a"}]}, "a reference to a subject needs a version"),
    ],
)
def test_the_api_server_rejects_invalid_specs(resources: NamespaceClient, spec: Json, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        resources.create("Schema", "orders-value", {**CLUSTER, **spec})


def test_subject_and_cluster_are_immutable(resources: NamespaceClient) -> None:
    resources.create("Schema", "orders-value", {**CLUSTER, "schema": TEXT})
    with pytest.raises(ApiError, match="subject is immutable"):
        resources.patch_spec("Schema", "orders-value", {"subject": "other"})
    with pytest.raises(ApiError, match="clusterRef is immutable"):
        resources.patch_spec("Schema", "orders-value", {"clusterRef": {"name": "other"}})
