"""The status of a Cluster: the progress of reassignments from one reconcile to the next, and its
size.
"""

import pytest

from ottla_operator.kube.brokers import format_state, parse_state
from ottla_operator.plan.cluster_status import ClusterObservations, reassignment_progress, status_fields
from ottla_operator.plan.objects.names import THROTTLED_TOPICS
from ottla_operator.plan.roll import Blocker
from ottla_operator.reconcile.platform import ReconcileState
from ottla_operator.reconcile.scaling import ALL_TOPICS


@pytest.mark.parametrize(
    ("moving", "started", "previous", "expected"),
    [
        (0, 0, None, None),
        (7, 10, None, {"moved": 3, "total": 10}),  # some moves have ended already
        (4, 0, {"moved": 3, "total": 10}, {"moved": 6, "total": 10}),
        (0, 0, {"moved": 6, "total": 10}, None),
        (2, 2, {"moved": 9, "total": 10}, {"moved": 0, "total": 2}),  # the next moves were started
        (5, 0, None, {"moved": 0, "total": 5}),  # another client has started them
        (12, 0, {"moved": 6, "total": 10}, {"moved": 0, "total": 12}),
        (None, 0, {"moved": 6, "total": 10}, {"moved": 6, "total": 10}),  # no broker answers
    ],
)
def test_progress_of_a_reassignment_is_counted_from_the_last_start_of_moves(
    moving: int | None, started: int, previous: object, expected: object
) -> None:
    assert reassignment_progress(moving, started, previous) == expected  # type: ignore[arg-type]


def test_a_roll_that_waits_for_thousands_of_partitions_fits_into_an_object() -> None:
    blocked_by = tuple(Blocker(1, "t" * 249, partition, (1,), 1) for partition in range(20_000))
    observed = ClusterObservations(1, {}, outdated={1: "image"}, blocked_by=blocked_by)
    assert len(status_fields(observed, {}, "", {})["roll"]["blockedBy"]) == 100


def test_the_state_is_read_back_from_annotations() -> None:
    for state in (
        ReconcileState(),
        ReconcileState(frozenset({1, 2}), {"log.retention.ms": "5"}, frozenset({"b", "a"})),
    ):
        assert parse_state(format_state(state)) == state
    assert format_state(ReconcileState(throttled_topics=frozenset({"b", "a"}))) == {THROTTLED_TOPICS: '["a", "b"]'}


def test_thousands_of_throttled_topics_fit_into_an_annotation() -> None:
    topics = frozenset(f"{number:0249}" for number in range(2_000))
    assert format_state(ReconcileState(throttled_topics=topics)) == {THROTTLED_TOPICS: f'["{ALL_TOPICS}"]'}
