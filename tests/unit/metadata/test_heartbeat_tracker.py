"""Sessions of brokers, counted on the controller's clock."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metadata.heartbeat_tracker import HeartbeatTracker


def test_an_expired_session_is_reported_until_it_is_removed() -> None:
    tracker = HeartbeatTracker(3.0, 0.0)
    tracker.record_heartbeat(1, 10, 5, 0.0)
    for step in range(1, 10):
        assert tracker.find_expired_sessions(step * 0.3) == []
    assert tracker.find_expired_sessions(3.0) == [(1, 10)]
    assert not tracker.is_alive(1, 10, 3.0)
    tracker.remove(1, 9)  # an earlier registration has another session
    assert tracker.find_expired_sessions(3.3) == [(1, 10)]
    tracker.remove(1, 10)
    assert tracker.find_expired_sessions(3.6) == []
    assert tracker.metadata_offset(1) == -1


def test_a_session_belongs_to_one_registration() -> None:
    tracker = HeartbeatTracker(3.0, 0.0)
    tracker.record_heartbeat(1, 10, 5, 0.0)
    assert tracker.is_alive(1, 10, 1.0)
    assert not tracker.is_alive(1, 11, 1.0)
    assert tracker.metadata_offset(1) == 5


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=20))
def test_a_pause_of_the_controller_expires_no_session(pauses: list[float]) -> None:
    """The broker sends its heartbeats in time between the pauses."""
    tracker = HeartbeatTracker(3.0, 0.0)
    now = 0.0
    tracker.record_heartbeat(1, 10, 0, now)
    for pause in pauses:
        now += pause
        assert tracker.find_expired_sessions(now) == []
        for _ in range(3):
            now += tracker.check_interval_s
            tracker.record_heartbeat(1, 10, 0, now)
            assert tracker.find_expired_sessions(now) == []


@given(st.floats(0.1, 100))
def test_a_pause_of_the_controller_extends_a_session_by_a_bounded_time(pause: float) -> None:
    tracker = HeartbeatTracker(3.0, 0.0)
    tracker.record_heartbeat(1, 10, 0, 0.0)
    now = pause
    tracker.find_expired_sessions(now)
    checks = 0
    while not tracker.find_expired_sessions(now := now + tracker.check_interval_s):
        checks += 1
    assert checks <= 11
