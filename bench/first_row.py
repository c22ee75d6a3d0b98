"""Seconds until the first row of a pipeline can be read, and the processor seconds that each of its
processes has used by then.

    python -m bench.first_row up --runs 3         # ottla up examples/flights
    python -m bench.first_row beside --runs 3     # a pipeline, and the same job written by hand

up: from the start of the command, while it loads 687,495 records. A consumer (read_committed) waits
for the first record of the pipeline's topic. The home folder is new in every run.

beside: the job `counts` of `bench.pipelines` on 60,000 records, from the start of the driver. It
runs as a pipeline, by hand with the configuration of pipelines, and by hand with Spark's own
configuration. The pipeline writes exactly once, the jobs by hand at least once. Runs alternate.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.pipeline_jobs import COUNTS, EVENTS, counts_job
from bench.pipelines import PARTITIONS, new_producer, pipeline_command, produce
from tests.brokers import run_ottla_broker
from tests.ports import free_port

ROWS: Final = 60_000
TIMEOUT_S: Final = 300.0
EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "flights"
MARK: Final = "OTTLA_FIRST_ROW"
"""Environment variable that marks the processes of a run."""
PROCESSES: Final = (
    ("org.apache.spark", "Spark's JVM"),
    ("pyspark.daemon", "Python of the executor"),
    ("ottla_spark", "driver"),
    ("spark_by_hand", "driver"),
    ("ottla_broker", "broker"),
    ("load.py", "load"),
    (" produce ", "load"),
    (" up ", "ottla up"),
)
"""Part of the command line → name of the process."""


@dataclass(frozen=True, slots=True)
class FirstRow:
    """cpu_s: processor seconds by name of the process."""

    seconds: float
    cpu_s: Mapping[str, float]

    def __str__(self) -> str:
        used = ", ".join(f"{name} {seconds:.1f}" for name, seconds in sorted(self.cpu_s.items()))
        return f"first row after {self.seconds:.1f} s; processor seconds {sum(self.cpu_s.values()):.1f}: {used}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("up", "beside"))
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for _ in range(options.runs):
        if options.what == "up":
            print(measure_up(), flush=True)
        else:
            for name, found in measure_beside():
                print(f"{name}: {found}", flush=True)


def measure_up() -> FirstRow:
    with tempfile.TemporaryDirectory(prefix="bench-first-row-", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        shutil.copytree(EXAMPLE, folder / "flights")
        cluster = folder / "flights" / "cluster.yaml"
        cluster.write_text(cluster.read_text().replace("9092", str(port)))
        command = [sys.executable, "-m", "ottla_operator.cli", "up", str(folder / "flights")]
        environment = {"OTTLA_HOME": str(folder / "home")}
        return measure_command(command, f"127.0.0.1:{port}", "hourly-delays", 3, environment)


def measure_beside() -> Iterator[tuple[str, FirstRow]]:
    with tempfile.TemporaryDirectory(prefix="bench-first-row-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with run_ottla_broker(folder=folder / "broker", test_settings=False) as broker:
            address = broker.bootstrap
            admin = AdminClient({"bootstrap.servers": address})
            create_topic(admin, EVENTS)
            write_rows(address)
            by_hand = [sys.executable, "-m", "bench.spark_by_hand", "counts", "--bootstrap", address]
            for side in ("pipeline", "by hand", "by hand, Spark's own configuration"):
                own = folder / side.replace(" ", "-").replace(",", "").replace("'", "")
                own.mkdir()
                create_topic(admin, COUNTS)
                if side == "pipeline":
                    command = pipeline_command(address, counts_job("exactlyOnce"), own)
                else:
                    command = [*by_hand, "--folder", str(own), *(["--defaults"] if "own" in side else [])]
                yield side, measure_command(command, address, COUNTS, PARTITIONS, {})
                admin.delete_topics([COUNTS])[COUNTS].result()


def write_rows(address: str) -> None:
    producer = new_producer(address)
    for number in range(ROWS):
        produce(producer, number, 0.0)
    producer.flush()


def create_topic(admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()


def measure_command(
    command: list[str], address: str, topic: str, partitions: int, environment: Mapping[str, str]
) -> FirstRow:
    """Runs the command until the topic has a record. `environment`: further variables. Raises
    SystemExit if the command ends before, or after TIMEOUT_S.
    """
    mark = f"{time.time_ns()}"
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        env={**with_byte_code(os.environ), **environment, MARK: mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        with open_consumer(address, topic, partitions) as consumer:
            while process.poll() is None and time.monotonic() - began < TIMEOUT_S:
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    return FirstRow(time.monotonic() - began, processor_seconds(mark))
        raise SystemExit(f"no row of {command}: it ended or ran for {TIMEOUT_S:.0f} s")
    finally:
        process.terminate()
        process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the JVM, which may write to the topic of the next run


def with_byte_code(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which Python caches byte code, as it does for an installed package."""
    return {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def open_consumer(address: str, topic: str, partitions: int) -> Iterator[Any]:
    """A consumer of all partitions from their start. The broker and the topic may come later."""
    settings = {"bootstrap.servers": address, "group.id": "first-row", "isolation.level": "read_committed"}
    quick = {"reconnect.backoff.max.ms": 500, "topic.metadata.refresh.fast.interval.ms": 100, "fetch.wait.max.ms": 20}
    consumer = Consumer({**settings, **quick, "log_level": 0})
    consumer.assign([TopicPartition(topic, at, 0) for at in range(partitions)])
    try:
        yield consumer
    finally:
        consumer.close()


def processor_seconds(mark: str) -> dict[str, float]:
    """Processor seconds of the processes with this mark, by name. Processes that have ended count
    if their parent has waited for them.
    """
    found: dict[str, float] = defaultdict(float)
    for process in Path("/proc").iterdir():
        try:
            if f"{MARK}={mark}".encode() not in (process / "environ").read_bytes():
                continue
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # a process that has ended, or another file
        name = next((name for part, name in PROCESSES if part in command), "others")
        found[name] += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return dict(found)


if __name__ == "__main__":
    main()
