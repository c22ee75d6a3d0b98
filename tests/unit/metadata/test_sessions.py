from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metadata.sessions import Sessions


def test_who_is_silent_for_a_session_is_named_until_it_is_forgotten() -> None:
    sessions = Sessions(3.0, 0.0)
    sessions.heard(1, 10, 5, 0.0)
    for turn in range(1, 10):
        assert sessions.turn(turn * 0.3) == []
    assert sessions.turn(3.0) == [(1, 10)]
    assert not sessions.lives(1, 10, 3.0)
    sessions.forget(1, 9)  # an earlier registration: it is not this session
    assert sessions.turn(3.3) == [(1, 10)]
    sessions.forget(1, 10)
    assert sessions.turn(3.6) == []
    assert sessions.offset(1) == -1


def test_a_session_belongs_to_one_registration() -> None:
    sessions = Sessions(3.0, 0.0)
    sessions.heard(1, 10, 5, 0.0)
    assert sessions.lives(1, 10, 1.0)
    assert not sessions.lives(1, 11, 1.0)
    assert sessions.offset(1) == 5


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=20))
def test_a_controller_that_was_stopped_fences_nobody_for_it(pauses: list[float]) -> None:
    """Between its pauses every broker is heard as often as it should be."""
    sessions = Sessions(3.0, 0.0)
    now = 0.0
    sessions.heard(1, 10, 0, now)
    for pause in pauses:
        now += pause
        assert sessions.turn(now) == []
        for _ in range(3):
            now += sessions.turn_s
            sessions.heard(1, 10, 0, now)
            assert sessions.turn(now) == []


@given(st.floats(0.1, 100))
def test_a_pause_hides_the_silence_of_nobody_for_long(pause: float) -> None:
    sessions = Sessions(3.0, 0.0)
    sessions.heard(1, 10, 0, 0.0)
    now = pause
    sessions.turn(now)
    turns = 0
    while not sessions.turn(now := now + sessions.turn_s):
        turns += 1
    assert turns <= 11
