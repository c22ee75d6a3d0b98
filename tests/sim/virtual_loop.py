"""An asyncio event loop whose time jumps to the next timer: hours pass in milliseconds, and every
run of a program is the same run.

Nothing waits for the real world: there are no sockets or pipes, and executor calls run at once on
the loop's own thread. A program without a scheduled event raises `Deadlock` with its
waiting tasks, where a real loop would hang.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")

MAX_CANCELLED = 1_000  # cancelled timers, before the heap is rebuilt without them


class Deadlock(RuntimeError):
    """No callback is ready, no timer is set, and the program has not ended."""


def _waiting(loop: asyncio.AbstractEventLoop) -> list[str]:
    return sorted(f"  {task.get_name()}: {task.get_coro()}" for task in asyncio.all_tasks(loop))


class VirtualLoop(asyncio.BaseEventLoop):
    """`time()` starts at `start` seconds and advances only when no callback is ready.

    Timers of the same time fire in the order in which they were set. What asyncio's own loop does
    for files, threads and debugging is left out, because it would cost most of a simulation's
    processor time.
    """

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self._now = start
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_set = 0
        self._cancelled = 0  # timers still in the heap

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
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def handle(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        return asyncio.Handle(callback, args, self, context)

    def timer(self, when: float, callback: Any, args: Any, context: Any) -> asyncio.TimerHandle:
        return asyncio.TimerHandle(when, callback, args, self, context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled += 1
        if self._cancelled > MAX_CANCELLED and self._cancelled * 2 > len(self._timers):
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
                raise Deadlock("no event is scheduled; waiting tasks:\n" + "\n".join(_waiting(self)))
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

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Runs the call at once on this thread: threads would make a run unrepeatable."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            future.set_exception(error)
        return future

    def _write_to_self(self) -> None:
        """asyncio calls this to wake a waiting loop; this loop never waits."""


def run_in_virtual_time(main: Coroutine[Any, Any, T], *, start_s: float = 0.0) -> T:
    """Runs a program on virtual time. Raises Deadlock if it can never end."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start_s)) as runner:
        return runner.run(main)
