"""The operator lets the first broker found a cluster only where no cluster can exist."""

from typing import Any

import pytest

from ottla_operator.kube.kinds import CLAIM
from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.cluster_operator import Operator


def put_claim(api: FakeApi, broker: int, **metadata: Any) -> None:
    it = {"name": f"data-demo-{broker}", "namespace": "events", **metadata}
    api.put(CLAIM, {"metadata": it, "spec": {"resources": {"requests": {"storage": "10Gi"}}}})


def is_founding(api: FakeApi) -> bool:
    """True if the first broker is started with `cluster.found`."""
    (config,) = (it["data"] for it in api.of("ConfigMap").values())
    (annotations,) = (it["metadata"].get("annotations") or {} for it in api.of("StatefulSet").values())
    found: bool = "cluster.found=true" in config["broker-1.properties"]
    assert found == ("ottla.dev/founding" in annotations)
    return found


def test_the_brokers_of_a_new_cluster_found_it(api: FakeApi, operator: Operator) -> None:
    api.put(CLAIM, {"metadata": {"name": "data-demo-x-1", "namespace": "events"}, "spec": {}})  # of Cluster demo-x
    operator.reconcile()
    assert is_founding(api)
    put_claim(api, 1)  # as the StatefulSet's controller creates it
    Operator(api).reconcile()
    assert is_founding(api), "until a cluster id is known"


def test_brokers_continue_the_cluster_of_claims_that_still_exist(api: FakeApi, operator: Operator) -> None:
    put_claim(api, 2)
    operator.reconcile()
    assert not is_founding(api)


def test_brokers_whose_disks_are_gone_do_not_found_another_cluster(api: FakeApi, operator: Operator) -> None:
    (cluster,) = api.of("Cluster").values()
    cluster["status"] = {"clusterId": "c1"}
    operator.reconcile()
    assert not is_founding(api)
    assert cluster["status"]["clusterId"] == "c1", "the id stays in the status while no broker answers"


@pytest.mark.parametrize(
    "metadata", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"ownerReferences": [{"kind": "StatefulSet"}]}]
)
def test_claims_that_are_being_deleted_are_waited_for(api: FakeApi, operator: Operator, metadata: Any) -> None:
    put_claim(api, 1, **metadata)
    operator.reconcile()
    assert operator.conditions["Ready"]["reason"] == "Terminating" and not api.of("StatefulSet")
    assert "data-demo-1" in operator.conditions["Ready"]["message"]
    del api.objects["PersistentVolumeClaim", "events", "data-demo-1"]
    operator.reconcile()
    assert is_founding(api)
