"""The programs that make load, and the log of every command that was run."""

import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench import raw
from tests.jars import fetch_classpath, java_command

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


@dataclass(frozen=True)
class Latency:
    """What one run of `asks.c` says, in ms."""

    p50: float
    p99: float


def run(command: list[str], given: bytes = b"") -> str:
    """Runs a command to its end and returns what it printed; both go into the log of commands. `given`: to its standard input.
    RuntimeError."""
    commands.append(shlex.join(command))
    done = subprocess.run(command, input=given, capture_output=True, timeout=PATIENCE_S, check=False)
    printed = done.stdout.decode()
    if done.returncode:
        raise RuntimeError(
            f"{commands[-1]}\nexit code {done.returncode}\n{printed[-2000:]}{done.stderr.decode()[-2000:]}"
        )
    if said := printed.strip().rpartition("\n")[2]:
        commands[-1] += f"\n      {said}"
    return printed


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
    printed = run(java_command(fetch_classpath(), main, *words, jvm=("-Xms512m", "-Xmx512m")))
    rate = re.search(r"([\d.]+) records/sec", printed.splitlines()[-1])
    assert rate is not None, printed
    return float(rate.group(1)) * size / 1e6


def latency(port: int, topic: str, count: int, size: int) -> Latency:
    """Of `count` acknowledgements of one record each, one after the other."""
    request = raw.produce_request(topic, raw.batch(os.urandom(size)))
    return Latency(**json.loads(run([compiled("asks"), str(port), str(count), str(raw.error_at(topic))], request)))


def load_program() -> str:
    return compiled("load")


@cache
def compiled(name: str) -> str:
    """Compiles `bench/NAME.c` once a run; the program's path. RuntimeError that says what is missing."""
    source = Path(__file__).with_name(f"{name}.c")
    made = source.parent.parent / "build" / f"bench-{name}"
    made.parent.mkdir(exist_ok=True)
    try:
        # The allocator is one for programs in which one thread gives back what another one took, as librdkafka's do with every
        # message: in glibc's they meet at a lock, and a consumer of small records measures that more than the broker.
        run(["cc", "-O2", "-o", str(made), str(source), "-Wl,--no-as-needed", "-lmimalloc", "-lrdkafka", "-lpthread"])
    except (RuntimeError, FileNotFoundError) as error:
        needed = "a C compiler, librdkafka's header and mimalloc (Debian: apt-get install gcc librdkafka-dev libmimalloc-dev)"
        raise RuntimeError(f"bench/{name}.c needs {needed}:\n{error}") from error
    return str(made)
