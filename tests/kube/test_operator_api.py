"""The operator on a real API server without nodes: validation, created objects, drift correction,
conditions and events.
"""

from pathlib import Path

import pytest

from ottla_operator.plan.conditions import kstatus
from tests.kube.api_client import ApiError, Json
from tests.kube.control_plane import ControlPlane
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.waiting import eventually

SPEC = {"replicas": 3, "storage": {"size": "10Gi"}}
# Kinds of the objects that the operator could write, as arguments of `list_objects`.
KINDS = (
    ("v1", "services"),
    ("v1", "configmaps"),
    ("v1", "serviceaccounts"),
    ("apps/v1", "statefulsets"),
    ("policy/v1", "poddisruptionbudgets"),
    ("networking.k8s.io/v1", "networkpolicies"),
    ("rbac.authorization.k8s.io/v1", "roles"),
    ("rbac.authorization.k8s.io/v1", "rolebindings"),
    ("coordination.k8s.io/v1", "leases"),
    ("ottla.dev/v1alpha1", "clusters"),
    ("ottla.dev/v1alpha1", "topics"),
)


def has_filled_caches(operator: OperatorProcess, resources: NamespaceClient) -> bool:
    """True if the operator caches as many Clusters and Topics as all namespaces of the API server
    have.
    """
    metrics = operator.metrics()
    return all(
        metrics.get(f'ottla_operator_resources{{kind="{kind}"}}', 0)
        == len((resources.api.get(f"/apis/ottla.dev/v1alpha1/{plural}") or {}).get("items") or ())
        for kind, plural in (("Cluster", "clusters"), ("Topic", "topics"))
    )


def test_a_resource_that_was_never_reconciled_is_in_progress(resources: NamespaceClient) -> None:
    resources.create("Cluster", "demo", SPEC)
    assert resources.condition("Cluster", "demo")["status"] == "Unknown"
    assert kstatus(resources.get("Cluster", "demo")) == "InProgress"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replicas": 0}, "spec.replicas"),
        ({**SPEC, "storage": {"size": "ten"}}, "spec.storage.size"),
        (
            {**SPEC, "listeners": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]},
            "two listeners have the same port",
        ),
        ({**SPEC, "version": "1", "image": "a:1"}, "version and image exclude each other"),
    ],
)
def test_the_api_server_rejects_invalid_specs(resources: NamespaceClient, spec: Json, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        resources.create("Cluster", "demo", spec)


def test_storage_size_and_partitions_cannot_be_decreased(resources: NamespaceClient) -> None:
    resources.create("Cluster", "demo", SPEC)
    with pytest.raises(ApiError, match="storage size cannot be decreased"):
        resources.patch_spec("Cluster", "demo", {"storage": {"size": "9Gi"}})
    resources.create("Topic", "flights", {"clusterRef": {"name": "demo"}, "partitions": 3})
    with pytest.raises(ApiError, match="partitions cannot be decreased"):
        resources.patch_spec("Topic", "flights", {"partitions": 2})


def test_the_objects_of_a_cluster_are_written_once(resources: NamespaceClient, operator: OperatorProcess) -> None:
    resources.create("Cluster", "demo", {**SPEC, "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}})
    eventually(lambda: "demo" in resources.list_objects("apps/v1", "statefulsets"), message=operator.daemon.log_tail)
    eventually(
        lambda: resources.condition("Cluster", "demo").get("reason") == "InsufficientReplicas",
        message=operator.daemon.log_tail,
    )
    assert kstatus(resources.get("Cluster", "demo")) == "InProgress"
    before = resources.resource_versions(KINDS)
    expected = {"services/demo-brokers", "services/demo-plain-bootstrap", "statefulsets/demo"}
    assert expected <= before.keys()
    reconciles, writes = operator.count_reconciles(), operator.count_writes()
    eventually(lambda: operator.count_reconciles() >= reconciles + 2, within_s=30)
    assert resources.resource_versions(KINDS) == before
    assert operator.count_writes() == writes, "no writes without effect either"
    operator.daemon.stop()
    operator.start()
    eventually(lambda: operator.count_reconciles() >= 2, within_s=30, message=operator.daemon.log_tail)
    assert resources.resource_versions(KINDS) == before, "a restarted operator writes nothing"
    # The API server normalises some values (1000m to 1). The operator detects that they are equal
    # without writing.
    assert operator.count_writes() == {}


def test_brokers_found_a_cluster_unless_a_claim_may_hold_one(
    resources: NamespaceClient, operator: OperatorProcess
) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    core = f"/api/v1/namespaces/{resources.namespace}"
    resources.api.request("POST", f"{core}/persistentvolumeclaims", {"metadata": {"name": "data-old-2"}, "spec": claim})
    for name in ("new", "old"):
        resources.create("Cluster", name, SPEC)
    eventually(
        lambda: {"new", "old"} <= resources.list_objects("apps/v1", "statefulsets").keys(),
        message=operator.daemon.log_tail,
    )
    settings = {
        it["metadata"]["labels"]["app.kubernetes.io/instance"]: it["data"]["broker-1.properties"]
        for it in resources.list_objects("v1", "configmaps").values()
        if "broker-1.properties" in it.get("data", {})
    }
    assert settings == {"new": "cluster.found=true\n", "old": ""}


def test_drift_is_corrected(resources: NamespaceClient, operator: OperatorProcess) -> None:
    resources.create("Cluster", "demo", SPEC)
    eventually(lambda: "demo" in resources.list_objects("apps/v1", "statefulsets"), message=operator.daemon.log_tail)
    service = f"/api/v1/namespaces/{resources.namespace}/services/demo-brokers"
    resources.api.request("PATCH", service, {"spec": {"publishNotReadyAddresses": False}})
    budget = f"/apis/policy/v1/namespaces/{resources.namespace}/poddisruptionbudgets/demo"
    eventually(lambda: resources.api.get(budget), message="the budget is created last")
    resources.api.request("DELETE", budget)
    eventually(lambda: resources.api.get(budget), within_s=30)
    eventually(lambda: (resources.api.get(service) or {})["spec"].get("publishNotReadyAddresses"), within_s=30)


def event_reasons_and_types(resources: NamespaceClient) -> set[tuple[str, str]]:
    """(reason, type) of each of the namespace's events."""
    return {(it["reason"], it["type"]) for it in resources.list_objects("v1", "events").values()}


def test_an_invalid_spec_that_the_schema_accepts_is_stalled(
    resources: NamespaceClient, operator: OperatorProcess
) -> None:
    """A setting of a listener that does not exist."""
    setting = "listener.name.other.ssl.client.auth"
    resources.create("Cluster", "demo", {**SPEC, "config": {setting: "required"}})
    resources.wait_for_status("Cluster", "demo", "Failed")
    assert "listener.name.other" in resources.condition("Cluster", "demo", "Stalled")["message"]
    resources.patch_spec("Cluster", "demo", {"config": None})
    resources.wait_for_status("Cluster", "demo", "InProgress")
    eventually(
        lambda: ("SettingRefused", "Warning") in event_reasons_and_types(resources), message="a SettingRefused event"
    )


def test_a_topic_reports_that_its_cluster_is_missing_or_not_ready(
    resources: NamespaceClient, operator: OperatorProcess
) -> None:
    resources.create("Topic", "flights", {"clusterRef": {"name": "demo"}})
    eventually(
        lambda: resources.condition("Topic", "flights").get("reason") == "ClusterNotFound",
        message=operator.daemon.log_tail,
    )
    resources.create("Cluster", "demo", SPEC)
    eventually(lambda: resources.condition("Topic", "flights").get("reason") == "ClusterNotReady")
    assert "finalizers" not in resources.get("Topic", "flights")["metadata"]
    assert "annotations" not in resources.get("Topic", "flights")["metadata"]


def test_a_standby_operator_takes_over_within_12_s(
    plane: ControlPlane, resources: NamespaceClient, operator: OperatorProcess, tmp_path: Path
) -> None:
    eventually(lambda: operator.is_active, message=operator.daemon.log_tail)
    other = OperatorProcess(tmp_path, plane.kubeconfig(), "other")
    other.start()
    try:
        assert not other.is_active
        operator.daemon.kill()
        eventually(lambda: other.is_active, within_s=12, message=other.daemon.log_tail)
        resources.create("Cluster", "demo", SPEC)
        eventually(lambda: "demo" in resources.list_objects("apps/v1", "statefulsets"), message=other.daemon.log_tail)
    finally:
        other.daemon.stop()


def test_operators_of_two_releases_in_one_namespace_are_both_active(
    plane: ControlPlane, operator: OperatorProcess, tmp_path: Path
) -> None:
    eventually(lambda: operator.is_active, message=operator.daemon.log_tail)
    other = OperatorProcess(tmp_path, plane.kubeconfig(), "other", "west-ottla-operator")
    other.start()
    try:
        eventually(lambda: other.is_active, within_s=12, message=other.daemon.log_tail)
        assert operator.is_active
        eventually(lambda: other.is_ready and operator.is_ready, message="both operators are ready")
    finally:
        other.daemon.stop()


def test_resources_deleted_while_the_watch_was_interrupted_are_forgotten(
    plane: ControlPlane, resources: NamespaceClient, operator: OperatorProcess
) -> None:
    resources.create("Cluster", "demo", SPEC)
    resources.create("Topic", "flights", {"clusterRef": {"name": "demo"}})
    eventually(lambda: "demo" in resources.list_objects("apps/v1", "statefulsets"), message=operator.daemon.log_tail)
    eventually(lambda: has_filled_caches(operator, resources))
    plane.api_server.kill()
    operator.daemon.pause()
    plane.start_api_server()
    resources.delete("Cluster", "demo")
    resources.delete("Topic", "flights")
    plane.api_server.kill()
    plane.start_api_server()  # its watch cache starts here: the watches miss the deletions
    operator.daemon.resume()
    resources.create("Cluster", "other", SPEC)
    eventually(
        lambda: "other" in resources.list_objects("apps/v1", "statefulsets"),
        within_s=30,
        message=operator.daemon.log_tail,
    )
    eventually(lambda: has_filled_caches(operator, resources), within_s=90)
    budget = f"/apis/policy/v1/namespaces/{resources.namespace}/poddisruptionbudgets"
    eventually(lambda: resources.api.get(f"{budget}/demo") and resources.api.get(f"{budget}/other"))
    resources.api.request("DELETE", f"{budget}/demo")
    resources.api.request("DELETE", f"{budget}/other")
    eventually(lambda: resources.api.get(f"{budget}/other"), within_s=30)
    assert resources.api.get(f"{budget}/demo") is None, "created for a deleted Cluster"
