"""Writes metrics and log lines of the cluster's brokers to its topics `metrics` and `logs`.

`ottla up examples/monitoring` runs this program as long as the cluster; `python
examples/monitoring/load.py [FOLDER]` runs it beside another cluster at OTTLA_BOOTSTRAP. It writes
the records itself and prints none.

The metrics are read from `/metrics` of each broker every five seconds, without the buckets of
histograms. The log lines are read from the files of `ottla up` in FOLDER, `.ottla/monitored` by
default. A broker that does not answer is left out until it does.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

BOOTSTRAP: Final = "127.0.0.1:9092"
FOLDER: Final = ".ottla/monitored"
METRICS_PORTS: Final = {1: 10092, 2: 10093, 3: 10094}
"""By the broker's id."""
INTERVAL_S: Final = 5.0
_TIMEOUT_S: Final = 2.0
_LOG_LINE: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ([A-Z]+) ([\w.]+): (.*)")


class Sample(msgspec.Struct, frozen=True):
    """A value of a metric. `at`: UTC."""

    at: datetime
    broker: int
    name: str
    labels: dict[str, str]
    value: float


class LogLine(msgspec.Struct, frozen=True):
    """A line of a broker's log. `at`: UTC."""

    at: datetime
    broker: int
    level: str
    logger: str
    message: str


def samples(text: str, broker: int, at: datetime) -> Iterator[Sample]:
    """The samples of a page of metrics, without the buckets of histograms and without NaN."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_bucket") and sample.value == sample.value:
                yield Sample(at, broker, sample.name, dict(sample.labels), float(sample.value))


def log_lines(lines: Iterable[str], broker: int) -> Iterator[LogLine]:
    """Lines with time, level and logger. Others, those of a stack trace for example, are left
    out.
    """
    for line in lines:
        if (found := _LOG_LINE.match(line)) is not None:
            time_text, level, logger, message = found.groups()
            at = datetime.strptime(f"{time_text}000", "%Y-%m-%d %H:%M:%S,%f").astimezone(UTC)
            yield LogLine(at, broker, level, logger, message)


class LogReader:
    """Reads the lines that were added to a file, from its beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[str]:
        """Complete lines; none if there is no file yet."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            if self._path.stat().st_size < self._offset:  # another file: `ottla up` has renamed it
                self._offset = 0
            file.seek(self._offset)
            text, separator, _ = file.read().rpartition(b"\n")
        self._offset += len(text) + len(separator)
        return text.decode(errors="replace").splitlines()


def scrape(broker: int, port: int) -> list[Sample]:
    """The broker's metrics; none if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_TIMEOUT_S) as page:
            return list(samples(page.read().decode(), broker, datetime.now(UTC)))
    except OSError as error:
        print(f"broker {broker}: no metrics: {error}", file=sys.stderr)
        return []


def main(bootstrap: str, folder: str = FOLDER) -> None:
    """Runs until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", "enable.idempotence": True})
    readers = {broker: LogReader(Path(folder) / str(broker) / "output.log") for broker in METRICS_PORTS}
    try:
        while True:
            for broker, port in METRICS_PORTS.items():
                for sample in scrape(broker, port):
                    producer.produce("metrics", msgspec.json.encode(sample), str(broker))
                for line in log_lines(readers[broker].read(), broker):
                    producer.produce("logs", msgspec.json.encode(line), str(broker))
            producer.poll(0)
            time.sleep(INTERVAL_S)
    finally:
        producer.flush(10)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(os.environ.get("OTTLA_BOOTSTRAP", BOOTSTRAP), *sys.argv[1:])
