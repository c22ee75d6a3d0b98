"""Pauses of a real event loop, and what its log says of them."""

import asyncio
import time
from collections.abc import Callable

import pytest

from ottla_broker.pause_monitor import PauseMonitor, ThreadTimes, describe_pause

INTERVAL_S = 0.01
MAX_PAUSE_S = 0.1


async def run_monitored(step: Callable[[], None], max_pause_s: float = MAX_PAUSE_S) -> None:
    """Runs `step` on the event loop, and then the monitor's timer."""
    monitor = PauseMonitor(INTERVAL_S, max_pause_s)
    monitor.start()
    step()
    await asyncio.sleep(2 * INTERVAL_S)
    monitor.stop()


def compute(seconds: float) -> None:
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def block() -> None:
    time.sleep(3 * MAX_PAUSE_S)


def test_a_blocked_event_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(run_monitored(block))
    assert [record.levelname for record in caplog.records[:1]] == ["WARNING"]
    assert "0.0 s of computing" in caplog.text


def test_the_log_tells_computing_from_waiting(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(run_monitored(lambda: compute(3 * MAX_PAUSE_S)))
    assert "0.3 s of computing" in caplog.text


def test_a_shorter_pause_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(run_monitored(block, max_pause_s=60))
    assert caplog.records == []


def test_time_in_the_queue_for_a_processor_is_named() -> None:
    before = ThreadTimes(clock_s=10.0, computed_s=1.0, queued_s=0.5)
    now = ThreadTimes(clock_s=14.0, computed_s=1.2, queued_s=3.5)
    assert describe_pause(before, now) == (
        "the event loop did not run a timer for 4.0 s: 0.2 s of computing, 3.0 s of waiting for a processor, "
        "0.8 s idle, waiting for the disk or stopped"
    )


def test_a_stopped_monitor_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    async def stop_and_block() -> None:
        monitor = PauseMonitor(INTERVAL_S, MAX_PAUSE_S)
        monitor.start()
        monitor.stop()
        block()
        await asyncio.sleep(2 * INTERVAL_S)

    asyncio.run(stop_and_block())
    assert caplog.records == []
