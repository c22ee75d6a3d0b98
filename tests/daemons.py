"""A program that runs beside a test until it is stopped: started, killed, held still and let go on, with what it wrote kept in a file."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.waiting import eventually

ENDS_WITHIN_S = 20.0


@dataclass
class Daemon:
    """`log`: where its output goes, one start after the other. `environment`: over this process's own."""

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

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for one that does not end by it."""
        if self.process is None or not self.running():
            return
        self.process.terminate()
        try:
            self.process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        if self.process is not None and self.running():
            self.process.kill()
            self.process.wait()

    def hold(self) -> None:
        """It answers nobody, and nobody's connection breaks."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self.process.pid}/task")
        eventually(
            lambda: all(_state(thread) == "T" for thread in threads.iterdir()), message=f"{self.name} holds still"
        )

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def said(self, characters: int = 4000) -> str:
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""

    def resident_kib(self) -> int:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def _state(thread: Path) -> str:
    """R, S, T, …, as proc(5) says."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]
