"""An asyncio event loop whose time jumps to the next timer: hours pass in milliseconds, and every run of a program is
the same run.

Nothing waits for the real world: there are no sockets or pipes, executor calls run at once on the loop's own thread,
and a program in which nothing can ever happen again raises `Deadlock` with the tasks that wait, where a real loop
would hang.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Nothing is ready, no timer is set, and somebody waits."""


class _TimeJumps:
    """Stands where a loop has its selector: instead of waiting for files, it moves the clock."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Deadlock("nothing can happen any more; waiting:\n" + "\n".join(_waiting(self._loop)))
        if timeout > 0:
            self._loop.jump()
        return []


def _waiting(loop: asyncio.AbstractEventLoop) -> list[str]:
    return sorted(f"  {task.get_name()}: {task.get_coro()}" for task in asyncio.all_tasks(loop))


class VirtualLoop(asyncio.BaseEventLoop):
    """`time()` starts at `start` seconds and moves only when nothing is left to do at that moment."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self._now = start
        self._selector = _TimeJumps(self)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def jump(self) -> None:
        """To the next timer."""
        self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        """Runs the call here and now: threads have no place in a run that repeats."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits the call
            future.set_exception(error)
        return future

    def _process_events(self, event_list: list[object]) -> None:
        """There are no files, so there are no events."""

    def _write_to_self(self) -> None:
        """Called by call_soon_threadsafe to wake a waiting loop; this one never waits."""


def run_virtual(main: Coroutine[Any, Any, T], *, start: float = 0.0) -> T:
    """Runs a program on virtual time, to its end. Deadlock when it can never end."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start)) as runner:
        return runner.run(main)
