"""Delays between reconciliations of a resource that waits."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.backoff import RequeueBackoff


def test_the_delay_grows_while_nothing_changes_and_restarts_when_something_does() -> None:
    backoff = RequeueBackoff()
    assert [backoff.delay_s("a", now, 0.5, 10) for now in (100, 105, 160, 10_000)] == [0.5, 0.5, 3, 10]
    assert backoff.delay_s("b", 10_001, 0.5, 10) == 0.5


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 1e4)), max_size=20))
def test_the_delay_stays_within_its_bounds(steps: list[tuple[str, float]]) -> None:
    backoff, now = RequeueBackoff(), 0.0
    for waiting_for, later in steps:
        now += later
        assert 0.5 <= backoff.delay_s(waiting_for, now, 0.5, 10) <= 10


def test_an_hour_of_waiting_takes_fewer_than_450_reconciles() -> None:
    backoff, now, reconciles = RequeueBackoff(), 0.0, 0
    while now < 3600:
        now, reconciles = now + backoff.delay_s("a", now, 0.5, 10), reconciles + 1
    assert reconciles < 450
