"""Events of a Cluster follow from its last status and what is observed now."""

from dataclasses import replace
from typing import Any

import pytest

from ottla_operator.plan.cluster_events import ClusterEvent, find_cluster_events, find_roll_start
from ottla_operator.plan.cluster_status import (
    ClusterObservations,
    ObservedBroker,
    availability,
    evaluate_cluster,
    status_fields,
)
from ottla_operator.plan.conditions import Reconciling

BROKERS = {id_: ObservedBroker(id_, True, {}) for id_ in (1, 2, 3)}
HEALTHY = ClusterObservations(
    3, BROKERS, frozenset(BROKERS), offline_partitions=0, under_replicated_partitions=0, moving_partitions=0
)
WITHOUT_2 = replace(HEALTHY, brokers={**BROKERS, 2: ObservedBroker(2, False, {}, problem="OOMKilled")})


def events_between(before: ClusterObservations | None, now: ClusterObservations) -> list[tuple[str, str]]:
    """(reason, message) of the events between two observations. `before`: those of the last status;
    None for a new Cluster.
    """
    resource: dict[str, Any] = {}
    if before is not None:
        available = availability(before)
        conditions = [{"type": available.type, "status": str(available.is_true)}]
        resource = {"status": {**status_fields(before, {}, "", {}), "conditions": conditions}}
    return [(it.reason, it.message) for it in find_cluster_events(now, resource)]


def after(before: ClusterObservations, **changes: Any) -> ClusterObservations:
    """The next observations, with the state that the status has kept."""
    return replace(before, was_rolling=before.is_rolling, restarted=None, moves_started=0, **changes)


def test_no_event_is_recorded_while_nothing_changes() -> None:
    for it in (HEALTHY, WITHOUT_2, replace(HEALTHY, outdated={1: "image i:2"}), replace(HEALTHY, scales_from=2)):
        assert events_between(it, after(it)) == []


def test_a_roll_is_recorded_from_its_start_to_the_return_of_the_last_broker() -> None:
    start = find_roll_start({1: "image i:2", 2: "image i:2"}, {})
    assert start == ClusterEvent("RollStarted", "rolling restart of brokers 1, 2: image i:2")
    assert find_roll_start({}, {}) is None
    first = replace(HEALTHY, outdated={1: "image i:2", 2: "image i:2"}, restarted=1)
    assert find_roll_start(first.outdated, {"status": status_fields(first, {}, "", {})}) is None
    down = after(first, outdated={2: "image i:2"}, brokers={**BROKERS, 1: ObservedBroker(1, False, {})})
    assert events_between(first, down) == [], "its restart was recorded"
    back = after(down, brokers=BROKERS)
    assert events_between(down, back) == [("BrokerReady", "broker 1 serves; 1 broker left to restart")]
    second = replace(after(back), restarted=2)
    last = after(second, outdated={}, brokers={**BROKERS, 2: ObservedBroker(2, False, {})})
    assert last.is_rolling and events_between(second, last) == []
    assert events_between(last, after(last, brokers=BROKERS)) == [
        ("RollCompleted", "every broker that had to be restarted serves again"),
        ("BrokerReady", "broker 2 serves"),
    ]


def test_a_lost_broker_and_its_return_are_recorded() -> None:
    assert events_between(HEALTHY, WITHOUT_2) == [("BrokerNotReady", "broker 2 no longer serves: OOMKilled")]
    assert events_between(WITHOUT_2, after(WITHOUT_2, brokers=BROKERS)) == [("BrokerReady", "broker 2 serves")]


def test_a_ready_broker_that_the_controller_fences_is_recorded() -> None:
    fenced = replace(HEALTHY, registered=frozenset({1, 3}))
    assert events_between(HEALTHY, fenced) == [
        ("BrokerNotReady", "broker 2 no longer serves: the controller has fenced it")
    ]


def test_a_broker_that_is_lost_during_a_roll_is_recorded() -> None:
    rolling = replace(HEALTHY, outdated={2: "image", 3: "image"}, was_rolling=True)
    lost = after(rolling, brokers={1: BROKERS[1], 2: BROKERS[2]})
    assert events_between(rolling, lost) == [
        ("BrokerNotReady", "broker 3 no longer serves: its pod or process is gone")
    ]


def test_a_broker_that_crashes_after_its_restart_is_recorded() -> None:
    rolling = replace(HEALTHY, outdated={3: "image"}, was_rolling=True)
    crashed = after(rolling, brokers={**BROKERS, 1: ObservedBroker(1, False, {}, problem="OOMKilled")})
    assert events_between(rolling, crashed) == [("BrokerNotReady", "broker 1 no longer serves: OOMKilled")]
    waiting = replace(HEALTHY, brokers={**BROKERS, 2: ObservedBroker(2, False, {})}, was_rolling=True)
    crashed = after(waiting, brokers={**waiting.brokers, 1: ObservedBroker(1, False, {})})
    assert events_between(waiting, crashed) == [("BrokerNotReady", "broker 1 no longer serves: it is not ready")]


def test_no_loss_is_recorded_of_a_broker_whose_pod_terminates_or_whose_process_restarts_at_once() -> None:
    rolling = replace(HEALTHY, outdated={1: "image", 3: "image"}, was_rolling=True)
    restarting = replace(rolling, restarted=1)
    terminating = ObservedBroker(1, False, {}, outdated="image", is_terminating=True)
    assert events_between(restarting, after(restarting, brokers={**BROKERS, 1: terminating})) == []
    process = replace(restarting, brokers={**BROKERS, 1: ObservedBroker(1, False, {})})
    assert events_between(rolling, process) == []


def test_an_outage_and_the_recovery_are_recorded() -> None:
    offline = replace(HEALTHY, offline_partitions=2)
    assert events_between(HEALTHY, offline) == [("PartitionsOffline", "2 partitions without a leader")]
    assert events_between(offline, HEALTHY) == [
        ("Available", "clients are served: 3 of 3 brokers are ready, and every partition has a leader.")
    ]


def test_no_loss_is_reported_of_brokers_that_the_operator_cannot_reach() -> None:
    unreachable = replace(HEALTHY, registered=frozenset(), connect_error="cannot reach the brokers")
    assert events_between(HEALTHY, unreachable) == [("NoBrokerReady", "cannot reach the brokers")]


@pytest.mark.parametrize(("replicas", "message"), [(5, "from 3 to 5 brokers"), (1, "from 3 to 1 broker")])
def test_a_scaling_is_recorded_once_from_start_to_end(replicas: int, message: str) -> None:
    scaling = replace(HEALTHY, replicas=replicas, scales_from=3)
    assert events_between(HEALTHY, scaling) == [("ScalingStarted", f"scaling {message}")]
    assert events_between(scaling, scaling) == []
    assert events_between(scaling, replace(scaling, scales_from=None)) == [("ScalingCompleted", f"scaled {message}")]


def test_a_scaling_whose_target_changes_is_recorded_again() -> None:
    scaling = replace(HEALTHY, replicas=5, scales_from=3)
    assert events_between(scaling, replace(scaling, replicas=4)) == [("ScalingStarted", "scaling from 3 to 4 brokers")]


def test_a_scaling_that_is_reverted_leads_back() -> None:
    grown = replace(HEALTHY, replicas=5, scales_from=3)
    shrinking = replace(grown, replicas=3)
    assert events_between(grown, shrinking) == [("ScalingStarted", "scaling back to 3 brokers")]
    assert evaluate_cluster(shrinking) == Reconciling("Scaling", "back to 3 brokers")
    for before in (shrinking, replace(HEALTHY, replicas=1, scales_from=3)):
        assert events_between(before, HEALTHY) == [("ScalingCompleted", "scaled back to 3 brokers")]


def test_the_end_of_a_reassignment_is_recorded_also_by_another_operator_and_if_it_was_quick() -> None:
    moving = replace(HEALTHY, moving_partitions=4)
    assert events_between(moving, HEALTHY) == [("PartitionsMoved", "the reassignment of 4 partitions has ended")]
    assert events_between(HEALTHY, replace(HEALTHY, moves_started=2)) == [
        ("PartitionsMoved", "the reassignment of 2 partitions has ended")
    ]


def test_each_ready_broker_of_a_new_cluster_is_recorded() -> None:
    assert events_between(None, WITHOUT_2) == [("BrokerReady", "broker 1 serves"), ("BrokerReady", "broker 3 serves")]
