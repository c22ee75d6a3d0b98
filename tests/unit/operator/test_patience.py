"""How soon what is waited for is looked at again."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.kube.patience import Patience


def test_soon_at_first_then_more_seldom_and_soon_again_when_something_is_new() -> None:
    patience = Patience()
    assert [patience.pause("a", now, 0.5, 10) for now in (100, 105, 160, 10_000)] == [0.5, 0.5, 3, 10]
    assert patience.pause("b", 10_001, 0.5, 10) == 0.5


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 1e4)), max_size=20))
def test_never_sooner_nor_later_than_it_may(steps: list[tuple[str, float]]) -> None:
    patience, now = Patience(), 0.0
    for said, later in steps:
        now += later
        assert 0.5 <= patience.pause(said, now, 0.5, 10) <= 10


def test_an_hour_of_waiting_is_some_hundred_looks() -> None:
    patience, now, looks = Patience(), 0.0, 0
    while now < 3600:
        now, looks = now + patience.pause("a", now, 0.5, 10), looks + 1
    assert looks < 450
