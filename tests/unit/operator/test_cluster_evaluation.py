"""Conditions of a Cluster, for what was observed of it."""

from dataclasses import replace
from typing import Any

import pytest

from ottla_operator.plan.cluster_status import ClusterObservations, ObservedBroker, availability, evaluate_cluster
from ottla_operator.plan.conditions import Ready, Reconciling, Stalled
from ottla_operator.plan.observed_pods import broker_pods, image_version
from ottla_operator.plan.roll import Blocker
from ottla_operator.resources.cluster import Cluster
from tests.unit.operator.samples import cluster


def broker(id_: int, *, is_ready: bool = True, problem: str = "", unready_for_s: float = 0.0) -> ObservedBroker:
    return ObservedBroker(id_, is_ready, {}, problem=problem, unready_for_s=unready_for_s)


BROKERS = {id_: broker(id_) for id_ in (1, 2, 3)}
OVERDUE = {**BROKERS, 2: broker(2, is_ready=False, problem="ImagePullBackOff: no such image", unready_for_s=601)}
HEALTHY = ClusterObservations(
    3, BROKERS, frozenset(BROKERS), offline_partitions=0, under_replicated_partitions=0, moving_partitions=0
)


def test_a_healthy_cluster_is_ready_and_available() -> None:
    assert evaluate_cluster(HEALTHY) == Ready("all 3 brokers are ready.")
    assert availability(HEALTHY).is_true


@pytest.mark.parametrize(
    ("observed", "kind", "reason", "message"),
    [
        (replace(HEALTHY, brokers=OVERDUE), Stalled, "ImagePullBackOff", "no such image"),
        (
            replace(HEALTHY, brokers=OVERDUE, refused_settings="spec.config: x is no setting"),
            Stalled,
            "SettingRefused",
            "x is no setting",
        ),
        (
            replace(HEALTHY, rejected_settings={"log.retention.ms": "not a number"}),
            Stalled,
            "ConfigRejected",
            "log.retention.ms",
        ),
        (replace(HEALTHY, scale_down_blocked="too few"), Stalled, "ScaleDownBlocked", "too few"),
        (
            replace(HEALTHY, certificate_error="spec.tls: Secret x does not exist", outdated={1: "image"}),
            Stalled,
            "CertificateUnusable",
            "Secret x does not exist",
        ),
        (replace(HEALTHY, outdated={2: "image i:2"}), Reconciling, "RollingRestart", "image i:2"),
        (
            replace(HEALTHY, outdated={2: "image i:2"}, blocked_by=[Blocker(2, "flights", 0, (2,), 1)]),
            Reconciling,
            "RollingRestart",
            "flights-0 has 2 in sync",
        ),
        (
            replace(HEALTHY, brokers={**BROKERS, 3: broker(3, is_ready=False)}),
            Reconciling,
            "InsufficientReplicas",
            "waiting for broker 3",
        ),
        (replace(HEALTHY, moving_partitions=2), Reconciling, "MovingPartitions", "2 partitions"),
        (
            replace(HEALTHY, registered=frozenset({1, 2})),
            Reconciling,
            "InsufficientReplicas",
            "2 of 3 brokers are ready",
        ),
        (
            replace(HEALTHY, brokers={1: BROKERS[1]}, creation_error="exceeded quota"),
            Stalled,
            "FailedCreate",
            "brokers 2, 3 cannot be created: exceeded quota",
        ),
        (
            replace(HEALTHY, brokers={**BROKERS, 3: broker(3, is_ready=False, problem="ErrImagePull: no such image")}),
            Stalled,
            "ImagePullBackOff",
            "broker 3 cannot start. Broker 3: ErrImagePull",
        ),
        (
            replace(HEALTHY, brokers={**BROKERS, 3: broker(3, is_ready=False, problem="Unschedulable: 0/1 nodes")}),
            Reconciling,
            "Unschedulable",
            "0/1 nodes",
        ),
        (
            replace(HEALTHY, was_rolling=True, registered=frozenset({1, 2})),
            Reconciling,
            "RollingRestart",
            "no other broker has to be restarted; waiting for broker 3",
        ),
        (replace(HEALTHY, brokers={**BROKERS, 4: broker(4)}), Reconciling, "Scaling", "waiting for broker 4 to stop"),
        (replace(HEALTHY, scales_from=2), Reconciling, "Scaling", "from 2 to 3 brokers"),
        (replace(HEALTHY, scaling="4 partitions to move"), Reconciling, "Scaling", "4 partitions"),
        (replace(HEALTHY, offline_partitions=2), Reconciling, "PartitionsOffline", "2 partitions"),
        (replace(HEALTHY, under_replicated_partitions=1), Reconciling, "PartitionsUnderReplicated", "1 partition "),
    ],
)
def test_obstacle_to_ready_is_the_reason(observed: ClusterObservations, kind: type, reason: str, message: str) -> None:
    readiness = evaluate_cluster(observed)
    assert isinstance(readiness, kind) and readiness.reason == reason and message in readiness.message


@pytest.mark.parametrize("changes", [{"outdated": {2: "image"}}, {"was_rolling": True}, {}])
def test_brokers_that_are_waited_for_are_described_with_everything_that_is_known(changes: dict[str, Any]) -> None:
    brokers = {**BROKERS, 3: broker(3, is_ready=False, problem="OOMKilled")}
    found = evaluate_cluster(
        replace(HEALTHY, brokers=brokers, connect_error="no answer", quorum_loss="no majority", **changes)
    )
    assert found.reason == ("RollingRestart" if changes else "InsufficientReplicas")
    assert found.message.endswith("waiting for broker 3. Broker 3: OOMKilled. no answer. no majority")


def test_a_cluster_without_a_controller_is_not_ready() -> None:
    found = evaluate_cluster(replace(HEALTHY, quorum_loss="1 of the voters 1, 2, 3 of the metadata log answer"))
    assert found == Reconciling("BrokersUnreachable", "1 of the voters 1, 2, 3 of the metadata log answer")


def test_an_unready_broker_that_is_being_restarted_is_not_overdue() -> None:
    assert not replace(HEALTHY, brokers=OVERDUE, outdated={2: "image"}).overdue


def test_a_broker_can_be_spared_only_if_everything_is_known_to_be_in_sync() -> None:
    assert HEALTHY.can_spare_a_broker
    assert not replace(HEALTHY, under_replicated_partitions=1).can_spare_a_broker
    assert not replace(HEALTHY, brokers={**BROKERS, 3: broker(3, is_ready=False)}).can_spare_a_broker
    assert not replace(HEALTHY, registered=frozenset({1, 2})).can_spare_a_broker
    assert not replace(HEALTHY, under_replicated_partitions=None, connect_error="no answer").can_spare_a_broker


def test_a_cluster_is_available_during_a_roll() -> None:
    assert availability(replace(HEALTHY, outdated={2: "image"}, brokers={1: broker(1)})).is_true
    assert not availability(replace(HEALTHY, offline_partitions=1)).is_true
    fenced = availability(replace(HEALTHY, registered=frozenset()))
    assert (fenced.is_true, fenced.message) == (False, "no ready broker is registered and not fenced")
    assert availability(replace(HEALTHY, brokers={})).message == "no broker is ready"


def test_availability_says_nothing_of_leaders_that_are_unknown() -> None:
    assert availability(HEALTHY).message == "3 of 3 brokers are ready, and every partition has a leader."
    assert availability(replace(HEALTHY, offline_partitions=None)).message == "3 of 3 brokers are ready."


def test_ready_brokers_are_counted_with_those_that_are_being_removed() -> None:
    shrinking = replace(HEALTHY, replicas=2)
    assert availability(shrinking).message == "3 of 3 brokers are ready, and every partition has a leader."
    without_2 = replace(shrinking, brokers={1: BROKERS[1], 3: BROKERS[3]})
    assert evaluate_cluster(without_2).message == "2 of 3 brokers are ready; waiting for broker 2"


def test_problems_of_a_broker_are_read_from_its_pod() -> None:
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


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("ottla-broker:0.2.0", "0.2.0"),
        ("ghcr.io/ottla/ottla-broker:0.2.0", "0.2.0"),
        ("host:5000/ottla-broker:0.2.0", "0.2.0"),
        ("host:5000/ottla-broker:0.2.0@sha256:0af1", "0.2.0"),
        ("host:5000/ottla-broker@sha256:0af1", "sha256:0af1"),
        ("host:5000/ottla-broker", ""),
        ("ottla-broker", ""),
        ("", ""),
    ],
)
def test_version_of_a_broker_is_the_tag_or_the_digest_of_its_image(image: str, version: str) -> None:
    assert image_version(image) == version
