"""The lines of the benchmark of one broker, with their requirements."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Line:
    """A measured value and its requirement.

    `ratio` bounds Ottla's median divided by Kafka's: from below if higher is better, else from
    above. `at_most` bounds Ottla's median from above, in `unit`.
    """

    name: str
    what: str
    unit: str
    better: Literal["higher", "lower"]
    ratio: float | None = None
    at_most: float | None = None


def _many_producers(connections: int) -> tuple[Line, ...]:
    name, what = f"many-producers-{connections}", f"{connections:,} connections, one record of 100 B in flight each"
    return (
        Line(f"{name}-rate", f"{what}, acks=all", "requests/s", "higher", 1.0),
        Line(f"{name}-p50", f"{what}: ack, median", "ms", "lower", 1.0),
        Line(f"{name}-p99", f"{what}: ack, 99th percentile", "ms", "lower", 1.0),
        Line(f"{name}-cpu", f"{what}: the broker's processor time", "µs/request", "lower", None, 30.0),
    )


LINES = (
    Line("produce-1k", "produce 1 KiB, librdkafka, acks=all, one partition", "MB/s", "higher", 1.5),
    Line("produce-100", "produce 100 B, librdkafka, acks=all, one partition", "MB/s", "higher", 1.1),
    Line("produce-java", "produce 100 B, Java ProducerPerformance, its default batches", "MB/s", "higher", 1.0),
    Line("produce-idempotent", "produce 1 KiB, librdkafka, idempotent", "MB/s", "higher"),
    Line("produce-lz4", "produce 1 KiB, librdkafka, lz4", "MB/s", "higher"),
    Line("produce-zstd", "produce 1 KiB, librdkafka, zstd", "MB/s", "higher"),
    Line("consume-1k", "consume 1 KiB, librdkafka", "MB/s", "higher", 1.4),
    Line("consume-100", "consume 100 B, librdkafka", "MB/s", "higher", 1.4),
    Line("latency-p50", "ack of one record at a time, median", "ms", "lower", 0.6),
    Line("latency-p99", "ack of one record at a time, 99th percentile", "ms", "lower", 0.5),
    Line("fan-out", "20 consumers of one busy topic: the broker's processor time", "CPU s/GB", "lower", 0.5),
    Line("start", "start of the process to the first acknowledged record", "s", "lower", 1 / 3, 1.0),
    Line("memory-idle", "resident memory, idle after the start", "MiB", "lower", None, 60.0),
    Line("memory-load", "resident memory after the load of the lines above", "MiB", "lower", 1 / 4),
    Line("partitions-start", "2,000 partitions: restart to the first acknowledged record", "s", "lower", None, 3.0),
    Line("partitions-cpu", "2,000 partitions: idle, share of a core over 10 s", "%", "lower", None, 2.0),
    *_many_producers(50),
    *_many_producers(500),
    *_many_producers(2000),
    Line("connections-memory", "10,000 idle connections: resident memory of each", "KiB", "lower", 1.0),
    Line("connections-cpu", "10,000 idle connections: share of a core over 10 s", "%", "lower", None, 2.0),
)
