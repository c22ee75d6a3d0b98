"""The programs that make load, and the log of every command that was run."""

import json
import re
import shlex
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.jars import fetched_classpath, java

PATIENCE_S = 300

commands: list[str] = []


@dataclass(frozen=True)
class Load:
    """What one run of `load.c` says. `client_cpu_s`: its own processor time; near `seconds`, it was the limit."""

    seconds: float
    records: int
    bytes: float
    failed: int
    client_cpu_s: float

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e6


def run(command: list[str]) -> str:
    """Runs a command to its end and returns what it printed; both go into the log of commands. RuntimeError."""
    commands.append(shlex.join(command))
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{commands[-1]}\nexit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    if said := done.stdout.strip().rpartition("\n")[2]:
        commands[-1] += f"\n      {said}"
    return done.stdout


def produce(bootstrap: str, topic: str, records: int, size: int, bytes_per_s: float = 0) -> Load:
    words = ["produce", bootstrap, topic, str(records), str(size), str(bytes_per_s), "acks=all"]
    return Load(**json.loads(run([load_program(), *words])))


def consume(bootstrap: str, topic: str, records: int) -> Load:
    return Load(**json.loads(run([load_program(), "consume", bootstrap, topic, str(records), "1"])))


def consumers(bootstrap: str, topic: str, records: int, count: int) -> "subprocess.Popen[str]":
    """`count` consumers that each read `records`, in the background; `finished` waits for them."""
    command = [load_program(), "consume", bootstrap, topic, str(records), str(count), "fetch.wait.max.ms=500"]
    commands.append(shlex.join(command) + " &")
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finished(process: "subprocess.Popen[str]") -> Load:
    printed, _ = process.communicate(timeout=PATIENCE_S)
    return Load(**json.loads(printed))


def java_produce(bootstrap: str, topic: str, records: int, size: int) -> float:
    """ProducerPerformance with its default batches; MB (10⁶ bytes) of payload per second, as it counts itself."""
    words = ["--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1"]
    words += ["--producer-props", f"bootstrap.servers={bootstrap}"]
    main = "org.apache.kafka.tools.ProducerPerformance"
    printed = run(java(fetched_classpath(), main, *words, jvm=("-Xms512m", "-Xmx512m")))
    rate = re.search(r"([\d.]+) records/sec", printed.splitlines()[-1])
    assert rate is not None, printed
    return float(rate.group(1)) * size / 1e6


def load_program() -> str:
    return compiled("load")


@cache
def compiled(name: str) -> str:
    """Compiles `bench/NAME.c` once a run; the program's path. RuntimeError that says what is missing."""
    source = Path(__file__).with_name(f"{name}.c")
    made = source.parent.parent / "build" / f"bench-{name}"
    made.parent.mkdir(exist_ok=True)
    try:
        run(["cc", "-O2", "-o", str(made), str(source), "-lrdkafka", "-lpthread"])
    except (RuntimeError, FileNotFoundError) as error:
        raise RuntimeError(
            f"bench/{name}.c needs a C compiler and librdkafka's header (Debian: apt-get install gcc librdkafka-dev):\n{error}"
        ) from error
    return str(made)
