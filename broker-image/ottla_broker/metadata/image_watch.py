"""Waiting until this broker's image shows something. What the controller has committed comes here a moment later."""

import asyncio
from collections.abc import Callable


class ImageWatch:
    """`changed` is called after every change of the image."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def changed(self) -> None:
        for waiter, holds in tuple(self._waiting.items()):
            if not waiter.done() and holds():
                waiter.set_result(None)

    async def until(self, holds: Callable[[], bool], *, within_s: float) -> bool:
        """Whether it held in time."""
        if holds():
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = holds
        try:
            async with asyncio.timeout(within_s):
                await waiter
            return True
        except TimeoutError:
            return False
        finally:
            del self._waiting[waiter]
