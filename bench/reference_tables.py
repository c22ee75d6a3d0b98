"""Time of a batch that joins events with a large reference table, of which little has changed.

    python -m bench.reference_tables --bootstrap HOST:PORT --rows 1000000

Each round changes 100 rows of the table and then writes 100 events, which one batch joins with the
table. Topics are created and deleted again. Prints the time of the first batch, which reads the
table, and the times of the batches of the rounds, in ms, as the progress log has them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

CHANGES: Final = 100
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
    options = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    topics = [NewTopic(EVENTS, PARTITIONS, 1), NewTopic(ITEMS, PARTITIONS, 1, config={"cleanup.policy": "compact"})]
    for created in admin.create_topics(topics).values():
        created.result()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-tables-") as folder:
            first_ms, rounds_ms = measure(options.bootstrap, options.rows, options.rounds, Path(folder))
    finally:
        for deleted in admin.delete_topics([EVENTS, ITEMS]).values():
            deleted.result()
    print(f"{options.rows:,} rows: first batch {first_ms:,} ms")
    print(f"{CHANGES} changes a batch: median {statistics.median(rounds_ms):,.0f} ms of {sorted(rounds_ms)}")


def measure(bootstrap: str, rows: int, rounds: int, folder: Path) -> tuple[int, list[int]]:
    """Time of the first batch and of each round's, in ms."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    write_items(producer, range(rows), "first")
    pipeline, progress = folder / "pipeline.yaml", folder / "progress.jsonl"
    resource = {"apiVersion": "ottla.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "bench"}, "spec": SPEC}
    pipeline.write_text(json.dumps(resource))
    write_events(producer, 0, rows)
    command = [sys.executable, "-m", "ottla_spark", "run", "--pipeline", str(pipeline), "--bootstrap", bootstrap]
    files = ["--checkpoint", str(folder / "checkpoint"), "--progress", str(progress)]
    process = subprocess.Popen([*command, *files])
    try:
        first_ms = await_rows(progress, CHANGES, process)
        rounds_ms = []
        for number in range(1, rounds + 1):
            changed = (number * 7919 + step * 104_729 for step in range(CHANGES))
            write_items(producer, (it % rows for it in changed), f"round {number}")
            write_events(producer, number, rows)
            rounds_ms.append(await_rows(progress, (number + 1) * CHANGES, process))
        return first_ms, rounds_ms
    finally:
        process.terminate()
        process.wait()


def write_items(producer: Producer, numbers: Any, name: str) -> None:
    for number in numbers:
        value = {"name": f"{name} {number}", "price": number / 100, "weight": number % 1000}
        produce(producer, ITEMS, f"item-{number}", value)
    producer.flush()


def write_events(producer: Producer, round_: int, rows: int) -> None:
    """Events of one partition. `round_`: makes their ids unique."""
    for number in range(CHANGES):
        value = {"id": round_ * CHANGES + number, "item": f"item-{(round_ * 7919 + number * 104_729) % rows}"}
        produce(producer, EVENTS, "", value)
    producer.flush()


def produce(producer: Producer, topic: str, key: str, value: dict[str, Any]) -> None:
    while True:
        try:
            producer.produce(topic, json.dumps(value), key)
            return
        except BufferError:
            producer.poll(0.1)


def await_rows(progress: Path, rows: int, process: subprocess.Popen[bytes]) -> int:
    """Waits until so many rows were written. Returns the time in ms of the batches that wrote the
    last CHANGES of them.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        lines = progress.read_text().splitlines(keepends=True) if progress.exists() else []
        written, last_ms = 0, 0
        for batch in map(json.loads, (line for line in lines if line.endswith("\n"))):
            if batch.get("written"):
                last_ms += int(batch["batchMs"]) if written >= rows - CHANGES else 0
                written += batch["written"]
        if written >= rows:
            return last_ms
        time.sleep(POLL_INTERVAL_S)
    raise SystemExit(f"no {rows} rows within {TIMEOUT_S:.0f} s; see the pipeline's error above")


if __name__ == "__main__":
    main()
