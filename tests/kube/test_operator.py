"""The installed operator on a real kubelet: clients inside and outside Kubernetes, a deleted broker
pod, and failover of the operator.
"""

import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.kube.broker_pods import CONTAINER_SECURITY_CONTEXT, POD_SECURITY_CONTEXT
from tests.kube.client_load import wait_for_progress
from tests.kube.images import build
from tests.kube.installed_operator import InstalledOperator
from tests.kube.managed_cluster import CLUSTER_NAME, ManagedCluster
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
LINE_COUNT = 200


def test_clients_inside_and_outside_kubernetes_read_each_others_records(demo: ManagedCluster) -> None:
    demo.create_topic("flights")
    rd.produce(demo.bootstrap(), "flights", [Message(None, b"outside %d" % it, START_MS) for it in range(LINE_COUNT)])
    script = (
        f"seq -f 'inside %g' 0 {LINE_COUNT - 1} | ottla produce flights 2>/dev/null && ottla consume flights --exit"
    )
    output = run_in_pod(demo, script)
    lines = [f"{source} {it}" for source in ("inside", "outside") for it in range(LINE_COUNT)]
    assert sorted(output.splitlines()) == sorted(lines)
    values = [it.value() for number in range(6) for it in rd.consume(demo.bootstrap(), "flights", partition=number)]
    assert sorted(values) == sorted(it.encode() for it in lines)


def test_clients_continue_when_a_broker_pod_is_deleted(demo: ManagedCluster) -> None:
    with demo.run_clients("deleted") as load:
        before = demo.uids()
        victim = f"{CLUSTER_NAME}-{demo.status['controller']}"
        with demo.operator.active_pod_deleted("deleted"):
            demo.resources.api.request("DELETE", f"/api/v1/namespaces/{demo.resources.namespace}/pods/{victim}")
            eventually(
                lambda: demo.uids().get(victim) not in (None, before[victim]), within_s=60, message=demo.describe
            )
            eventually(demo.is_current, within_s=90, message=demo.describe)
        wait_for_progress(load)


def test_a_standby_operator_takes_over_within_12_s_of_sigkill(
    installed_operator: InstalledOperator, demo: ManagedCluster
) -> None:
    demo.wait_for_status()
    eventually(installed_operator.are_all_pods_ready, within_s=60, message=installed_operator.describe_pods)
    before = installed_operator.kill_process()
    eventually(
        lambda: installed_operator.active_pod() not in ("", before),
        within_s=12,
        message=installed_operator.describe_pods,
    )
    service = f"/api/v1/namespaces/{demo.resources.namespace}/services/{CLUSTER_NAME}-brokers"
    demo.resources.api.request("PATCH", service, {"spec": {"publishNotReadyAddresses": False}})
    eventually(
        lambda: (demo.resources.api.get(service) or {})["spec"].get("publishNotReadyAddresses"),
        within_s=20,
        message=installed_operator.describe_pods,
    )


def run_in_pod(demo: ManagedCluster, script: str) -> str:
    """Runs a script in a pod with the operator's image, which has the command line, and returns its
    output. OTTLA_BOOTSTRAP is set.
    """
    container = {
        "name": "client",
        "image": build.image_reference("operator"),
        "command": ["sh", "-euc", script],
        "env": [{"name": "OTTLA_BOOTSTRAP", "value": f"{CLUSTER_NAME}-plain-bootstrap:9092"}],
        "securityContext": CONTAINER_SECURITY_CONTEXT,
    }
    pod_spec = {"securityContext": POD_SECURITY_CONTEXT}
    has_succeeded, log = demo.resources.run_pod("client", container, pod_spec=pod_spec, labels={})
    assert has_succeeded, log
    return log
