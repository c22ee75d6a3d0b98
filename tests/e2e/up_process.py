"""`ottla up` as a process for tests, with a folder and free ports of its own, and its output as a
list.
"""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.ottla_command import COMMAND, command_environment, run_ottla
from tests.ports import first_of_free_ports
from tests.waiting import eventually

TIMEOUT_S = 60.0


@dataclass
class UpProcess:
    """A folder with resources, and the `ottla up` that runs in it. `broker_count`: the
    number of bootstrap addresses, from `port` on. `lines`: output since the last start.
    """

    folder: Path
    port: int = field(default_factory=lambda: first_of_free_ports(4))
    broker_count: int = 1
    process: "subprocess.Popen[str] | None" = None
    lines: list[str] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + it}" for it in range(self.broker_count))

    @property
    def running_process(self) -> "subprocess.Popen[str]":
        assert self.process is not None
        return self.process

    def write_resources(self, *resources: Mapping[str, Any], name: str = "all.yaml") -> Path:
        path = self.folder / "resources" / name
        path.parent.mkdir(exist_ok=True)
        scratch = path.with_suffix(".new")
        scratch.write_text(yaml.safe_dump_all(resources, sort_keys=False))
        scratch.replace(path)
        return path

    def start(self, *options: str, **variables: str) -> None:
        self.lines = []
        self.process = subprocess.Popen(
            [*COMMAND, "up", "resources", *options],
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=command_environment(**variables),
        )
        threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()

    def wait_for_line(self, text: str, *, within_s: float = TIMEOUT_S) -> str:
        """Waits for a line with this text, and returns it."""
        return eventually(
            lambda: next((line for line in list(self.lines) if text in line), ""),
            within_s=within_s,
            message=lambda: f"{text!r} in {self.lines}",
        )

    def stop(self, signal_number: int = signal.SIGINT) -> int:
        """Sends the signal, waits for the end, and returns the exit code."""
        self.running_process.send_signal(signal_number)
        return self.running_process.wait(TIMEOUT_S)

    def broker_pid(self, id_: int = 1) -> int:
        pid: int = json.loads((self.folder / ".ottla" / "demo" / str(id_) / "process.json").read_text())["pid"]
        return pid

    def run_ottla(self, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Runs an `ottla` command with the brokers' addresses in OTTLA_BOOTSTRAP."""
        return run_ottla(*arguments, stdin=stdin, folder=self.folder, variables={"OTTLA_BOOTSTRAP": self.bootstrap})

    @staticmethod
    def _read(process: "subprocess.Popen[str]", lines: list[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip("\n"))


def is_process_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def prepare_up(folder: Path) -> Iterator[UpProcess]:
    """Yields a process that has not been started. Kills it at the end, with the processes that it
    started.
    """
    up = UpProcess(folder)
    try:
        yield up
    finally:
        if up.process is not None and up.process.poll() is None:
            up.process.kill()
            up.process.wait()
        for state_file in (folder / ".ottla").rglob("process.json"):
            pid = json.loads(state_file.read_text())["pid"]
            if is_process_running(pid):
                os.killpg(pid, signal.SIGKILL)
