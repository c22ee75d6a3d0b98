"""Processes inside one event loop: each can be killed or paused as the operating system does it.

Tasks, callbacks and timers of a process carry it in their context, which the loop checks before it
runs them. Those of a dead process never run again, not even `finally` blocks. Those of a paused one
(SIGSTOP) are held back until it resumes. The network, the disk and the driver of a run belong to no
process.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Protocol, TypeVar, runtime_checkable

from tests.sim.virtual_loop import VirtualLoop

T = TypeVar("T")

_process: contextvars.ContextVar["SimulatedProcess | None"] = contextvars.ContextVar("process", default=None)
NO_PROCESS = contextvars.Context()  # the context of callbacks that belong to no process
_PRUNE_DONE_FROM = 512
_CLOSE_ATTEMPTS = 10


class SimulatedProcess:
    """One start of a program on a host. `pid` differs between starts. `is_paused`: by SIGSTOP."""

    def __init__(self, loop: "SimulatedLoop", host: str, pid: int = 0) -> None:
        self.loop = loop
        self.host = host
        self.pid = pid
        self.alive = True
        self.is_paused = False
        self.on_exit: list[Callable[[], None]] = []  # actions of the operating system when the process exits
        self.context = contextvars.Context()
        self.context.run(_process.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        loop.processes.append(self)
        self._held: list[asyncio.Handle] = []

    def __repr__(self) -> str:
        return f"<{self.host} #{self.pid}>"

    def run(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Starts a task of this process.

        The task never ends if the process dies: wait for it with a timeout.
        """
        return self.loop.create_task(work, context=self.context.copy())

    def kill(self) -> None:
        """SIGKILL: no callback of the process runs again."""
        if self.alive:
            self.alive = False
            self._held.clear()
            for task in self.tasks:
                # Tasks of a killed process are never awaited, so asyncio should not warn about
                # them.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            for callback in self.on_exit:
                callback()

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: run the callbacks that were held back, in their order."""
        self.is_paused = False
        held, self._held = self._held, []
        if self.alive:
            self.loop.append_ready(held)

    def hold_back(self, handle: asyncio.Handle) -> None:
        if self.alive:
            self._held.append(handle)

    def track_task(self, task: "asyncio.Task[Any]") -> None:
        """Keeps a reference. A garbage-collected task would run its `finally` blocks although the
        process is dead.
        """
        self.tasks.append(task)
        if len(self.tasks) >= _PRUNE_DONE_FROM and len(self.tasks) & (len(self.tasks) - 1) == 0:
            self.tasks = [one for one in self.tasks if not one.done()]

    def close_tasks(self) -> None:
        """After the run: close unfinished coroutines, also those that wait in a `finally` block."""
        for task in self.tasks:
            work: Any = task.get_coro()
            for _ in range(_CLOSE_ATTEMPTS):
                with suppress(BaseException):
                    work.close()
                    break


def current() -> SimulatedProcess | None:
    """The process that is running now; None for the driver of the run."""
    return _process.get()


class _Handle(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        _run_unless_paused(self)


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        _run_unless_paused(self)


def _run_unless_paused(handle: Any) -> None:
    process: SimulatedProcess | None = handle._context.get(_process)
    if process is None or (process.alive and not process.is_paused):
        _call(handle)
    else:
        process.hold_back(handle)


def _call(handle: Any) -> None:
    try:
        handle._context.run(handle._callback, *handle._args)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - as in asyncio, the loop's exception handler gets it
        handle._loop.call_exception_handler(
            {"message": f"Exception in callback {handle._callback}", "exception": error, "handle": handle}
        )


@runtime_checkable
class TimedExecutor(Protocol):
    """An executor whose calls take virtual time: `call` returns the seconds and the result or
    exception.
    """

    def call(self, func: Callable[[], T]) -> tuple[float, T | BaseException]: ...


class SimulatedLoop(VirtualLoop):
    """A virtual loop with processes, whose connections go through the simulated network."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__(start)
        self.network: Any = None  # a SimulatedNetwork, which sets itself here
        self.processes: list[SimulatedProcess] = []  # all processes of the run
        self.set_task_factory(_make_task)

    def handle(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        return _Handle(callback, args, self, context)

    def timer(self, when: float, callback: Any, args: Any, context: Any) -> asyncio.TimerHandle:
        return _TimerHandle(when, callback, args, self, context)

    def append_ready(self, handles: "list[asyncio.Handle]") -> None:
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        if not isinstance(executor, TimedExecutor):
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
        process.track_task(task)
    return task
