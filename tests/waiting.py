"""Waiting for a condition, for tests that observe another process."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], *, within_s: float = 20.0, message: str | Callable[[], str] = "") -> T:
    """Calls `condition` until its result is true, and returns the result.

    Raises AssertionError with the last result after `within_s`. `message` names the condition; a
    callable is called at that point and can include the state then.
    """
    deadline = time.monotonic() + within_s
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            text = message() if callable(message) else message
            raise AssertionError(f"not within {within_s} s: {text or 'the condition'}; last seen: {seen!r}")
        time.sleep(0.02)


async def eventually_async(condition: Callable[[], Awaitable[T]], *, within_s: float = 20.0) -> T:
    """Like `eventually`, for a coroutine function. Raises TimeoutError after `within_s`."""
    async with asyncio.timeout(within_s):
        while True:
            if seen := await condition():
                return seen
            await asyncio.sleep(0.02)
