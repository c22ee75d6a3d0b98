"""Groups on a real API server without nodes; the broker is a process."""

import itertools
from collections.abc import Iterator

import pytest

from tests.brokers import BrokerProcess
from tests.clients.share_member import begin_at_earliest, read_group_configs
from tests.kube.api_client import ApiError
from tests.kube.fake_kubelet import create_cluster_with_broker, run_broker_process
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.waiting import eventually

NUMBERS = itertools.count(1)
CLUSTER = {"clusterRef": {"name": "demo"}}
RESET, LIMIT = "share.auto.offset.reset", "share.delivery.count.limit"


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    """A broker at an address of its own, because the operator still reconciles the namespaces of
    earlier tests.
    """
    with run_broker_process(f"127.9.6.{next(NUMBERS)}") as broker:
        yield broker


@pytest.fixture
def resources(resources: NamespaceClient, broker: BrokerProcess, operator: OperatorProcess) -> NamespaceClient:
    """A namespace with a Cluster whose only broker is `broker`."""
    create_cluster_with_broker(resources, broker)
    return resources


def test_settings_of_a_group_follow_its_resource(
    resources: NamespaceClient, broker: BrokerProcess, operator: OperatorProcess
) -> None:
    resources.create("Group", "work", {**CLUSTER, "groupName": "Workers", "config": {RESET: "earliest", LIMIT: 3}})
    assert resources.wait_for_status("Group", "work")["status"]["groupName"] == "Workers"
    assert read_group_configs(broker.bootstrap, "Workers") == {RESET: "earliest", LIMIT: "3"}
    before = resources.get("Group", "work")["metadata"]
    assert "finalizers" not in before
    reconciles = operator.count_reconciles("Group")
    eventually(lambda: operator.count_reconciles("Group") > reconciles, within_s=60, message="another reconcile")
    assert resources.get("Group", "work")["metadata"]["resourceVersion"] == before["resourceVersion"]
    resources.patch_spec("Group", "work", {"config": {RESET: None, LIMIT: 4}})
    eventually(lambda: read_group_configs(broker.bootstrap, "Workers") == {LIMIT: "4"}, within_s=60)
    begin_at_earliest(broker, "Workers")
    eventually(
        lambda: read_group_configs(broker.bootstrap, "Workers") == {LIMIT: "4"}, within_s=60, message="drift is undone"
    )
    resources.delete("Group", "work")
    assert read_group_configs(broker.bootstrap, "Workers") == {LIMIT: "4"}


def test_a_second_resource_of_a_group_is_stalled(resources: NamespaceClient) -> None:
    resources.create("Group", "work", {**CLUSTER, "config": {LIMIT: 3}})
    resources.wait_for_status("Group", "work")
    resources.create("Group", "workers", {**CLUSTER, "groupName": "work", "config": {LIMIT: 4}})
    resources.wait_for_status("Group", "workers", "Failed")
    assert resources.condition("Group", "workers", "Stalled")["reason"] == "NameConflict"


def test_a_group_with_settings_that_brokers_reject_is_stalled_and_names_them(resources: NamespaceClient) -> None:
    resources.create("Group", "work", {**CLUSTER, "config": {LIMIT: 1000}})
    resources.wait_for_status("Group", "work", "Failed")
    stalled = resources.condition("Group", "work", "Stalled")
    assert stalled["reason"] == "RejectedByBrokers" and LIMIT in stalled["message"]
    resources.patch_spec("Group", "work", {"config": {LIMIT: 5}})
    resources.wait_for_status("Group", "work")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"config": {RESET: "earliest"}}, "clusterRef"),
        (CLUSTER, "config"),
        ({**CLUSTER, "config": {"share.renew.acknowledge.enable": "perhaps"}}, "share.renew.acknowledge.enable"),
    ],
)
def test_the_api_server_rejects_an_invalid_group(
    resources: NamespaceClient, spec: dict[str, object], message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        resources.create("Group", "work", spec)


def test_names_of_a_group_are_immutable(resources: NamespaceClient) -> None:
    resources.create("Group", "work", {**CLUSTER, "config": {}})
    for change in ({"groupName": "other"}, {"tenant": "acme"}, {"clusterRef": {"name": "other"}}):
        with pytest.raises(ApiError, match="immutable"):
            resources.patch_spec("Group", "work", change)
