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


def _two_workers(connections: int) -> tuple[Line, ...]:
    name, what = f"two-workers-{connections}", f"{connections:,} connections as above, two workers of one machine"
    return (
        Line(f"{name}-rate", f"{what}, acks=all", "requests/s", "higher", 1.0),
        Line(f"{name}-p50", f"{what}: ack, median", "ms", "lower", 1.0),
        Line(f"{name}-p99", f"{what}: ack, 99th percentile", "ms", "lower", 1.0),
    )


def under_load_lines(share: int) -> tuple[Line, ...]:
    what = f"1 KiB at {share} % of the rate that Kafka sustains, from when a record is due until it is read"
    return tuple(
        Line(f"latency-under-load-{share}-{name}", f"{what}: {it}", "ms", "lower", 0.5 if name == "p99" else None)
        for name, it in (("p50", "median"), ("p99", "99th percentile"), ("p99.9", "99.9th percentile"))
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
    *_two_workers(500),
    *_two_workers(2000),
    Line("connections-memory", "10,000 idle connections: resident memory of each", "KiB", "lower", 1.0),
    Line("connections-cpu", "10,000 idle connections: share of a core over 10 s", "%", "lower", None, 2.0),
    Line("connections-new-p50", "1,000 new connections/s: from due until a first ack, median", "ms", "lower", 1.0),
    Line("connections-new-p99", "1,000 new connections/s: the same, 99th percentile", "ms", "lower", 1.0),
    Line("connections-new-cpu", "1,000 new connections/s: processor time of each", "µs", "lower", 1.0),
    Line("many-consumers-rate", "500 consumers of 1,000 records/s: deliveries", "records/s", "higher", 1.0),
    Line("many-consumers-p50", "500 consumers of 1,000 records/s: from due until received, median", "ms", "lower", 1.0),
    Line("many-consumers-p99", "500 consumers of 1,000 records/s: the same, 99th percentile", "ms", "lower", 1.0),
    Line("many-consumers-cpu", "500 consumers: the broker's processor time for each delivery", "µs", "lower", 1.0),
    Line("group-of-200-start", "a group of 200 members joins until every partition has an owner", "s", "lower", 1.0),
    Line("group-of-200-p50", "200 members, 1,000 records/s: from due until received, median", "ms", "lower", 1.0),
    Line("group-of-200-p99", "200 members, 1,000 records/s: the same, 99th percentile", "ms", "lower", 1.0),
    Line("group-of-200-cpu", "200 members: the broker's processor time for each record", "µs", "lower", 1.0),
    *under_load_lines(10),
    *under_load_lines(50),
    *under_load_lines(80),
    Line("wide-produce", "produce 100 B to 2,000 partitions in turn, librdkafka", "MB/s", "higher", 1.0),
    Line("wide-consume", "consume 2,000 partitions, librdkafka: without fetch sessions", "MB/s", "higher", 1.0),
    Line("wide-consume-sessions", "consume 2,000 partitions, Java: with fetch sessions", "MB/s", "higher", 1.0),
    Line("tls-produce", "produce 1 KiB over TLS, librdkafka", "MB/s", "higher", 1.0),
    Line("tls-consume", "consume 1 KiB over TLS, librdkafka", "MB/s", "higher", 1.0),
    Line("tls-cpu", "consume 1 KiB over TLS: the broker's processor time", "CPU s/GB", "lower", 1.0),
    Line("sasl-produce", "produce 1 KiB after a login (PLAIN), librdkafka", "MB/s", "higher", 1.0),
    Line("sasl-consume", "consume 1 KiB after a login (PLAIN), librdkafka", "MB/s", "higher", 1.0),
    Line(
        "cold-read-rate",
        "consume 8 GB that are not in the page cache, while one producer writes",
        "MB/s",
        "higher",
        1.0,
    ),
    Line("cold-read-p99", "the same: ack of that producer, 99th percentile", "ms", "lower", 1.0),
    Line("recover", "start after SIGKILL with a log of 20 GB to the first acknowledged record", "s", "lower", 1.0),
    Line("compaction-rate", "compact a log of 2 GB with 100,000 keys", "MB/s", "higher", 1.0),
    Line("compaction-p99", "the same: ack of a producer meanwhile, 99th percentile", "ms", "lower", 1.0),
    Line("floor-small-rate", "50 connections, 100 B: share of the rate of a loop in C", "%", "higher", 1.0),
    Line("floor-small-cpu", "50 connections, 100 B: processor time, multiple of a loop in C", "×", "lower", 1.0),
    Line("floor-large-rate", "4 connections, 1 MB: share of the rate of a loop in C", "%", "higher", 1.0),
    Line("floor-large-cpu", "4 connections, 1 MB: processor time, multiple of a loop in C", "×", "lower", 1.0),
)
