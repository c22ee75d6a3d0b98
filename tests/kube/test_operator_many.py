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
RECONCILED_WITHIN_S = 60.0
OPERATOR_MIB = 150
NAMESPACE = "many"
SPEC = {"replicas": 1, "storage": {"size": "1Gi"}, "resources": {"requests": {"cpu": "100m"}}}


@pytest.fixture(scope="module")
def many(installed_operator: InstalledOperator) -> Iterator[NamespaceClient]:
    made = NamespaceClient(installed_operator.kube.plane.admin, NAMESPACE)
    made.create_namespace()
    made.create("Cluster", "demo", SPEC)
    made.wait_for_status("Cluster", "demo", within_s=180)
    yield made


def test_a_thousand_topics_at_once_are_made_and_then_nothing_is_written(
    installed_operator: InstalledOperator, many: NamespaceClient
) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(8) as people:
        list(
            people.map(lambda it: many.create("Topic", f"topic-{it}", {"clusterRef": {"name": "demo"}}), range(TOPICS))
        )
    asked_s = time.monotonic() - began

    def current() -> int:
        return sum(kstatus(it) == "Current" for it in many.list_objects("ottla.dev/v1alpha1", "topics").values())

    eventually(lambda: current() == TOPICS, within_s=2 * RECONCILED_WITHIN_S, message=lambda: f"{current()} are")
    took_s, mib = time.monotonic() - began, installed_operator.resident_memory_kib() / 1024
    print(f"{TOPICS} Topics asked for in {asked_s:.1f} s, all Ready in {took_s:.1f} s; the operator has {mib:.0f} MiB")
    assert took_s <= RECONCILED_WITHIN_S
    many.wait_for_status("Cluster", "demo")
    before, looks = (
        installed_operator.count_writes(),
        {kind: installed_operator.count_reconciles(kind) for kind in ("Cluster", "Topic")},
    )
    eventually(
        lambda: all(installed_operator.count_reconciles(kind) >= looks[kind] + 2 for kind in looks),
        within_s=60,
        message="more looks",
    )
    assert installed_operator.count_writes() == before, "as wished, and not written"
    mib = installed_operator.resident_memory_kib() / 1024
    print(f"the operator has {mib:.0f} MiB after some looks")
    assert mib <= OPERATOR_MIB


def test_a_namespace_goes_although_no_operator_is_there(
    installed_operator: InstalledOperator, many: NamespaceClient
) -> None:
    many.create("Topic", "gone", {"clusterRef": {"name": "demo"}, "deletionPolicy": "Delete"})
    many.wait_for_status("Topic", "gone")
    installed_operator.scale(0)
    try:
        began = time.monotonic()
        many.api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        eventually(lambda: many.api.get(f"/api/v1/namespaces/{NAMESPACE}") is None, within_s=120)
        print(f"a namespace with {TOPICS} Topics and no operator is gone in {time.monotonic() - began:.1f} s")
    finally:
        installed_operator.scale(2)
