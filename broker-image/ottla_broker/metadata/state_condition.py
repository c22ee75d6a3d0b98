"""A condition on the state of one event loop: `asyncio.Condition.wait_for` without a lock, with a
timeout.
"""

import asyncio
from collections.abc import Callable


class StateCondition:
    """The owner of the state calls `notify_all` after each change."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def notify_all(self) -> None:
        for waiter, predicate in tuple(self._waiters.items()):
            if not waiter.done() and predicate():
                waiter.set_result(None)

    async def wait_for(self, predicate: Callable[[], bool], *, timeout_s: float) -> bool:
        """True when the predicate holds, False at the timeout."""
        if predicate():
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = predicate
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
            return True
        except TimeoutError:
            return False
        finally:
            del self._waiters[waiter]
