"""Restarts of all brokers that a user requests."""

import pytest

from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.cluster_operator import Operator


def deleted_pods(writes: list[str]) -> list[str]:
    return [it for it in writes if it.startswith("delete Pod")]


def test_every_broker_is_restarted_once_for_restart_at(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    api.run_pods()
    operator.edit(restartAt="2999-01-01T00:00:00Z")
    assert deleted_pods(operator.reconcile()) == [], "that time has not come"
    operator.edit(restartAt="2026-01-02T03:04:05Z")
    restarted: list[str] = []
    for _ in range(6):
        restarted += deleted_pods(operator.reconcile())
        api.run_pods()
    assert restarted == ["delete Pod demo-1", "delete Pod demo-2", "delete Pod demo-3"]
    reasons = [reason for reason, _ in api.events]
    assert reasons.index("RollStarted") < reasons.index("RestartingBroker") and reasons.count("RollStarted") == 1
    assert ("RestartingBroker", "restarting broker 1 (spec.restartAt 2026-01-02T03:04:05Z)") in api.events
    operator.edit(restartAt=None)
    assert deleted_pods(operator.reconcile()) == []


def test_a_new_cluster_is_not_restarted_for_a_time_that_has_passed(api: FakeApi, operator: Operator) -> None:
    operator.edit(restartAt="2026-01-02T03:04:05Z")
    operator.reconcile()
    api.run_pods()
    assert deleted_pods(operator.reconcile()) == []


@pytest.mark.parametrize("time", ["soon", "2026-01-02", "2026-13-02T00:00:00Z"])
def test_a_restart_time_in_another_format_is_an_invalid_spec(operator: Operator, time: str) -> None:
    operator.edit(restartAt=time)
    operator.reconcile()
    assert operator.conditions["Stalled"]["reason"] == "InvalidSpec"


def test_kubectl_rollout_restart_is_ignored_with_one_event(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    annotations = api.stateful_set["spec"]["template"]["metadata"]["annotations"]
    annotations["kubectl.kubernetes.io/restartedAt"] = "2026-01-02T03:04:05Z"
    operator.reconcile()
    operator.reconcile()
    messages = [message for reason, message in api.events if reason == "RolloutRestartIgnored"]
    assert len(messages) == 1 and "Set spec.restartAt: 2026-01-02T03:04:05Z in Cluster demo" in messages[0]
