"""An asyncio event loop whose time jumps to the next timer: hours pass in milliseconds, and every run of a program is
the same run.

Nothing waits for the real world: there are no sockets or pipes, executor calls run at once on the loop's own thread,
and a program in which nothing can ever happen again raises `Deadlock` with the tasks that wait, where a real loop
would hang.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")

MANY_CANCELLED = 1_000  # timers, before the heap is cleared of them


class Deadlock(RuntimeError):
    """Nothing is ready, no timer is set, and somebody waits."""


def _waiting(loop: asyncio.AbstractEventLoop) -> list[str]:
    return sorted(f"  {task.get_name()}: {task.get_coro()}" for task in asyncio.all_tasks(loop))


class VirtualLoop(asyncio.BaseEventLoop):
    """`time()` starts at `start` seconds and moves only when nothing is left to do at that moment.

    Timers of one moment ring in the order in which they were set. What asyncio's own loop does for files, threads and debugging is left out:
    most of what a simulation costs would be that.
    """

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self._now = start
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._set = 0  # timers, ever
        self._cancelled = 0  # of those that are still in the heap

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        handle = self.handle(callback, args, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = self.timer(when, callback, args, context)
        self._set += 1
        heapq.heappush(self._timers, (when, self._set, timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def handle(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        return asyncio.Handle(callback, args, self, context)

    def timer(self, when: float, callback: Any, args: Any, context: Any) -> asyncio.TimerHandle:
        return asyncio.TimerHandle(when, callback, args, self, context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled += 1
        if self._cancelled > MANY_CANCELLED and self._cancelled * 2 > len(self._timers):
            self._timers = [one for one in self._timers if not one[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
                self._cancelled -= 1
            if not timers:
                raise Deadlock("nothing can happen any more; waiting:\n" + "\n".join(_waiting(self)))
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer.cancelled():
                self._cancelled -= 1
            else:
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        """Runs the call here and now: threads have no place in a run that repeats."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits the call
            future.set_exception(error)
        return future

    def _write_to_self(self) -> None:
        """Called by call_soon_threadsafe to wake a waiting loop; this one never waits."""


def run_in_virtual_time(main: Coroutine[Any, Any, T], *, start: float = 0.0) -> T:
    """Runs a program on virtual time, to its end. Deadlock when it can never end."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start)) as runner:
        return runner.run(main)
