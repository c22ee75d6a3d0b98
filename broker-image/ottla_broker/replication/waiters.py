"""Who is told at once when something has happened to a partition. Fetches that wait, mostly: no task of theirs stands by meanwhile."""

import asyncio
from collections.abc import Callable

Waiter = Callable[[], None]


class Waiters:
    """`waiting`: who is told, in the order of their coming, so that a run can be repeated."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[Waiter, None] = {}

    def add(self, watcher: Waiter) -> None:
        """It is called each time, until it is removed."""
        self.waiting[watcher] = None

    def remove(self, watcher: Waiter) -> None:
        self.waiting.pop(watcher, None)

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Returns when it holds, and raises what it raises. It is looked at now, and after each time that the watchers are told."""
        changed = asyncio.Event()
        self.add(changed.set)
        try:
            while not holds():
                await changed.wait()
                changed.clear()
        finally:
            self.remove(changed.set)

    def notify_all(self) -> None:
        for watcher in tuple(self.waiting):
            watcher()
