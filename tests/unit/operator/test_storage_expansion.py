"""Expanding the brokers' disks in place."""

import pytest

from ottla_operator.kube.api import ApiError
from ottla_operator.kube.kinds import CLAIM
from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.cluster_operator import Operator


def test_disks_are_expanded_in_place(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    api.run_pods()
    labels = api.stateful_set["spec"]["selector"]["matchLabels"]
    for number in (1, 2, 3):
        claim = {"metadata": {"name": f"data-demo-{number}", "namespace": "events", "labels": labels}}
        api.put(CLAIM, {**claim, "spec": {"resources": {"requests": {"storage": "10Gi"}}}})
    operator.edit(storage={"size": "20Gi"})
    writes = operator.reconcile()
    assert [it for it in writes if "Pod " in it] == []
    assert "orphan StatefulSet demo" in writes and writes.count("apply StatefulSet demo") == 1
    assert {it["spec"]["resources"]["requests"]["storage"] for it in api.of("PersistentVolumeClaim").values()} == {
        "20Gi"
    }
    assert "orphan StatefulSet demo" not in operator.reconcile()


def test_state_survives_an_operator_that_is_killed_during_a_storage_expansion(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    noted = {"ottla.dev/spread": "1,2,3", "ottla.dev/cluster-settings": '{"log.retention.ms": "5"}'}
    api.stateful_set["metadata"]["annotations"].update(noted)
    api.run_pods()
    operator.edit(storage={"size": "20Gi"})
    api.reject = lambda write: ApiError(0, "killed") if write == "apply StatefulSet demo" else None
    with pytest.raises(ApiError, match="killed"):
        operator.reconcile()
    assert not api.of("StatefulSet")
    api.reject = lambda write: None
    Operator(api).reconcile()
    assert noted.items() <= api.stateful_set["metadata"]["annotations"].items()


def test_a_storage_class_without_expansion_stalls_the_cluster(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    labels = api.stateful_set["spec"]["selector"]["matchLabels"]
    claim = {"metadata": {"name": "data-demo-1", "namespace": "events", "labels": labels}}
    api.put(CLAIM, {**claim, "spec": {"resources": {"requests": {"storage": "10Gi"}}}})
    operator.edit(storage={"size": "20Gi"})
    api.reject = lambda write: (
        ApiError(422, "only dynamically provisioned") if "PersistentVolumeClaim" in write else None
    )
    operator.reconcile()
    assert (
        operator.conditions["Stalled"]["status"] == "True"
        and "dynamically" in operator.conditions["Stalled"]["message"]
    )
    assert api.stateful_set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "10Gi"
