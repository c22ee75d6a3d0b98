"""The load programs, and the log of every command that a benchmark runs."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench import plain_requests
from tests.jars import fetch_classpath, java_command

PROGRAM_TIMEOUT_S = 300

command_log: list[str] = []
"""The commands that were run, with the last line that each has printed, unless it ran in the
background, and measurements that explain it."""


@dataclass(frozen=True)
class LoadResult:
    """The output of `load.c`. If `client_cpu_s` is close to `seconds`, the client was the
    bottleneck.
    """

    seconds: float
    records: int
    bytes: float
    failed: int
    client_cpu_s: float

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e6


@dataclass(frozen=True)
class LatencyResult:
    """The output of `latency.c`, in ms."""

    p50: float
    p99: float


@dataclass(frozen=True)
class ManyClientsResult:
    """The output of the programs for many clients. `per_s`: requests, new connections, or
    deliveries of one record to one consumer. `p50`, `p99`: their latencies in ms. `broker_cpu_us`:
    processor time of the broker for each. If `client_cpu_s` is close to `seconds`, the client was
    the bottleneck.
    """

    seconds: float
    per_s: float
    p50: float
    p99: float
    broker_cpu_us: float
    client_cpu_s: float


def run_program(command: list[str], stdin: bytes = b"") -> str:
    """Runs a command and returns its output. Adds the command and the last line of the output to
    `command_log`.

    `stdin` is its standard input. Raises RuntimeError if the exit code is not 0.
    """
    command_log.append(shlex.join(command))
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=PROGRAM_TIMEOUT_S, check=False)
    printed = done.stdout.decode()
    if done.returncode:
        raise RuntimeError(
            f"{command_log[-1]}\nexit code {done.returncode}\n{printed[-2000:]}{done.stderr.decode()[-2000:]}"
        )
    if last_line := printed.strip().rpartition("\n")[2]:
        command_log[-1] += f"\n      {last_line}"
    return printed


def produce(
    bootstrap: str,
    topic: str,
    records: int,
    size: int,
    bytes_per_s: float = 0,
    *,
    partitions: int = 1,
    keys: int = 0,
    settings: Sequence[str] = (),
) -> LoadResult:
    """Produces to the partitions in turn; `keys`: the number of different keys, 0 for none.

    `settings`: librdkafka's, each `name=value`.
    """
    numbers = (partitions, records, size, bytes_per_s, keys)
    words = ["produce", bootstrap, topic, *map(str, numbers), "acks=all", *settings]
    return LoadResult(**json.loads(run_program([compile_program("load"), *words])))


def consume(
    bootstrap: str, topic: str, records: int, *, partitions: int = 1, settings: Sequence[str] = ()
) -> LoadResult:
    """One consumer reads `records` records from the start of all partitions."""
    words = ["consume", bootstrap, topic, str(partitions), str(records), "1", *settings]
    return LoadResult(**json.loads(run_program([compile_program("load"), *words])))


def start_consumers(bootstrap: str, topic: str, records: int, count: int) -> "subprocess.Popen[str]":
    """Starts `count` consumers that each read `records`; `wait_for_load` returns their result."""
    words = [bootstrap, topic, "1", str(records), str(count), "fetch.wait.max.ms=500"]
    command = [compile_program("load"), "consume", *words]
    command_log.append(shlex.join(command) + " &")
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for_load(process: "subprocess.Popen[str]") -> LoadResult:
    printed, _ = process.communicate(timeout=PROGRAM_TIMEOUT_S)
    return LoadResult(**json.loads(printed))


def produce_with_java(bootstrap: str, topic: str, records: int, size: int) -> float:
    """Runs ProducerPerformance with its default batches.

    Returns MB (10⁶ bytes) of payload per second, from the records per second that it prints.
    """
    words = ["--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1"]
    words += ["--producer-props", f"bootstrap.servers={bootstrap}"]
    main = "org.apache.kafka.tools.ProducerPerformance"
    printed = run_program(java_command(fetch_classpath(), main, *words, jvm=("-Xms512m", "-Xmx512m")))
    rate = re.search(r"([\d.]+) records/sec", printed.splitlines()[-1])
    assert rate is not None, printed
    return float(rate.group(1)) * size / 1e6


def measure_latency(port: int, topic: str, count: int, size: int) -> LatencyResult:
    """Latency of `count` acknowledgements of one record each, one after the other."""
    request = plain_requests.produce_request(topic, plain_requests.encode_batch(os.urandom(size)))
    return LatencyResult(
        **json.loads(
            run_program(
                [compile_program("latency"), str(port), str(count), str(plain_requests.error_code_offset(topic))],
                request,
            )
        )
    )


def measure_many_producers(
    port: int, pid: int, topic: str, partitions: int, connections: int, warm_s: float, seconds: float, size: int = 100
) -> ManyClientsResult:
    """Connections that each send one record of `size` bytes after the other, spread over the
    partitions. `pid`: the broker's process.
    """
    requests = b"".join(
        plain_requests.produce_request(topic, plain_requests.encode_batch(os.urandom(size)), partition)
        for partition in range(partitions)
    )
    numbers = (port, pid, connections, warm_s, seconds, plain_requests.error_code_offset(topic))
    return ManyClientsResult(**json.loads(run_program([compile_program("many"), *map(str, numbers)], requests)))


def measure_new_connections(
    port: int, pid: int, topic: str, partitions: int, per_s: int, warm_s: float, seconds: float
) -> ManyClientsResult:
    """Connections that begin at fixed times, send one record of 100 B, and close when it is
    acknowledged. `pid`: the broker's process.
    """
    record = plain_requests.encode_batch(os.urandom(100))
    requests = b"".join(plain_requests.produce_request(topic, record, partition) for partition in range(partitions))
    numbers = (port, pid, per_s, warm_s, seconds, plain_requests.error_code_offset(topic))
    return ManyClientsResult(**json.loads(run_program([compile_program("connects"), *map(str, numbers)], requests)))


def measure_group(
    bootstrap: str, pid: int, topic: str, partitions: int, members: int, per_s: int, warm_s: float, seconds: float
) -> tuple[float, ManyClientsResult]:
    """Members of one group on librdkafka, to whose topic `per_s` records of 100 B a second are
    written: seconds until all partitions have owners, and what the members receive then. `pid`: the
    broker's.
    """
    words = [bootstrap, str(pid), topic, *map(str, (partitions, members, per_s, warm_s, seconds))]
    printed = json.loads(run_program([compile_program("group"), *words]))
    return printed["start"], ManyClientsResult(**printed["clients"])


def measure_many_consumers(
    port: int, pid: int, topic: str, consumers: int, per_s: int, warm_s: float, seconds: float
) -> ManyClientsResult:
    """Connections that each read partition 0 of an empty topic, while one connection writes `per_s`
    records of 100 B a second. `pid`: the broker's process.
    """
    produce_request = plain_requests.produce_request(topic, plain_requests.encode_batch(os.urandom(100)))
    fetch = plain_requests.fetch_request(topic)
    positions = (len(fetch.request), fetch.offset_at, fetch.error_at, fetch.batches_at)
    numbers = (port, pid, consumers, per_s, warm_s, seconds, plain_requests.error_code_offset(topic), *positions)
    printed = run_program([compile_program("consumers"), *map(str, numbers)], produce_request + fetch.request)
    return ManyClientsResult(**json.loads(printed))


def measure_lag(
    source: str,
    topic: str,
    target: str,
    target_topic: str,
    partitions: int,
    size: int,
    per_s: float,
    warm_s: float,
    seconds: float,
) -> dict[str, float]:
    """The output of `lag.c`, for records that are produced at one cluster and read at the same or
    another one: numbers of records, the seconds that all took, and latencies in seconds.
    """
    words = [source, topic, target, target_topic, *map(str, (partitions, size, per_s, warm_s, seconds))]
    result: dict[str, float] = json.loads(run_program([compile_program("lag"), *words]))
    return result


@cache
def compile_program(name: str) -> str:
    """Compiles `bench/NAME.c` once per run and returns the program's path. Raises RuntimeError."""
    source = Path(__file__).with_name(f"{name}.c")
    program = source.parent.parent / "build" / f"bench-{name}"
    program.parent.mkdir(exist_ok=True)
    try:
        # In librdkafka one thread frees what another has allocated, for every message. With glibc's
        # allocator the threads contend for a lock, and a consumer of small records measures the
        # lock more than the broker; mimalloc avoids it.
        run_program(
            ["cc", "-O2", "-o", str(program), str(source), "-Wl,--no-as-needed", "-lmimalloc", "-lrdkafka", "-lpthread"]
        )
    except (RuntimeError, FileNotFoundError) as error:
        needed = (
            "a C compiler, librdkafka's header and mimalloc (Debian: apt-get install gcc librdkafka-dev "
            "libmimalloc-dev)"
        )
        raise RuntimeError(f"bench/{name}.c needs {needed}:\n{error}") from error
    return str(program)
