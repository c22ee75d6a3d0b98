"""Settings of Clusters and Topics on a real API server: those that its schema rejects, and those
that only the operator can reject.
"""

import pytest

from tests.kube.api_client import ApiError, Json
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.waiting import eventually

SPEC = {"replicas": 3, "storage": {"size": "10Gi"}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num.partitions": 0}, "num.partitions: allowed: a 32-bit integer, at least 1"),
        ({"log.retention.ms": "soon"}, "spec.config.log.retention.ms"),
        ({"auto.create.topics.enable": "yes"}, "spec.config.auto.create.topics.enable"),
        ({"node.id": 3}, "node.id cannot be set here"),
    ],
)
def test_the_api_server_rejects_a_setting_that_its_schema_can_check(
    resources: NamespaceClient, config: Json, message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        resources.create("Cluster", "demo", {**SPEC, "config": config})


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("0-demo", SPEC, "metadata.name begins the names of Services"),
        ("d" * 41, SPEC, "metadata.name begins the names of Services"),
        ("demo", {"replicas": 3}, "spec.storage is missing"),
    ],
)
def test_the_api_server_refuses_what_kubernetes_cannot_run(
    resources: NamespaceClient, name: str, spec: Json, message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        resources.create("Cluster", name, spec)


def test_the_api_server_accepts_settings_in_every_form(resources: NamespaceClient) -> None:
    config = {
        "auto.create.topics.enable": False,
        "delete.topic.enable": "true",
        "num.partitions": "3",
        "log.retention.ms": -1,
        "log.cleaner.min.cleanable.ratio": 0.25,
        "log.cleanup.policy": "compact,delete",
        "broker.session.timeout.ms": "${env:SESSION}",
    }
    assert resources.create("Cluster", "demo", {**SPEC, "config": config})["spec"]["config"] == config
    topic = {"clusterRef": {"name": "demo"}, "config": {"retention.ms": 5, "preallocate": False}}
    assert resources.create("Topic", "flights", topic)["spec"] == topic
    with pytest.raises(ApiError, match="allowed: a 64-bit integer, at least -1"):
        resources.patch_spec("Topic", "flights", {"config": {"retention.ms": -2}})


def test_an_unknown_setting_stalls_the_cluster_before_a_broker_starts_and_suggests_the_nearest_name(
    resources: NamespaceClient, operator: OperatorProcess
) -> None:
    resources.create("Cluster", "demo", {**SPEC, "config": {"num.partitons": 3}})
    resources.wait_for_status("Cluster", "demo", "Failed")
    stalled = resources.condition("Cluster", "demo", "Stalled")
    assert stalled["reason"] == "SettingRefused" and "did you mean num.partitions?" in stalled["message"]
    assert resources.list_objects("apps/v1", "statefulsets") == {}
    resources.patch_spec("Cluster", "demo", {"config": None})
    resources.wait_for_status("Cluster", "demo", "InProgress")

    def event_reasons() -> set[str]:
        return {it["reason"] for it in resources.list_objects("v1", "events").values()}

    eventually(lambda: "SettingRefused" in event_reasons(), message="a SettingRefused event")
