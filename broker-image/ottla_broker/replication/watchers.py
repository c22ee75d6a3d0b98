"""Who is told at once when something has happened to a partition. Fetches that wait, mostly: no task of theirs stands by meanwhile."""

from collections.abc import Callable

Watcher = Callable[[], None]


class Watchers:
    """`waiting`: who is told, in the order of their coming, so that a run can be repeated."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[Watcher, None] = {}

    def add(self, watcher: Watcher) -> None:
        """It is called each time, until it is removed."""
        self.waiting[watcher] = None

    def remove(self, watcher: Watcher) -> None:
        self.waiting.pop(watcher, None)

    def tell(self) -> None:
        for watcher in tuple(self.waiting):
            watcher()
