"""Apache Kafka's command-line programs: `run_java_tool` waits for the end of one, `start_java_tool`
runs one beside a test and collects its output.
"""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.jars import java_command, kafka_classpath
from tests.tools_jvm import check_tool


def run_java_tool(main: str, *arguments: str) -> str:
    """Runs a program of the Kafka version that tests use by default, and returns its output. Raises
    AssertionError with the output if the exit code is not 0.
    """
    return check_tool(kafka_classpath(), main, *arguments)


@dataclass
class JavaToolProcess:
    """A running program. `lines`: its output so far. `events`: the lines that are JSON, parsed."""

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def events_named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if event.get("name") == name]

    def stop(self) -> None:
        """Sends SIGTERM, on which the verifiable programs print a summary, and waits for the
        end.
        """
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.reader.join(10)

    def start_reader(self) -> None:
        """Starts the thread that collects lines and events."""

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
    program.start_reader()
    try:
        yield program
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        program.reader.join(10)
