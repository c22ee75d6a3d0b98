"""A Cluster's conditions report why pods are not created or not scheduled: on a real API server
with Kubernetes' own controllers and scheduler, and without nodes.
"""

from collections.abc import Iterator

import pytest

from tests.kube.control_plane import ControlPlane
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.waiting import eventually

SPEC = {"replicas": 1, "storage": {"size": "1Gi"}}


@pytest.fixture(scope="module", autouse=True)
def controllers(plane: ControlPlane) -> Iterator[None]:
    plane.start_controllers()
    yield


def wait_for_reason(resources: NamespaceClient, reason: str) -> str:
    """Waits until Ready has this reason; returns its message."""

    def is_reported() -> bool:
        return resources.condition("Cluster", "demo").get("reason") == reason

    eventually(is_reported, within_s=60, message=lambda: f"{resources.get('Cluster', 'demo')}")
    return resources.condition("Cluster", "demo")["message"]


def test_an_exceeded_quota_is_reported_until_it_is_removed(
    resources: NamespaceClient, operator: OperatorProcess
) -> None:
    quotas = f"/api/v1/namespaces/{resources.namespace}/resourcequotas"
    resources.api.request("POST", quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    eventually(lambda: (resources.api.get(f"{quotas}/none") or {}).get("status", {}).get("hard"), within_s=60)
    resources.create("Cluster", "demo", SPEC)
    message = wait_for_reason(resources, "FailedCreate")
    assert "broker 1 cannot be created" in message and "exceeded quota: none" in message
    assert resources.condition("Cluster", "demo", "Stalled")["status"] == "True"
    resources.api.request("DELETE", f"{quotas}/none")
    eventually(lambda: "demo-1" in resources.list_objects("v1", "pods"), within_s=120)
    wait_for_reason(resources, "Unschedulable")


def test_a_pod_security_level_that_forbids_a_pod_is_reported(
    resources: NamespaceClient, operator: OperatorProcess
) -> None:
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    resources.api.request("PATCH", f"/api/v1/namespaces/{resources.namespace}", labels)
    resources.create("Cluster", "demo", {**SPEC, "podTemplate": {"spec": {"hostNetwork": True}}})
    assert 'violates PodSecurity "restricted' in wait_for_reason(resources, "FailedCreate")


def test_a_pod_that_no_node_can_take_is_reported(resources: NamespaceClient, operator: OperatorProcess) -> None:
    resources.create("Cluster", "demo", SPEC)
    message = wait_for_reason(resources, "Unschedulable")
    assert "0 of 1 brokers are ready" in message and "no nodes available" in message


def test_a_service_account_that_does_not_exist_is_reported(
    resources: NamespaceClient, operator: OperatorProcess
) -> None:
    resources.create("Cluster", "demo", {**SPEC, "podTemplate": {"spec": {"serviceAccountName": "nobody-made-this"}}})
    message = wait_for_reason(resources, "FailedCreate")
    assert 'serviceaccount "nobody-made-this" not found' in message
