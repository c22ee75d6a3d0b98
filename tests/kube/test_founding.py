"""A Cluster continues from its disks alone, on a real kubelet: one that is created again over its
volume claims, and one of which a majority of the voters has lost its disks."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.kube.cluster import Kubernetes
from tests.kube.installed_operator import OPERATOR_NAMESPACE, InstalledOperator, describe_pods, find_process
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
def disks(kube: Kubernetes, installed_operator: InstalledOperator) -> Iterator[NamespaceClient]:
    """A Cluster of three with records of a topic that has three replicas."""
    made = NamespaceClient(kube.plane.admin, NAME)
    made.create_namespace()
    try:
        made.create("Cluster", NAME, SPEC)
        wait(kube, made)
        made.create("Topic", "flights", {"clusterRef": {"name": NAME}, "partitions": 1, "replicas": 3})
        made.wait_for_status("Topic", "flights")
        rd.produce(bootstrap(kube, made), "flights", [Message(None, value, START_MS) for value in RECORDS])
        yield made
    finally:
        made.api.request("DELETE", f"/api/v1/namespaces/{NAME}")


def test_brokers_have_neither_rights_nor_a_token(disks: NamespaceClient) -> None:
    assert not [name for group, plural in LEASES_AND_ROLES for name in disks.list_objects(group, plural)]
    for pod in disks.list_objects("v1", "pods").values():
        assert not [it for it in pod["spec"]["volumes"] if "projected" in it]


def test_a_cluster_that_is_created_again_continues_on_its_claims(kube: Kubernetes, disks: NamespaceClient) -> None:
    before = disks.get("Cluster", NAME)["status"]["clusterId"]
    disks.delete("Cluster", NAME)
    eventually(
        lambda: not disks.list_objects("v1", "pods"), within_s=90, message=lambda: describe_pods(kube, NAME, NAME)
    )
    assert len(disks.list_objects("v1", "persistentvolumeclaims")) == 3
    disks.create("Cluster", NAME, SPEC)
    wait(kube, disks)
    assert disks.get("Cluster", NAME)["status"]["clusterId"] == before
    assert records(kube, disks) == RECORDS


def test_a_cluster_without_a_majority_of_its_disks_is_recovered(kube: Kubernetes, disks: NamespaceClient) -> None:
    before = disks.get("Cluster", NAME)["status"]["clusterId"]
    for broker in (2, 3):  # neither hands anything over, nor heals what the other leaves
        os.kill(find_process(kube, f"{NAME}-{broker}"), signal.SIGSTOP)
    for broker in (2, 3):
        core = f"/api/v1/namespaces/{NAME}"
        disks.api.request("DELETE", f"{core}/persistentvolumeclaims/data-{NAME}-{broker}")
        disks.api.request("DELETE", f"{core}/pods/{NAME}-{broker}?gracePeriodSeconds=0")

    def stalled() -> bool:
        return disks.condition("Cluster", NAME, "Stalled").get("reason") == "QuorumLost"

    eventually(
        stalled, within_s=120, message=lambda: f"{disks.get('Cluster', NAME)}\n{describe_pods(kube, NAME, NAME)}"
    )
    message = disks.condition("Cluster", NAME, "Stalled")["message"]
    assert "broker 2 has another disk; broker 3 has another disk" in message
    recover = message[message.index("ottla cluster recover") :]
    output = in_the_operator(kube, f"{recover} --yes")
    assert "continues from broker 1" in output
    wait(kube, disks)
    assert disks.get("Cluster", NAME)["status"]["clusterId"] != before
    assert records(kube, disks) == RECORDS


def in_the_operator(kube: Kubernetes, command: str) -> str:
    """Output of a command in a pod of the operator's image, with the operator's labels."""
    (deployment,) = kube.plane.admin.request("GET", f"/apis/apps/v1/namespaces/{OPERATOR_NAMESPACE}/deployments")[
        "items"
    ]
    template = deployment["spec"]["template"]
    container = template["spec"]["containers"][0]
    spec = {
        "restartPolicy": "Never",
        "securityContext": template["spec"]["securityContext"],
        "containers": [
            {
                "name": "command",
                "image": container["image"],
                "command": ["sh", "-euc", f"{command} 2>&1"],
                "securityContext": container["securityContext"],
            }
        ],
    }
    api, path = kube.plane.admin, f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods"
    labels = {key: value for key, value in template["metadata"]["labels"].items() if "instance" not in key}
    api.request("POST", path, {"metadata": {"name": "recover", "labels": labels}, "spec": spec})

    def ended() -> str:
        phase = ((api.get(f"{path}/recover") or {}).get("status") or {}).get("phase", "")
        return phase if phase in ("Succeeded", "Failed") else ""

    phase = eventually(ended, within_s=120)
    log: str = api.request_text("GET", f"{path}/recover/log")
    api.request("DELETE", f"{path}/recover?gracePeriodSeconds=0")
    assert phase == "Succeeded", log
    return log


def wait(kube: Kubernetes, disks: NamespaceClient) -> None:
    try:
        disks.wait_for_status("Cluster", NAME, within_s=180)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{describe_pods(kube, NAME, NAME)}") from error


def bootstrap(kube: Kubernetes, disks: NamespaceClient) -> str:
    service = disks.list_objects("v1", "services")[f"{NAME}-out-bootstrap"]
    return f"{kube.nodes[0].address}:{service['spec']['ports'][0]['nodePort']}"


def records(kube: Kubernetes, disks: NamespaceClient) -> list[bytes]:
    return [message.value() for message in rd.consume(bootstrap(kube, disks), "flights")]
