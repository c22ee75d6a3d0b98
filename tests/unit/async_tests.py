"""Tests that are coroutine functions."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any


def async_test(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a coroutine function as a test, on an event loop of its own, for at most 20 s."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 20))

    return run
