"""A thousand Topics at once with a broker on a real kubelet, and the deletion of their namespace
without an operator.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla_operator.plan.conditions import kstatus
from tests.kube.installed_operator import InstalledOperator
from tests.kube.namespace_client import NamespaceClient
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
TOPICS = 1000
RECONCILED_WITHIN_S = 300.0  # a bound for a busy machine; `make bench-kube` measures the time
MAX_OPERATOR_MIB = 150
NAMESPACE = "many"
SPEC = {"replicas": 1, "storage": {"size": "1Gi"}, "resources": {"requests": {"cpu": "100m"}}}


@pytest.fixture(scope="module")
def many(installed_operator: InstalledOperator) -> Iterator[NamespaceClient]:
    """A namespace with a Ready Cluster of one broker."""
    client = NamespaceClient(installed_operator.kube.plane.admin, NAMESPACE)
    client.create_namespace()
    client.create("Cluster", "demo", SPEC)
    client.wait_for_status("Cluster", "demo", within_s=180)
    yield client


def test_a_thousand_topics_become_ready_and_are_then_not_written_again(
    installed_operator: InstalledOperator, many: NamespaceClient
) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(8) as executor:
        spec = {"clusterRef": {"name": "demo"}}
        list(executor.map(lambda number: many.create("Topic", f"topic-{number}", spec), range(TOPICS)))
    created_s = time.monotonic() - began

    def count_current() -> int:
        return sum(kstatus(it) == "Current" for it in many.list_objects("ottla.dev/v1alpha1", "topics").values())

    eventually(
        lambda: count_current() == TOPICS,
        within_s=RECONCILED_WITHIN_S,
        message=lambda: f"{TOPICS} Topics are Current, not {count_current()}",
    )
    ready_s, mib = time.monotonic() - began, installed_operator.resident_memory_kib() / 1024
    print(f"{TOPICS} Topics created in {created_s:.1f} s, all Ready after {ready_s:.1f} s; operator: {mib:.0f} MiB")
    many.wait_for_status("Cluster", "demo")
    # The former settings of a broker that another test has restarted are deleted a minute after the
    # restart.
    eventually(
        lambda: reconciles_write_nothing(installed_operator),
        within_s=120,
        message="a resync of reconciled resources writes nothing",
    )
    mib = installed_operator.resident_memory_kib() / 1024
    print(f"operator after these reconciles: {mib:.0f} MiB")
    assert mib <= MAX_OPERATOR_MIB


def reconciles_write_nothing(operator: InstalledOperator) -> bool:
    """True if nothing is written during two reconciles of Clusters and two of Topics."""
    writes = operator.count_writes()
    reconciles = {kind: operator.count_reconciles(kind) for kind in ("Cluster", "Topic")}
    eventually(
        lambda: all(operator.count_reconciles(kind) >= count + 2 for kind, count in reconciles.items()),
        within_s=60,
        message="more reconciles",
    )
    return operator.count_writes() == writes


def test_a_namespace_can_be_deleted_while_no_operator_runs(
    installed_operator: InstalledOperator, many: NamespaceClient
) -> None:
    many.create("Topic", "deleted", {"clusterRef": {"name": "demo"}, "deletionPolicy": "Delete"})
    many.wait_for_status("Topic", "deleted")
    installed_operator.scale(0)
    try:
        began = time.monotonic()
        many.api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        eventually(lambda: many.api.get(f"/api/v1/namespaces/{NAMESPACE}") is None, within_s=120)
        print(f"namespace with {TOPICS} Topics deleted without an operator in {time.monotonic() - began:.1f} s")
    finally:
        installed_operator.scale(2)
