"""Processes inside one event loop: each can be killed or stopped without a word, as the operating system does it.

Whatever a process does (tasks, callbacks, timers) carries the process in its context, and the loop looks there before it
runs anything: what belongs to a dead process never runs again (no `finally`, no clean-up), and what belongs to a stopped
one (SIGSTOP) is held back until it goes on. The network, the disk and whoever directs the run belong to no process.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from tests.sim.virtual_loop import VirtualLoop

T = TypeVar("T")

_process: contextvars.ContextVar["SimulatedProcess | None"] = contextvars.ContextVar("process", default=None)
NO_PROCESS = contextvars.Context()  # what belongs to no process runs in this one
_FORGET_DONE_FROM = 512
_CLOSES = 10


class SimulatedProcess:
    """One life of a program on a host. `pid` tells lives apart."""

    def __init__(self, loop: "SimulatedLoop", host: str, pid: int = 0) -> None:
        self.loop = loop
        self.host = host
        self.pid = pid
        self.alive = True
        self.stopped = False
        self.on_exit: list[Callable[[], None]] = []  # what the operating system does when the process is gone
        self.context = contextvars.Context()
        self.context.run(_process.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        loop.processes.append(self)
        self._held: list[asyncio.Handle] = []

    def __repr__(self) -> str:
        return f"<{self.host} #{self.pid}>"

    def run(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Starts work of this process. Its task never ends when the process dies: wait for it with a timeout or `ended`."""
        return self.loop.create_task(work, context=self.context.copy())

    def kill(self) -> None:
        """SIGKILL: at once, and nothing of it runs again."""
        if self.alive:
            self.alive = False
            self._held.clear()
            for task in self.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was meant
            for act in self.on_exit:
                act()

    def pause(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def resume(self) -> None:
        """SIGCONT: everything that was held back comes now, in its order."""
        self.stopped = False
        held, self._held = self._held, []
        if self.alive:
            self.loop.ready(held)

    def hold(self, handle: asyncio.Handle) -> None:
        if self.alive:
            self._held.append(handle)

    def began(self, task: "asyncio.Task[Any]") -> None:
        """Keeps tasks from being collected, which would run their `finally`s although the process is dead."""
        self.tasks.append(task)
        if len(self.tasks) >= _FORGET_DONE_FROM and len(self.tasks) & (len(self.tasks) - 1) == 0:
            self.tasks = [one for one in self.tasks if not one.done()]

    def forget(self) -> None:
        """After the run: closes what was left in the middle of something, also where it holds on in a `finally`."""
        for task in self.tasks:
            work: Any = task.get_coro()
            for _ in range(_CLOSES):
                with suppress(BaseException):
                    work.close()
                    break


def current() -> SimulatedProcess | None:
    """The process that is running now; None: whoever directs the run."""
    return _process.get()


class _Handle(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(_process)  # type: ignore[attr-defined]
        if process is None or (process.alive and not process.stopped):
            _call(self)
        else:
            process.hold(self)


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(_process)  # type: ignore[attr-defined]
        if process is None or (process.alive and not process.stopped):
            _call(self)
        else:
            process.hold(self)


def _call(handle: Any) -> None:
    try:
        handle._context.run(handle._callback, *handle._args)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - as asyncio's own: the loop hears of it
        handle._loop.call_exception_handler(
            {"message": f"Exception in callback {handle._callback}", "exception": error, "handle": handle}
        )


class VirtualExecutor(Protocol):
    """An executor whose calls take virtual time: (seconds, what it gives or raises)."""

    def call(self, func: Callable[[], T]) -> tuple[float, T | BaseException]: ...


class SimulatedLoop(VirtualLoop):
    """A virtual loop that knows processes, and gives them the network that it was made with."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__(start)
        self.network: Any = None  # tests.sim.network.Network, which needs the loop first
        self.processes: list[SimulatedProcess] = []  # that ever were
        self.set_task_factory(_make_task)

    def handle(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        return _Handle(callback, args, self, context)

    def timer(self, when: float, callback: Any, args: Any, context: Any) -> asyncio.TimerHandle:
        return _TimerHandle(when, callback, args, self, context)

    def ready(self, handles: "list[asyncio.Handle]") -> None:
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        if executor is None or not hasattr(executor, "call"):
            return super().run_in_executor(executor, func, *args)
        took_s, outcome = executor.call(lambda: func(*args))
        future: asyncio.Future[T] = self.create_future()
        self.call_later(took_s, _settle, future, outcome)
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **named: Any) -> Any:
        return self.network.serve(protocol_factory, host, port, sock=named.get("sock"))


def _settle(future: "asyncio.Future[Any]", outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, context: Any = None) -> "asyncio.Task[Any]":
    task = asyncio.Task(work, loop=loop, context=context)
    process = current() if context is None else context.get(_process)
    if process is not None:
        process.began(task)
    return task
