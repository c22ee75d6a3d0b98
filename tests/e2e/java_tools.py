"""Kafka's own programs against a cluster: some run to their end, some run beside a test and are read line by line."""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.jars import java_command, kafka_classpath


def run_java_tool(main: str, *arguments: str, within_s: float = 60.0) -> str:
    """What it printed. AssertionError with that when its exit code is not 0."""
    command = java_command(kafka_classpath(), main, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{main} {' '.join(arguments)}: exit code {done.returncode}\n{said[-3000:]}"
    return said


@dataclass
class JavaToolProcess:
    """A program that goes on. `lines`: all that it printed so far; `events`: those of them that are JSON, read."""

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def events_named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if event.get("name") == name]

    def stop(self) -> None:
        """SIGTERM: the verifiable programs then tell what they have done."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.reader.join(10)

    def follow(self) -> None:
        def read() -> None:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                self.lines.append(line.rstrip("\n"))
                if line.startswith("{"):
                    self.events.append(json.loads(line))

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()


@contextmanager
def start_java_tool(main: str, *arguments: str) -> Iterator[JavaToolProcess]:
    command = java_command(kafka_classpath(), main, *arguments)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    program = JavaToolProcess(process)
    program.follow()
    try:
        yield program
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        program.reader.join(10)
