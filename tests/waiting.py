"""Waiting on a condition, for tests that look at another process."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], *, within_s: float = 20.0, message: str | Callable[[], str] = "") -> T:
    """Looks until what is seen is true, and returns it; AssertionError with what was last seen after `within_s`. `what`: what is waited for; a
    call of it may say what is known when it did not happen."""
    deadline = time.monotonic() + within_s
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            said = message() if callable(message) else message
            raise AssertionError(f"not within {within_s} s: {said or 'the condition'}; last seen: {seen!r}")
        time.sleep(0.02)


async def eventually_async(condition: Callable[[], Awaitable[T]], *, within_s: float = 20.0) -> T:
    """The same on an event loop. TimeoutError after `within_s`."""
    async with asyncio.timeout(within_s):
        while True:
            if seen := await condition():
                return seen
            await asyncio.sleep(0.02)
