"""What is said of a Cluster, for what was seen of it."""

import datetime
from dataclasses import replace

import pytest

from ottla_operator.plan.cluster_verdict import Facts, serving, verdict
from ottla_operator.plan.conditions import Ready, Reconciling, Stalled
from ottla_operator.plan.observed_pods import BrokerPod, broker_pods
from ottla_operator.plan.roll import Blocker
from ottla_operator.resources.cluster import Cluster
from tests.unit.operator.samples import cluster

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def pod(broker: int, *, ready: bool = True, trouble: str = "") -> BrokerPod:
    return BrokerPod(
        broker, f"demo-{broker}", "u", ready, False, NOW, "h", "s", "", "i:1", "10.0.0.1", 9091, "one", "", trouble
    )


PODS = {broker: pod(broker) for broker in (1, 2, 3)}
WELL = Facts(3, PODS, frozenset(PODS), leaderless=0, under_replicated=0)


def test_all_is_well() -> None:
    assert verdict(WELL) == Ready("all 3 brokers serve.")
    assert serving(WELL).is_true


@pytest.mark.parametrize(
    ("facts", "kind", "reason", "said"),
    [
        (replace(WELL, late=[2], pods={**PODS, 2: pod(2, ready=False, trouble="ImagePullBackOff: no such image")}), Stalled, "BrokerDoesNotStart", "no such image"),
        (replace(WELL, refused={"log.retention.ms": "no number"}), Stalled, "SettingRefused", "log.retention.ms"),
        (replace(WELL, cannot_scale="too few"), Stalled, "CannotScale", "too few"),
        (replace(WELL, no_certificates="spec.tls: there is no Secret x", outdated={1: "image"}), Stalled, "NoCertificate", "there is no Secret x"),
        (replace(WELL, outdated={2: "image i:2"}), Reconciling, "Rolling", "image i:2"),
        (replace(WELL, outdated={2: "image i:2"}, blocked_by=[Blocker(2, "flights", 0, (2,), 1)]), Reconciling, "Rolling", "flights-0 has 2 in sync"),
        (replace(WELL, pods={**PODS, 3: pod(3, ready=False)}), Reconciling, "Starting", "waiting for broker 3"),
        (replace(WELL, moving=2), Reconciling, "Moving", "2 partitions"),
        (replace(WELL, up=frozenset({1, 2})), Reconciling, "Starting", "2 of 3 brokers serve"),
        (replace(WELL, scaling="4 partitions to move"), Reconciling, "Scaling", "4 partitions"),
        (replace(WELL, leaderless=2), Reconciling, "PartitionsOffline", "2 partitions"),
        (replace(WELL, under_replicated=1), Reconciling, "CatchingUp", "1 partition "),
    ],
)  # fmt: skip
def test_what_is_in_the_way_is_said(facts: Facts, kind: type, reason: str, said: str) -> None:
    found = verdict(facts)
    assert isinstance(found, kind) and found.reason == reason and said in found.message


def test_a_broker_can_be_spared_only_while_all_is_in_sync_and_somebody_says_so() -> None:
    assert WELL.can_spare_one
    assert not replace(WELL, under_replicated=1).can_spare_one
    assert not replace(WELL, pods={**PODS, 3: pod(3, ready=False)}).can_spare_one
    assert not replace(WELL, up=frozenset({1, 2})).can_spare_one
    assert not replace(WELL, under_replicated=None, unreached="nobody answers").can_spare_one


def test_a_roll_does_not_stop_the_serving() -> None:
    assert serving(replace(WELL, outdated={2: "image"}, pods={1: pod(1)})).is_true
    assert not serving(replace(WELL, leaderless=1)).is_true
    assert not serving(replace(WELL, up=frozenset())).is_true


def test_troubles_are_read_from_a_pods_status() -> None:
    it = Cluster.parse(cluster())
    status = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}],
        "containerStatuses": [
            {
                "name": "broker",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                "lastState": {"terminated": {"exitCode": 2, "message": "a line\nottla broker: bad setting\n"}},
            }
        ],
    }
    metadata = {"name": "demo-1", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    other = {"metadata": {**metadata, "name": "demo-x"}, "spec": {"containers": []}}
    found = broker_pods(it, [{"metadata": metadata, "spec": {"containers": []}, "status": status}, other])
    assert found.keys() == {1}
    assert found[1].problem == "Unschedulable: 0/1 nodes; CrashLoopBackOff: ottla broker: bad setting"
