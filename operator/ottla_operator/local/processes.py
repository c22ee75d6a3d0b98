"""Processes that outlive `ottla up` if it crashes, and that the next one finds again.

A process runs in a session of its own, so that Ctrl-C reaches only `ottla up`, which stops
everything in order. It prints to a file, so that it neither blocks nor dies when `ottla up` is
gone. `process.json` identifies it by pid and start time: another process may get the pid.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ottla_operator.local.home import replace_file
from ottla_operator.plan.broker_processes import HOST
from ottla_operator.plan.observed_pods import last_line

EXIT_POLL_S: Final = 0.05
MAX_TAIL_BYTES: Final = 1 << 16
MAX_OUTPUT_BYTES: Final = 1 << 20
MAX_LOG_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """`started`: its start time as the system prints it. `hash`: hash of what it was started with
    (see `Supervisor`); empty if its Supervisor has none.
    """

    pid: int
    started: str
    hash: str


@dataclass(slots=True)
class Process:
    """A running process. `child`: None for one that an earlier `ottla up` has started.
    `output_from`: position in output.log at which this run's output begins, in bytes."""

    folder: Path
    identity: ProcessIdentity
    child: asyncio.subprocess.Process | None
    output_from: int = 0

    @property
    def pid(self) -> int:
        return self.identity.pid

    @property
    def is_adopted(self) -> bool:
        return self.child is None

    async def wait(self) -> int | None:
        """Waits until the process exits. Returns its exit code, negative for a signal; None for an
        adopted process, whose code is unknown.
        """
        if self.child is not None:
            code: int | None = await self.child.wait()
        else:
            while is_running(self.identity):  # noqa: ASYNC110  # the system reports only the exits of children
                await asyncio.sleep(EXIT_POLL_S)
            code = None
        (self.folder / "process.json").unlink(missing_ok=True)
        return code

    async def stop(self, timeout_s: float) -> bool:
        """Sends SIGTERM, and after the timeout SIGKILL to its process group. True if it exited
        before SIGKILL.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
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
        """Output of the process, at most its first MAX_OUTPUT_BYTES."""
        return self._read(self.output_from)

    def last_line(self) -> str:
        """The last line that it has printed: mostly the reason of its exit."""
        return last_line(self._read(max(self.output_from, _size(self.folder / "output.log") - MAX_TAIL_BYTES)))

    def _read(self, begin: int) -> str:
        try:
            with (self.folder / "output.log").open("rb") as log:
                log.seek(begin)
                return log.read(MAX_OUTPUT_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return ""


async def start_process(
    folder: Path, command: Sequence[str], hash_: str, environment: Mapping[str, str] | None = None
) -> Process:
    """Starts a command; its output goes to output.log and its identity to process.json. Raises
    OSError.
    """
    log = folder / "output.log"
    begin = _rotate(log)
    with log.open("ab") as output:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )
    identity = ProcessIdentity(child.pid, start_time(child.pid) or "", hash_)
    replace_file(folder / "process.json", json.dumps(asdict(identity)))
    return Process(folder, identity, child, begin)


def find_process(folder: Path) -> Process | None:
    """The process that an earlier `ottla up` has started in this folder, if it is still running.
    Otherwise None, and its file is deleted.
    """
    try:
        identity = ProcessIdentity(**json.loads((folder / "process.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    if not is_running(identity):
        (folder / "process.json").unlink(missing_ok=True)
        return None
    return Process(folder, identity, None)


def is_running(identity: ProcessIdentity) -> bool:
    return bool(identity.started) and start_time(identity.pid) == identity.started


def start_time(pid: int) -> str | None:
    """Start time of a process, as text that differs for every later process with the same pid; None
    if it has exited.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
        columns = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split(None, 1)
        return columns[1].strip() if len(columns) == 2 and not columns[0].startswith("Z") else None
    except ProcessLookupError:
        return None
    return fields[19] if fields[0] not in ("Z", "X") else None


def find_port_conflict(port: int) -> str | None:
    """The reason why a process cannot listen on a port; None if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError:
            return f"port {port} needs root; use one above 1023"
        except OSError:
            return f"port {port} is in use{_listening_process(port)}"
    return None


def find_free_port() -> int:
    """A port that no process listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _listening_process(port: int) -> str:
    """` by pid 12 (java)`; empty where the system does not show it. Linux shows the user's own
    processes.
    """
    inodes = {
        fields[9]
        for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        if table.exists()
        for line in table.read_text().splitlines()[1:]
        if (fields := line.split())[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port
    }
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        try:
            if any(str(it.readlink()) in sockets for it in (process / "fd").iterdir()):
                return f" by pid {process.name} ({(process / 'comm').read_text().strip()})"
        except OSError:  # another user's process, or one that has just exited
            continue
    return ""


def _rotate(log: Path) -> int:
    """Renames a log that has grown large to output.log.1. Returns where the next run's output
    begins.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    if (size := _size(log)) <= MAX_LOG_BYTES:
        return size
    log.replace(log.with_suffix(".log.1"))
    return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
