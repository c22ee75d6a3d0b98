"""Supervises one process: adopts the process of an earlier `ottla up`, starts it, waits until it is
ready, and restarts it when it exits.
"""

import asyncio
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla_operator.local import processes
from ottla_operator.local.live_view import State
from ottla_operator.local.processes import Process
from ottla_operator.plan.backoff import BROKER_RESTARTS, RestartBackoff, RestartDelays

READY_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """`reason`: why it is retrying, failed, stopping or stopped. `restart_in_s`: None if no restart
    is planned. `exits`: consecutive exits. `exit_code`: exit code of the last run, −1 if it could
    not start; None if no run has ended or the code is unknown.
    """

    state: State = State.waiting
    reason: str = ""
    pid: int | None = None
    restart_in_s: float | None = None
    exits: int = 0
    exit_code: int | None = None
    is_adopted: bool = False

    @property
    def note(self) -> str:
        """Text for the live view."""
        if self.restart_in_s is None:
            return self.reason
        loop = f", {self.exits} times in a row" if self.state is State.failed else ""
        return f"{self.reason}; restarting in {self.restart_in_s:.0f} s{loop}"


@dataclass(slots=True)
class Supervisor:
    """`hash`: hash of what the process is started with. A process of an earlier run is adopted if
    it has this hash, and stopped otherwise; None to adopt any. An adopted process counts as ready.
    `on_status`: called at every change. `is_ready`: decides from the output whether a run is ready.
    `find_obstacle`: returns why it cannot be started now. `before_start`: called just before each
    start. `permanent_codes`: exit codes after which a restart is useless; `success_codes`: exit
    codes of a finished process.
    """

    folder: Path
    command: Sequence[str]
    hash: str | None
    on_status: Callable[[ProcessStatus], None]
    is_ready: Callable[[str], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    find_obstacle: Callable[[], str | None] = lambda: None
    before_start: Callable[[], None] = lambda: None
    permanent_codes: Collection[int] = (2,)
    success_codes: Collection[int] = ()
    grace_s: float = 30.0
    delays: RestartDelays = BROKER_RESTARTS
    status: ProcessStatus = field(default_factory=ProcessStatus)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _process: Process | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self.run())

    async def run(self) -> None:
        """Runs the process until it is stopped, has finished or has failed for good."""
        backoff = RestartBackoff(self.delays)
        while not self._stop.is_set():
            began = asyncio.get_running_loop().time()
            code, reason = await self._run_once(backoff)
            if self._stop.is_set():
                return
            if code in self.success_codes:
                self._report(ProcessStatus(State.finished, exit_code=code))
                return
            if code in self.permanent_codes:
                self._report(ProcessStatus(State.failed, reason, exits=backoff.exits + 1, exit_code=code))
                return
            backoff = backoff.after_run(asyncio.get_running_loop().time() - began)
            state = State.failed if backoff.is_crash_loop else State.retrying
            self._report(ProcessStatus(state, reason, None, backoff.delay_s, backoff.exits, code))
            await self._pause(backoff.delay_s)

    async def stop(self) -> bool:
        """Stops the process and returns when it has exited. False if it had to be killed."""
        self._stop.set()
        is_clean = True
        if (process := self._process) is not None:
            self._report(ProcessStatus(State.stopping, pid=process.pid))
            is_clean = await process.stop(self.grace_s)
            reason = "" if is_clean else f"killed: still running {self.grace_s:.0f} s after SIGTERM"
            self._report(ProcessStatus(State.stopped, reason))
        if self._task is not None:
            await self._task
        return is_clean

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def _run_once(self, backoff: RestartBackoff) -> tuple[int | None, str]:
        """Runs the process once. Returns its exit code, and why it has exited or could not start.
        The code is −1 if it could not start, and None for an adopted process.
        """
        exits, last_code = backoff.exits, self.status.exit_code
        process = await self._adopt()
        if process is None:
            if (reason := self.find_obstacle()) is not None:
                return -1, reason
            self._report(ProcessStatus(State.starting, exits=exits, exit_code=last_code))
            try:
                self.before_start()
                process = await processes.start_process(self.folder, self.command, self.hash or "", self.environment)
            except OSError as error:
                return -1, f"cannot start: {error.filename}: {error.strerror}"
            self._report(ProcessStatus(State.starting, pid=process.pid, exits=exits, exit_code=last_code))
        self._process = process
        if self._stop.is_set():
            await process.stop(self.grace_s)
        try:
            code = await self._wait(process, exits)
        finally:
            self._process = None
            self.ready.clear()
        is_signal = code is not None and code < 0  # then its last line is not the reason
        return code, _exit_reason(code) if is_signal else process.last_line() or _exit_reason(code)

    async def _wait(self, process: Process, exits: int) -> int | None:
        """Waits until the process has exited, and reports when it is ready. Returns the exit code;
        None if it is unknown.
        """
        waiting = asyncio.create_task(process.wait())
        while not waiting.done() and not self.ready.is_set():
            if process.is_adopted or self.is_ready(process.output()):
                self.ready.set()
                self._report(ProcessStatus(State.ready, pid=process.pid, exits=exits, is_adopted=process.is_adopted))
            else:
                await asyncio.wait([waiting], timeout=READY_POLL_S)
        return await waiting

    async def _adopt(self) -> Process | None:
        process = processes.find_process(self.folder)
        if process is None or self.hash in (None, process.identity.hash):
            return process
        self._report(ProcessStatus(State.stopping, "left behind with other settings", process.pid))
        await process.stop(self.grace_s)
        return None

    def _report(self, status: ProcessStatus) -> None:
        self.status = status
        self.on_status(status)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass


def _exit_reason(code: int | None) -> str:
    match code:
        case None:
            return "exited"
        case int() if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        case _:
            return f"exited with code {code}"
