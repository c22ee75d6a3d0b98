"""Logs of gigabytes: read from disk, compacted, recovered after a kill."""

import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import programs
from bench.load_size import LoadSize
from bench.one_broker import RunBroker, is_any_selected, measure_start_s
from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.waiting import eventually

KIB = 1024
ACKS = 500  # of one measurement of the latency
COMPACTED_WITHIN_S = 300.0
CLEANER = {"log_cleaner_backoff_ms": 100}  # Kafka's default of 15 s would be measured instead
SEGMENT_BYTES = 64 << 20


def measure_large_log(run_broker: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    """A log is written, recovered after SIGKILL, and its first part read from disk."""
    found: dict[str, float] = {}
    with run_broker(test_settings=False) as broker:
        for topic in ("large", "latency"):
            rd.create_topic(broker.bootstrap, topic)
        size = load_size.recovered_bytes if "recover" in selected else load_size.cold_read_bytes
        programs.produce(broker.bootstrap, "large", int(size // KIB), KIB)
        if "recover" in selected:
            broker.kill()
            found["recover"] = measure_start_s(broker, "latency")
        if is_any_selected(selected, "cold-read"):
            drop_page_cache(broker.log_dir)
            with measure_acks_meanwhile(broker) as p99s:
                records = int(load_size.cold_read_bytes // KIB)
                found["cold-read-rate"] = programs.consume(broker.bootstrap, "large", records).mb_per_s
            found["cold-read-p99"] = statistics.median(p99s)
    return found


def measure_compaction(run_broker: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    """A log of repeated keys is written, then the topic becomes a compacted one."""
    with run_broker(test_settings=False, **CLEANER) as broker:
        rd.create_topic(broker.bootstrap, "compacted", segment_bytes=SEGMENT_BYTES)
        rd.create_topic(broker.bootstrap, "latency")
        programs.produce(broker.bootstrap, "compacted", load_size.compacted, KIB, keys=load_size.compacted_keys)
        folder = broker.log_dir / "compacted-0"
        os.sync()
        written = _log_bytes(folder)
        left = load_size.compacted_keys * KIB * 1.5 + SEGMENT_BYTES  # the active segment is not cleaned
        with measure_acks_meanwhile(broker) as p99s:
            began = time.monotonic()
            _make_compacted(broker.bootstrap, "compacted")
            eventually(lambda: _log_bytes(folder) <= left, within_s=COMPACTED_WITHIN_S, message="the log is compacted")
            took = time.monotonic() - began
    return {"compaction-rate": written / took / 1e6, "compaction-p99": statistics.median(p99s)}


@contextmanager
def measure_acks_meanwhile(broker: BrokerProcess) -> Iterator[list[float]]:
    """A producer of one record at a time runs inside the block. Yields a list to which the 99th
    percentile of each `ACKS` acknowledgements is added, in ms.
    """
    p99s: list[float] = []
    is_over = threading.Event()

    def produce() -> None:
        while not p99s or not is_over.is_set():
            p99s.append(programs.measure_latency(broker.port, "latency", ACKS, KIB).p99)

    programs.measure_latency(broker.port, "latency", ACKS, KIB)
    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield p99s
    finally:
        is_over.set()
        thread.join()


def drop_page_cache(folder: Path) -> None:
    """Writes dirty pages to disk and drops all pages of the segments below `folder` from memory."""
    os.sync()
    for path in folder.glob("**/*.log"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _make_compacted(bootstrap: str, topic: str) -> None:
    client = rd.admin_client(bootstrap)  # keep a reference until the results
    for key, value in {"min.cleanable.dirty.ratio": "0.01", "cleanup.policy": "compact"}.items():
        change = rd.config_change(topic, key, value)
        client.incremental_alter_configs([change])[change].result(20)


def _log_bytes(folder: Path) -> int:
    """Bytes of the segments that are not deleted."""
    sizes = []
    for path in folder.glob("*.log"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # renamed meanwhile
            continue
    return sum(sizes)
