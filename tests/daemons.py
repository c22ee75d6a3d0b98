"""A long-running program beside a test: start, stop, kill, pause and resume it; its output goes to
a file.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.waiting import eventually

STOPS_WITHIN_S = 20.0


@dataclass
class Daemon:
    """`log` collects the output of all starts. `environment` is added to this process's own."""

    command: Sequence[str | Path]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def name(self) -> str:
        return self.log.stem

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | dict(self.environment),
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL if the process does not exit in time."""
        if self.process is None or not self.is_running:
            return
        self.process.terminate()
        try:
            self.process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        if self.process is not None and self.is_running:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """Sends SIGSTOP and waits until all threads have stopped: connections stay open but get no
        response.
        """
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self.process.pid}/task")
        eventually(
            lambda: all(_thread_state(thread) == "T" for thread in threads.iterdir()),
            message=f"all threads of {self.name} are stopped",
        )

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def log_tail(self, characters: int = 4000) -> str:
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""

    def resident_memory_kib(self) -> int:
        assert self.process is not None
        return resident_memory_kib(self.process.pid)


def resident_memory_kib(pid: int) -> int:
    """Resident memory of a process (VmRSS)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def _thread_state(thread: Path) -> str:
    """State letter from proc(5): R, S, T, …."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]
