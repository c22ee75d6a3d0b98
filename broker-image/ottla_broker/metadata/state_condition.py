"""Waiting until this broker's image shows something. What the controller has committed comes here a moment later."""

import asyncio
from collections.abc import Callable


class StateCondition:
    """`changed` is called after every change of the image."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def notify_all(self) -> None:
        for waiter, holds in tuple(self._waiting.items()):
            if not waiter.done() and holds():
                waiter.set_result(None)

    async def wait_for(self, predicate: Callable[[], bool], *, timeout_s: float) -> bool:
        """Whether it held in time."""
        if predicate():
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = predicate
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
            return True
        except TimeoutError:
            return False
        finally:
            del self._waiting[waiter]
