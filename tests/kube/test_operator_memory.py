"""The operator's memory, beside an API server that has no other resources."""

from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.waiting import eventually

SPEC = {"replicas": 3, "storage": {"size": "10Gi"}}


def test_an_operator_with_100_topics_uses_less_than_80_mib(
    resources: NamespaceClient, operator: OperatorProcess
) -> None:
    resources.create("Cluster", "demo", SPEC)
    for number in range(100):
        resources.create("Topic", f"topic-{number}", {"clusterRef": {"name": "demo"}, "partitions": 3})
    eventually(
        lambda: resources.condition("Topic", "topic-99").get("reason") == "ClusterNotReady",
        message=operator.daemon.log_tail,
    )
    assert operator.daemon.resident_memory_kib() < 80 * 1024
