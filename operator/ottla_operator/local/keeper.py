"""Keeps one process running: takes over what an earlier run left behind, starts, waits until it serves, starts again when it falls."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ottla_operator.local import processes
from ottla_operator.local.live_view import State
from ottla_operator.local.processes import Process
from ottla_operator.plan.backoff import BROKER_RESTARTS, RestartBackoff, RestartDelays

READY_POLL_S = 0.02
AGAIN = "; again in "  # stands between why a run ended and when the next one begins


@dataclass(slots=True)
class Keeper:
    """`tell(state, note, pid)` is called at every change. `is_ready`: whether a run serves, from what it has printed. `in_the_way`: why it cannot be
    started now, None when nothing is. `hopeless`: exit codes that the same command would end with again. `done`: those that mean it is finished.
    `hash`: names the command; a process left behind with another is stopped, unless this is None. `prepare`: called just before a start. `pace`: of starts
    after falls."""

    folder: Path
    command: Sequence[str]
    hash: str | None
    tell: Callable[[State, str, int | None], None]
    is_ready: Callable[[str], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    in_the_way: Callable[[], str | None] = lambda: None
    prepare: Callable[[], None] = lambda: None
    hopeless: Collection[int] = (2,)
    done: Collection[int] = ()
    grace_s: float = 30.0
    pace: RestartDelays = BROKER_RESTARTS
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it will not run again: finished, hopeless or stopped."""
    _process: Process | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until it is stopped, finished or hopeless."""
        failures = RestartBackoff(self.pace)
        try:
            while not self._stopping.is_set():
                began = asyncio.get_running_loop().time()
                code, why = await self._once()
                if self._stopping.is_set():
                    return
                if code in self.done:
                    self.tell(State.finished, "", None)
                    return
                if code in self.hopeless:
                    self.tell(State.failed, why, None)
                    return
                failures = failures.after_run(asyncio.get_running_loop().time() - began)
                loops = f", {failures.exits} times in a row" if failures.is_crash_loop else ""
                note = f"{why}{AGAIN}{failures.delay_s:.0f} s{loops}"
                self.tell(State.failed if failures.is_crash_loop else State.retrying, note, None)
                await self._pause(failures.delay_s)
        finally:
            self.ended.set()

    async def stop(self) -> bool:
        """Ends it and returns when it is gone; whether it went by itself."""
        self._stopping.set()
        if (process := self._process) is None:
            return True
        self.tell(State.stopping, "", process.pid)
        clean = await process.stop(self.grace_s)
        self.tell(State.stopped, "" if clean else f"did not end in {self.grace_s:.0f} s and was killed", None)
        return clean

    def kill(self) -> None:
        """Ends it at once; the process has no say."""
        if self._process is not None:
            self._process.kill()

    async def _once(self) -> tuple[int | None, str]:
        """One run: its exit code and why it ended, in words."""
        process = await self._take_over()
        if process is None:
            if (reason := self.in_the_way()) is not None:
                return -1, reason
            self.tell(State.starting, "", None)
            try:
                self.prepare()
                process = await processes.start(self.folder, self.command, self.hash or "", self.environment)
            except OSError as error:
                return -1, f"cannot be started: {error.filename}: {error.strerror}"
            self.tell(State.starting, "", process.pid)
        self._process = process
        if self._stopping.is_set():
            await process.stop(self.grace_s)
        try:
            waiting = asyncio.create_task(process.wait())
            while not waiting.done() and not self.ready.is_set():
                if process.adopted or self.is_ready(process.output()):
                    self.ready.set()
                    self.tell(State.ready, "", process.pid)
                else:
                    await asyncio.wait([waiting], timeout=READY_POLL_S)
            code = await waiting
        finally:
            self._process = None
            self.ready.clear()
        by_signal = code is not None and code < 0  # then what it said last is not why
        return code, _how(code) if by_signal else process.last_words() or _how(code)

    async def _take_over(self) -> Process | None:
        process = processes.left_behind(self.folder)
        if process is None or self.hash in (None, process.identity.hash):
            return process
        self.tell(State.stopping, "an earlier run left it behind with other settings", process.pid)
        await process.stop(self.grace_s)
        return None

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass


def _how(code: int | None) -> str:
    match code:
        case None:
            return "ended"
        case int() if code < 0:
            return f"was ended by signal {-code}"
        case _:
            return f"ended with exit code {code}"
