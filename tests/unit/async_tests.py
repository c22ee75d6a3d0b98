"""Tests that are coroutine functions, and how they wait."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from tests.sim.virtual_loop import run_in_virtual_time


def async_test(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a coroutine function as a test, on an event loop of its own, for at most 60 s."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 60))

    return run


def virtual_time_test(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a coroutine function as a test, on virtual time."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        run_in_virtual_time(test(*arguments, **named))

    return run


async def wait_until(condition: Callable[[], object]) -> None:
    """Polls the condition until its result is true. The test's own time limit bounds the wait."""
    while not condition():  # noqa: ASYNC110 (tests wait for state that has no event)
        await asyncio.sleep(0.002)


async def run_event_loop(turns: int = 20) -> None:
    """Lets other tasks run for `turns` iterations of the event loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
