"""Waiting for a condition, for tests that observe another process."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5


def eventually(condition: Callable[[], T], *, within_s: float = 20.0, message: str | Callable[[], str] = "") -> T:
    """Calls `condition` until its result is true, and returns the result.

    Raises AssertionError with the last result after `within_s`. `message` names the condition; a
    callable is called after the last check, and can include the state at that time.
    """
    deadline = time.monotonic() + within_s
    while True:
        began_s = time.monotonic()
        seen = condition()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            text = message() if callable(message) else message
            raise AssertionError(f"not within {within_s} s: {text or 'the condition'}; last seen: {seen!r}")
        time.sleep(pause_s(began_s))


async def eventually_async(condition: Callable[[], Awaitable[T]], *, within_s: float = 20.0) -> T:
    """Like `eventually`, for a coroutine function. Raises TimeoutError after `within_s`."""
    async with asyncio.timeout(within_s):
        while True:
            began_s = time.monotonic()
            if seen := await condition():
                return seen
            await asyncio.sleep(pause_s(began_s))


def pause_s(began_s: float) -> float:
    """The pause after a check of the condition that began at the monotonic time `began_s`: three
    times as long as the check took, within SHORTEST_PAUSE_S and LONGEST_PAUSE_S. Many checks
    connect to brokers, and would keep a processor busy that the brokers need.
    """
    return min(max(3 * (time.monotonic() - began_s), SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
