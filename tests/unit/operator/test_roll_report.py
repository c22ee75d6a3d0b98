"""What is reported to brokers about a rolling restart."""

from dataclasses import replace

from ottla_broker.wire.roll_report import RollBlocker, RollReport
from ottla_operator.plan.cluster_status import ClusterObservations, ObservedBroker
from ottla_operator.plan.roll import Blocker
from ottla_operator.plan.roll_report import MAX_BLOCKERS, build_roll_report

BROKERS = {id_: ObservedBroker(id_, True, {}) for id_ in (1, 2, 3)}
IDLE = ClusterObservations(3, BROKERS, frozenset(BROKERS))


def test_nothing_is_reported_unless_brokers_are_restarted() -> None:
    assert build_roll_report(IDLE) is None
    one_down = replace(IDLE, registered=frozenset({1, 3}))
    assert build_roll_report(one_down) is None, "a broker that is down is no roll"


def test_the_broker_that_is_being_restarted_is_waited_for_and_not_pending() -> None:
    rolling = replace(IDLE, outdated={1: "image", 2: "image", 3: "image"}, restarted=2)
    assert build_roll_report(rolling) == RollReport((1, 3), "image", (2,))
    last = replace(IDLE, registered=frozenset({1, 2}), was_rolling=True)
    assert build_roll_report(last) == RollReport(waits_for=(3,))


def test_partitions_that_hold_up_the_next_restart_are_named_up_to_a_limit() -> None:
    blocked_by = (Blocker(1, "orders", 3, (1,), 1),) * 20_000
    report = build_roll_report(replace(IDLE, outdated={1: "image"}, blocked_by=blocked_by))
    assert report is not None
    assert report.blocked_by == (RollBlocker(1, "orders", 3, (1,), 1),) * MAX_BLOCKERS
