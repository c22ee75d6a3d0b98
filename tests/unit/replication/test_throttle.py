"""Throttled replication of reassigned replicas."""

from ottla_broker.config.value_types import MAX_INT64
from ottla_broker.replication.throttle import Throttle, is_throttled


class Clock:
    now = 100.0


def test_throttle_time_is_proportional_to_bytes_beyond_the_burst() -> None:
    rate = 1_000
    throttle = Throttle(lambda: rate, lambda: Clock.now)
    assert throttle.throttle_time_s() == 0
    throttle.record_bytes(500)
    assert throttle.throttle_time_s() == 0  # a burst
    throttle.record_bytes(3_500)
    assert throttle.throttle_time_s() == 3.0
    Clock.now += 3.0
    assert throttle.throttle_time_s() == 0


def test_average_rate_is_the_configured_rate() -> None:
    throttle = Throttle(lambda: 1_000, lambda: Clock.now)
    started, sent = Clock.now, 0
    for _ in range(1_000):
        Clock.now += max(throttle.throttle_time_s(), 0.001)
        throttle.record_bytes(700)
        sent += 700
    assert 0.95 < sent / (Clock.now - started) / 1_000 < 1.05


def test_without_a_rate_there_is_no_throttle_time() -> None:
    throttle = Throttle(lambda: MAX_INT64, lambda: Clock.now)
    throttle.record_bytes(1 << 50)
    assert throttle.throttle_time_s() == 0


def test_throttled_replicas_are_matched() -> None:
    assert not is_throttled((), 1, 2)
    assert is_throttled(("*",), 1, 2)
    assert is_throttled(("0:2", "1:2"), 1, 2)
    assert not is_throttled(("1:3", "2:2"), 1, 2)
