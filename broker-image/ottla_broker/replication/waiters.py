"""Callbacks for changes of a partition, mostly for waiting fetches, which need no task of their
own.
"""

import asyncio
from collections.abc import Callable

Waiter = Callable[[], None]


class Waiters:
    """`waiting`: in the order in which they were added, so that a run can be repeated."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[Waiter, None] = {}

    def add(self, waiter: Waiter) -> None:
        """`waiter` is called at each change until it is removed."""
        self.waiting[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        self.waiting.pop(waiter, None)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Returns when `condition` holds, which is checked now and at each change. Raises what
        `condition` raises."""
        changed = asyncio.Event()
        self.add(changed.set)
        try:
            while not condition():
                await changed.wait()
                changed.clear()
        finally:
            self.remove(changed.set)

    def notify_all(self) -> None:
        for waiter in tuple(self.waiting):
            waiter()
