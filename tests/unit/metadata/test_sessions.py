from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metadata.heartbeat_tracker import HeartbeatTracker


def test_who_is_silent_for_a_session_is_named_until_it_is_forgotten() -> None:
    sessions = HeartbeatTracker(3.0, 0.0)
    sessions.record_heartbeat(1, 10, 5, 0.0)
    for turn in range(1, 10):
        assert sessions.expire_sessions(turn * 0.3) == []
    assert sessions.expire_sessions(3.0) == [(1, 10)]
    assert not sessions.is_alive(1, 10, 3.0)
    sessions.remove(1, 9)  # an earlier registration: it is not this session
    assert sessions.expire_sessions(3.3) == [(1, 10)]
    sessions.remove(1, 10)
    assert sessions.expire_sessions(3.6) == []
    assert sessions.metadata_offset(1) == -1


def test_a_session_belongs_to_one_registration() -> None:
    sessions = HeartbeatTracker(3.0, 0.0)
    sessions.record_heartbeat(1, 10, 5, 0.0)
    assert sessions.is_alive(1, 10, 1.0)
    assert not sessions.is_alive(1, 11, 1.0)
    assert sessions.metadata_offset(1) == 5


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=20))
def test_a_controller_that_was_stopped_fences_nobody_for_it(pauses: list[float]) -> None:
    """Between its pauses every broker is heard as often as it should be."""
    sessions = HeartbeatTracker(3.0, 0.0)
    now = 0.0
    sessions.record_heartbeat(1, 10, 0, now)
    for pause in pauses:
        now += pause
        assert sessions.expire_sessions(now) == []
        for _ in range(3):
            now += sessions.check_interval_s
            sessions.record_heartbeat(1, 10, 0, now)
            assert sessions.expire_sessions(now) == []


@given(st.floats(0.1, 100))
def test_a_pause_hides_the_silence_of_nobody_for_long(pause: float) -> None:
    sessions = HeartbeatTracker(3.0, 0.0)
    sessions.record_heartbeat(1, 10, 0, 0.0)
    now = pause
    sessions.expire_sessions(now)
    turns = 0
    while not sessions.expire_sessions(now := now + sessions.check_interval_s):
        turns += 1
    assert turns <= 11
