"""A Cluster continues from its disks alone, on a real kubelet: one that is created again over its
volume claims, and one in which a majority of the voters has lost its disks."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.kube.cluster import Kubernetes
from tests.kube.installed_operator import OPERATOR_NAMESPACE, InstalledOperator, describe_pods, find_process
from tests.kube.managed_cluster import external_bootstrap
from tests.kube.namespace_client import NamespaceClient
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
NAME = "disks"
RECORDS = [b"%d" % number for number in range(200)]
SPEC = {
    "replicas": 3,
    "storage": {"size": "1Gi"},
    "resources": {"requests": {"cpu": "100m"}},
    "listeners": [{"name": "plain", "port": 9092}, {"name": "out", "port": 9094, "type": "NodePort"}],
    "config": {"offsets.topic.num.partitions": 1},
}
LEASES_AND_ROLES = (
    ("coordination.k8s.io/v1", "leases"),
    ("rbac.authorization.k8s.io/v1", "roles"),
    ("rbac.authorization.k8s.io/v1", "rolebindings"),
)


@pytest.fixture(scope="module")
def resources(kube: Kubernetes, installed_operator: InstalledOperator) -> Iterator[NamespaceClient]:
    """A Cluster of three brokers, with records in a topic that has three replicas."""
    made = NamespaceClient(kube.plane.admin, NAME)
    made.create_namespace()
    try:
        made.create("Cluster", NAME, SPEC)
        wait_until_ready(kube, made)
        made.create("Topic", "flights", {"clusterRef": {"name": NAME}, "partitions": 1, "replicas": 3})
        made.wait_for_status("Topic", "flights")
        messages = [Message(None, value, START_MS) for value in RECORDS]
        rd.produce(external_bootstrap(kube, made, NAME), "flights", messages)
        yield made
    finally:
        made.api.request("DELETE", f"/api/v1/namespaces/{NAME}")


def test_brokers_have_neither_rights_nor_a_token(resources: NamespaceClient) -> None:
    assert not [name for group, plural in LEASES_AND_ROLES for name in resources.list_objects(group, plural)]
    for pod in resources.list_objects("v1", "pods").values():
        assert not [it for it in pod["spec"]["volumes"] if "projected" in it]


def test_a_cluster_that_is_created_again_continues_on_its_claims(kube: Kubernetes, resources: NamespaceClient) -> None:
    before = resources.get("Cluster", NAME)["status"]["clusterId"]
    resources.delete("Cluster", NAME)
    eventually(
        lambda: not resources.list_objects("v1", "pods"), within_s=90, message=lambda: describe_pods(kube, NAME, NAME)
    )
    assert len(resources.list_objects("v1", "persistentvolumeclaims")) == 3
    resources.create("Cluster", NAME, SPEC)
    wait_until_ready(kube, resources)
    assert resources.get("Cluster", NAME)["status"]["clusterId"] == before
    assert read_values(kube, resources) == RECORDS


def test_a_cluster_without_a_majority_of_its_disks_is_recovered(kube: Kubernetes, resources: NamespaceClient) -> None:
    before = resources.get("Cluster", NAME)["status"]["clusterId"]
    for broker in (2, 3):  # a stopped broker neither hands anything over nor repairs what the other loses
        os.kill(find_process(kube, f"{NAME}-{broker}"), signal.SIGSTOP)
    for broker in (2, 3):
        core = f"/api/v1/namespaces/{NAME}"
        resources.api.request("DELETE", f"{core}/persistentvolumeclaims/data-{NAME}-{broker}")
        resources.api.request("DELETE", f"{core}/pods/{NAME}-{broker}?gracePeriodSeconds=0")

    def is_quorum_lost() -> bool:
        return resources.condition("Cluster", NAME, "Stalled").get("reason") == "QuorumLost"

    eventually(
        is_quorum_lost,
        within_s=120,
        message=lambda: f"{resources.get('Cluster', NAME)}\n{describe_pods(kube, NAME, NAME)}",
    )
    message = resources.condition("Cluster", NAME, "Stalled")["message"]
    assert "broker 2 has another disk; broker 3 has another disk" in message
    recover = message[message.index("ottla cluster recover") :]
    output = run_in_operator_pod(kube, f"{recover} --yes")
    assert "continues from broker 1" in output
    wait_until_ready(kube, resources)
    assert resources.get("Cluster", NAME)["status"]["clusterId"] != before
    assert read_values(kube, resources) == RECORDS


def run_in_operator_pod(kube: Kubernetes, command: str) -> str:
    """Output of a command in a pod with the operator's image and its labels, except `instance`."""
    (deployment,) = kube.plane.admin.request("GET", f"/apis/apps/v1/namespaces/{OPERATOR_NAMESPACE}/deployments")[
        "items"
    ]
    template = deployment["spec"]["template"]
    operator = template["spec"]["containers"][0]
    container = {
        "name": "command",
        "image": operator["image"],
        "command": ["sh", "-euc", f"{command} 2>&1"],
        "securityContext": operator["securityContext"],
    }
    labels = {key: value for key, value in template["metadata"]["labels"].items() if "instance" not in key}
    has_succeeded, log = NamespaceClient(kube.plane.admin, OPERATOR_NAMESPACE).run_pod(
        "recover", container, pod_spec={"securityContext": template["spec"]["securityContext"]}, labels=labels
    )
    assert has_succeeded, log
    return log


def wait_until_ready(kube: Kubernetes, resources: NamespaceClient) -> None:
    try:
        resources.wait_for_status("Cluster", NAME, within_s=180)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{describe_pods(kube, NAME, NAME)}") from error


def read_values(kube: Kubernetes, resources: NamespaceClient) -> list[bytes]:
    return [message.value() for message in rd.consume(external_bootstrap(kube, resources, NAME), "flights")]
