"""Throughput of pipelines beside the same jobs written by hand, in PySpark and in Kafka Streams;
their latency from write to result; and their memory.

    python -m bench.pipelines throughput --rows 1000000 --runs 3
    python -m bench.pipelines latency --seconds 40
    python -m bench.pipelines memory --seconds 30

throughput: rows per second of all batches but the first two, in which Spark compiles its code, and
the processor seconds of the whole run. Runs of the versions alternate; figures are medians.
Kafka Streams has no batches: every BATCH_ROWS records that it commits count as one.

latency: a producer writes 10,000 rows per second, a pipeline copies them to another topic, and a
consumer (read_committed) reads them there. Prints p50 and p99 of the time from the moment at which
a row was to be written until the consumer has it, after a warm-up.

memory: memory of the Python processes that write to a topic exactly once, idle and while the
producer writes as above.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.pipeline_jobs import (
    COPIES,
    COUNTS,
    EVENTS,
    WITHOUT_ARCHIVE,
    copies_job,
    counts_job,
    keys_job,
    live_copies_job,
    rows_job,
)
from bench.python_processes import python_processes
from tests.brokers import run_ottla_broker

JOBS: Final = ("rows", "counts", "keys", "copies")
PARTITIONS: Final = 2
WARM_BATCHES: Final = 2
ROWS_PER_S: Final = 10_000
STEP_S: Final = 0.01
WARM_S: Final = 20.0
NOTE: Final = "x" * 40
LATENCY_CASES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("exactlyOnce", {}),
    ("atLeastOnce", {}),
    ("exactlyOnce", {"interval": "1s"}),
)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run. cpu_s: processor seconds of all its processes."""

    rows_per_s: float
    cpu_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    throughput = commands.add_parser("throughput")
    throughput.add_argument("--rows", type=int, default=1_000_000)
    throughput.add_argument("--runs", type=int, default=3)
    throughput.add_argument("--jobs", nargs="*", choices=JOBS, default=JOBS)
    for name, seconds in (("latency", 40.0), ("memory", 30.0)):
        commands.add_parser(name).add_argument("--seconds", type=float, default=seconds)
    options = parser.parse_args()
    with run_ottla_broker(test_settings=False) as broker:
        address = broker.bootstrap
        topics = [NewTopic(it, PARTITIONS, 1) for it in (EVENTS, COUNTS, COPIES)]
        admin = AdminClient({"bootstrap.servers": address})
        for created in admin.create_topics(topics).values():
            created.result()
        if options.command == "throughput":
            measure_throughput(address, options.rows, options.runs, options.jobs)
        elif options.command == "latency":
            measure_latency(address, options.seconds)
        else:
            measure_memory(address, options.seconds)


def measure_throughput(bootstrap: str, rows: int, runs: int, jobs: Sequence[str]) -> None:
    producer = new_producer(bootstrap)
    for number in range(rows):
        produce(producer, number, 0.0)
    producer.flush()
    os.sync()  # otherwise the first side's checkpoint waits for the disk to write the records
    sides: dict[str, Callable[[], Run]] = {
        "rows, pipeline": lambda: run_pipeline(bootstrap, rows_job()),
        "rows, by hand": lambda: run_counterpart("bench.spark_by_hand", bootstrap, "rows", "--no-archive"),
        "counts, pipeline": lambda: run_pipeline(bootstrap, counts_job()),
        "counts, by hand": lambda: run_counterpart("bench.spark_by_hand", bootstrap, "counts", "--no-archive"),
        "counts, pipeline, exactly once": lambda: run_pipeline(bootstrap, counts_job("exactlyOnce")),
        "counts, by hand, exactly once": lambda: run_counterpart(
            "bench.spark_by_hand", bootstrap, "counts-once", "--no-archive"
        ),
        "counts, by hand, exactly once, with our daemon": lambda: run_counterpart(
            "bench.spark_by_hand", bootstrap, "counts-once", "--no-archive", "--our-daemon"
        ),
        "copies, pipeline": lambda: run_pipeline(bootstrap, copies_job("atLeastOnce")),
        "copies, pipeline, exactly once": lambda: run_pipeline(bootstrap, copies_job("exactlyOnce")),
        "keys, pipeline": lambda: run_pipeline(bootstrap, keys_job()),
        "keys, Kafka Streams": lambda: run_counterpart("bench.kafka_streams", bootstrap, "--rows", str(rows)),
    }
    found: dict[str, list[Run]] = {name: [] for name in sides if name.split(",")[0] in jobs}
    for _ in range(runs):
        for name in found:
            found[name].append(sides[name]())
            print(name, found[name][-1], flush=True)
    for name, of_side in found.items():
        speed = statistics.median(it.rows_per_s for it in of_side)
        cpu_s = statistics.median(it.cpu_s for it in of_side)
        print(f"{name}: {speed:,.0f} rows/s, {cpu_s:.1f} s of processor time (medians of {runs})")


def run_pipeline(bootstrap: str, spec: dict[str, Any]) -> Run:
    with tempfile.TemporaryDirectory(prefix="bench-pipeline-") as name:
        folder = Path(name)
        spark = {"conf": spec["spark"]["conf"] | WITHOUT_ARCHIVE}
        output = run_measured(pipeline_command(bootstrap, spec | {"spark": spark}, folder))
        lines = (folder / "progress.jsonl").read_text().splitlines()
        return to_run([it for it in map(json.loads, lines) if it.get("rows")], output)


def run_counterpart(program: str, bootstrap: str, *arguments: str) -> Run:
    """Runs the same job in another program, which prints a JSON line for each batch."""
    with tempfile.TemporaryDirectory(prefix="bench-beside-") as folder:
        command = [sys.executable, "-m", program, *arguments, "--bootstrap", bootstrap, "--folder", folder]
        output = run_measured(command)
        return to_run([json.loads(line) for line in output if line.startswith("{")], output)


def run_measured(command: list[str]) -> list[str]:
    """Runs the command. Returns the lines of its standard output and, as the last one, its
    processor time in seconds.
    """
    measured = [sys.executable, "-m", "bench.process_tree", *command]
    done = subprocess.run(measured, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.splitlines()


def to_run(batches: list[dict[str, Any]], output: list[str]) -> Run:
    warm = batches[WARM_BATCHES:]
    seconds = sum(it["batchMs"] for it in warm) / 1000
    return Run(sum(it["rows"] for it in warm) / seconds, float(output[-1]))


def pipeline_command(bootstrap: str, spec: dict[str, Any], folder: Path) -> list[str]:
    resource = {"apiVersion": "ottla.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "bench"}, "spec": spec}
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(resource))
    command = [sys.executable, "-m", "ottla_spark", "run", "--pipeline", str(file), "--bootstrap", bootstrap]
    return [*command, "--checkpoint", str(folder / "checkpoint"), "--progress", str(folder / "progress.jsonl")]


def measure_latency(bootstrap: str, seconds: float) -> None:
    for delivery, trigger in LATENCY_CASES:
        with tempfile.TemporaryDirectory(prefix="bench-latency-") as folder:
            command = pipeline_command(bootstrap, live_copies_job(delivery, trigger), Path(folder))
            latencies = sorted(measure_case(bootstrap, command, Path(folder) / "progress.jsonl", seconds))
        p50, p99 = (latencies[int(len(latencies) * share)] * 1000 for share in (0.5, 0.99))
        how = f"trigger {trigger or 'one batch after the other'}"
        print(f"{delivery}, {how}: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms of {len(latencies):,} rows", flush=True)


def measure_case(bootstrap: str, command: list[str], progress: Path, seconds: float) -> list[float]:
    """Latencies in seconds while the command runs."""
    process = subprocess.Popen(command)
    try:
        wait_until_running(progress, process)
        with writing(bootstrap):
            return read_latencies(bootstrap, seconds)
    finally:
        process.terminate()
        process.wait()


def measure_memory(bootstrap: str, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-memory-") as folder:
        progress = Path(folder) / "progress.jsonl"
        process = subprocess.Popen(pipeline_command(bootstrap, live_copies_job("exactlyOnce", {}), Path(folder)))
        try:
            wait_until_running(progress, process)
            time.sleep(seconds / 2)
            print_memory("idle", process.pid)
            with writing(bootstrap):
                for _ in range(3):
                    time.sleep(seconds / 3)
                    print_memory(f"{ROWS_PER_S:,} rows per second", process.pid)
        finally:
            process.terminate()
            process.wait()


def print_memory(when: str, driver: int) -> None:
    for it in python_processes(driver):
        print(f"{when}: {it.role}: PSS {it.pss_mib:.0f} MiB, RSS {it.rss_mib:.0f} MiB", flush=True)


def wait_until_running(progress: Path, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        if progress.exists() and '"state": "running"' in progress.read_text():
            return
        time.sleep(0.1)
    raise SystemExit("the pipeline has ended")


@contextmanager
def writing(bootstrap: str) -> Iterator[None]:
    """While the block runs, a thread writes ROWS_PER_S rows per second, some of them every STEP_S
    seconds.
    """
    stop = threading.Event()

    def write() -> None:
        producer, number, began = new_producer(bootstrap, linger_ms=5), 0, time.time()
        while not stop.is_set():
            due = int((time.time() - began) * ROWS_PER_S)
            for at in range(number, due):
                produce(producer, at, began + at / ROWS_PER_S)
            number = max(number, due)
            producer.poll(0)
            time.sleep(STEP_S)
        producer.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def read_latencies(bootstrap: str, seconds: float) -> list[float]:
    """Seconds from the time in `note` of each row until it is read, after WARM_S."""
    settings = {"bootstrap.servers": bootstrap, "group.id": f"bench-{time.time_ns()}", "fetch.wait.max.ms": 10}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "latest"})
    consumer.subscribe([COPIES])
    latencies: list[float] = []
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < WARM_S + seconds:
        messages, now = consumer.consume(10_000, timeout=0.005), time.time()
        if elapsed >= WARM_S:
            values = (it.value() for it in messages if it.error() is None)
            latencies += [now - float(json.loads(value)["note"]) for value in values if value is not None]
    consumer.close()
    return latencies


def new_producer(bootstrap: str, linger_ms: int = 20) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": linger_ms, "queue.buffering.max.messages": 1_000_000})


def produce(producer: Producer, number: int, due_s: float) -> None:
    """Writes row `number` to EVENTS. `due_s`: the time at which it is to be written, which its
    column `note` then contains; 0: `note` is NOTE.
    """
    value = {
        "id": number,
        "item": f"item-{number * 7919 % 1000}",
        "price": number % 1000 / 10,
        "at": "2026-11-01T00:00:00Z",
        "note": repr(due_s) if due_s else NOTE,
    }
    while True:
        try:
            producer.produce(EVENTS, json.dumps(value), value["item"])
            return
        except BufferError:
            producer.poll(0.1)


if __name__ == "__main__":
    main()
