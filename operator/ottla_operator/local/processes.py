"""A process that outlives us if we crash, and that the next `ottla up` finds again.

It runs in a session of its own, so that Ctrl-C reaches only us and we stop everything in order; it writes to a file, so that it does not stall or
die when we are gone. `process.json` names it by pid and start time, so that a pid that was given to somebody else is not mistaken for it.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

POLL_S = 0.05
LAST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Identity:
    """`started`: when the process began, in whatever form the system tells it. `hash`: names what it was started with."""

    pid: int
    started: str
    hash: str


@dataclass(slots=True)
class Process:
    """A running process, our child or one that an earlier `ottla up` left behind."""

    folder: Path
    identity: Identity
    child: asyncio.subprocess.Process | None
    output_from: int = 0
    """Where in output.log this run begins, in bytes."""

    @property
    def pid(self) -> int:
        return self.identity.pid

    @property
    def adopted(self) -> bool:
        return self.child is None

    async def wait(self) -> int | None:
        """Waits for its end. The exit code (negative: the signal that ended it); None for an adopted one, whose code is not ours to know."""
        if self.child is not None:
            code: int | None = await self.child.wait()
        else:
            while is_alive(self.identity):  # noqa: ASYNC110  # nobody tells of the end of a process that is not our child
                await asyncio.sleep(POLL_S)
            code = None
        self._forget()
        return code

    def _forget(self) -> None:
        (self.folder / "process.json").unlink(missing_ok=True)

    async def stop(self, within_s: float) -> bool:
        """SIGTERM, and SIGKILL to its whole session when that does not help in time. Whether it ended by itself."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(within_s):
                await self.wait()
        except TimeoutError:
            self.kill()
            await self.wait()
            return False
        return True

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def output(self) -> str:
        """What this run has printed so far; the first MiB of it."""
        return output_since(self.folder, self.output_from)

    def last_words(self) -> str:
        """The last line it printed, shortened; what a program says last is mostly why it ended."""
        return last_line(output_since(self.folder, self.output_from, last=LAST_BYTES))


async def start(
    folder: Path, command: Sequence[str], hash_: str, environment: Mapping[str, str] | None = None
) -> Process:
    """Starts a command whose output goes to output.log and whose identity to process.json. OSError when it cannot be started."""
    log = folder / "output.log"
    begin = _prepared(log)
    with log.open("ab") as output:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )
    identity = Identity(child.pid, start_mark(child.pid) or "", hash_)
    _write(folder / "process.json", json.dumps(asdict(identity)))
    return Process(folder, identity, child, begin)


def left_behind(folder: Path) -> Process | None:
    """The process that an earlier `ottla up` started in this folder, if it still runs."""
    try:
        identity = Identity(**json.loads((folder / "process.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    if not is_alive(identity):
        (folder / "process.json").unlink(missing_ok=True)
        return None
    return Process(folder, identity, None)


def is_alive(identity: Identity) -> bool:
    return bool(identity.started) and start_mark(identity.pid) == identity.started


def start_mark(pid: int) -> str | None:
    """When a process began, as text that no later process with the same pid has; None when there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        told = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout.split(None, 1)
        return told[1].strip() if len(told) == 2 and not told[0].startswith("Z") else None
    except ProcessLookupError:
        return None
    return fields[19] if fields[0] not in ("Z", "X") else None


def output_since(folder: Path, begin: int, last: int | None = None) -> str:
    """`last`: only so many bytes of it, the last ones."""
    try:
        with (folder / "output.log").open("rb") as log:
            log.seek(begin if last is None else max(begin, log.seek(0, os.SEEK_END) - last))
            return log.read(1 << 20).decode(errors="replace")
    except FileNotFoundError:
        return ""


def last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""


def _prepared(log: Path, keep: int = 4 << 20) -> int:
    """Where the next run's output begins. A log that has grown large is set aside first, as output.log.1."""
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return 0
    if size > keep:
        log.replace(log.with_suffix(".log.1"))
        return 0
    return size


def _write(path: Path, text: str) -> None:
    scratch = path.with_suffix(".tmp")
    scratch.write_text(text)
    scratch.replace(path)
