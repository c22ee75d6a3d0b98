"""Time of a batch that joins events with a large reference table, of which little has changed.

    python -m bench.reference_tables --bootstrap HOST:PORT --rows 1000000

Each round changes 100 rows of the table and then writes 300 events, which one batch joins with the
table. Topics are created and deleted again. Prints the time of the first batch, which reads the
table, and the times of the batches of the rounds, in ms, as the progress log has them.

With `--python`, the pipelines of the named installations run instead of this one's, one after the
other, on the same topics: `--python /before/.venv/bin/python --python .venv/bin/python`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

CHANGES: Final = 100
EVENTS_OF_ROUND: Final = 300
PARTITIONS: Final = 2
EVENTS, ITEMS = "bench-table-events", "bench-table-items"
POLL_INTERVAL_S: Final = 0.05
TIMEOUT_S: Final = 900.0
SPEC: Final = {
    "clusterRef": {"name": "bench"},
    "sources": {
        "events": {"topic": EVENTS, "format": {"type": "json", "schema": "id BIGINT, item STRING"}},
        "items": {
            "topic": ITEMS,
            "mode": "table",
            "key": "code",
            "format": {"type": "json", "schema": "name STRING, price DOUBLE, weight INT"},
        },
    },
    "transforms": [{"name": "priced", "sql": "SELECT id, name, price FROM events LEFT JOIN items ON item = code"}],
    "sinks": [{"from": "priced", "parquet": {"path": "out"}}],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--python", action="append", help="interpreter that runs a pipeline (default: this one)")
    options = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    topics = [NewTopic(EVENTS, PARTITIONS, 1), NewTopic(ITEMS, PARTITIONS, 1, config={"cleanup.policy": "compact"})]
    for created in admin.create_topics(topics).values():
        created.result()
    bench = Bench(options.bootstrap, options.rows)
    try:
        bench.write_items(range(options.rows), "first")
        for python in options.python or [sys.executable]:
            with tempfile.TemporaryDirectory(prefix="bench-tables-") as folder:
                first_ms, rounds_ms = bench.measure(python, options.rounds, Path(folder))
            print(f"{python}: {options.rows:,} rows: first batch {first_ms:,} ms")
            print(
                f"{CHANGES} changes a batch: median {statistics.median(rounds_ms):,.0f} ms of {rounds_ms}", flush=True
            )
    finally:
        for deleted in admin.delete_topics([EVENTS, ITEMS]).values():
            deleted.result()


class Bench:
    """Writes the table and the events, and measures pipelines on them. Rounds are numbered across
    all pipelines, because they share the topics.
    """

    def __init__(self, bootstrap: str, rows: int) -> None:
        self._bootstrap, self._rows = bootstrap, rows
        self._rounds = 0
        limits = {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000, "compression.type": "lz4"}
        self._producer = Producer({"bootstrap.servers": bootstrap, **limits})

    def measure(self, python: str, rounds: int, folder: Path) -> tuple[int, list[int]]:
        """Time of a pipeline's first batch and of each round's, in ms."""
        pipeline, progress = folder / "pipeline.yaml", folder / "progress.jsonl"
        resource = {"apiVersion": "ottla.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "bench"}, "spec": SPEC}
        pipeline.write_text(json.dumps(resource))
        self._write_events()
        command = [python, "-m", "ottla_spark", "run", "--pipeline", str(pipeline), "--bootstrap", self._bootstrap]
        files = ["--checkpoint", str(folder / "checkpoint"), "--progress", str(progress)]
        process = subprocess.Popen([*command, *files])
        try:
            first_ms = wait_for_rows(progress, self._rounds * EVENTS_OF_ROUND, process)
            rounds_ms = []
            for _ in range(rounds):
                changed = (self._rounds * 7919 + step * 104_729 for step in range(CHANGES))
                self.write_items((it % self._rows for it in changed), f"round {self._rounds}")
                self._write_events()
                rounds_ms.append(wait_for_rows(progress, self._rounds * EVENTS_OF_ROUND, process))
            return first_ms, rounds_ms
        finally:
            process.terminate()
            process.wait()

    def write_items(self, numbers: Iterable[int], name: str) -> None:
        for number in numbers:
            value = f'{{"name": "{name} {number}", "price": {number / 100}, "weight": {number % 1000}}}'
            self._produce(ITEMS, f"item-{number}", value)
        self._producer.flush()

    def _write_events(self) -> None:
        """Writes the events of the next round. Their key is empty, so librdkafka chooses the
        partition.
        """
        for number in range(EVENTS_OF_ROUND):
            item = (self._rounds * 7919 + number * 104_729) % self._rows
            event = {"id": self._rounds * EVENTS_OF_ROUND + number, "item": f"item-{item}"}
            self._produce(EVENTS, "", json.dumps(event))
        self._producer.flush()
        self._rounds += 1

    def _produce(self, topic: str, key: str, value: str) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key)
                return
            except BufferError:
                self._producer.poll(0.1)


def wait_for_rows(progress: Path, rows: int, process: subprocess.Popen[bytes]) -> int:
    """Waits until `rows` rows were written. Returns the time in ms of the batches that wrote the
    last EVENTS_OF_ROUND of them.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        lines = progress.read_text().splitlines(keepends=True) if progress.exists() else []
        written, last_ms = 0, 0
        for batch in map(json.loads, (line for line in lines if line.endswith("\n"))):
            if batch.get("written"):
                last_ms += int(batch["batchMs"]) if written + batch["written"] > rows - EVENTS_OF_ROUND else 0
                written += batch["written"]
        if written >= rows:
            return last_ms
        time.sleep(POLL_INTERVAL_S)
    raise SystemExit(f"no {rows} rows: the pipeline ended or ran for {TIMEOUT_S:.0f} s; see its error above")


if __name__ == "__main__":
    main()
