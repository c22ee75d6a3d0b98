"""Delays before a worker that ended is started again."""

from ottla_broker.workers.restart_backoff import LONGEST_DELAY_S, STABLE_AFTER_S, RestartBackoff


def test_delays_double_up_to_a_bound_and_begin_again_after_a_stable_run() -> None:
    backoff, delays = RestartBackoff(), []
    for _ in range(8):
        backoff = backoff.after_run(0.5)
        delays.append(backoff.delay_s)
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_DELAY_S, LONGEST_DELAY_S, LONGEST_DELAY_S]
    assert backoff.after_run(STABLE_AFTER_S).delay_s == 1.0
