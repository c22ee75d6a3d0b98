"""The lines of the benchmark of three brokers, with their requirements."""

from bench.lines import Line, under_load_lines

LINES = (
    Line("start", "start of three brokers to the first acknowledged record", "s", "lower", None, 2.0),
    Line("memory", "resident memory of the three, idle after the start", "MiB", "lower", 1 / 6),
    Line("produce-1k", "produce 1 KiB, librdkafka, six partitions", "records/s", "higher", 1.2),
    Line("produce-100", "produce 100 B, librdkafka, six partitions", "records/s", "higher", 1.2),
    Line("latency-p50", "ack at a steady 2,000 records/s, median", "ms", "lower", 0.7),
    Line("latency-p99", "ack at a steady 2,000 records/s, 99th percentile", "ms", "lower", 0.7),
    Line("latency-p99.9", "ack at a steady 2,000 records/s, 99.9th percentile", "ms", "lower", 0.7),
    *under_load_lines(10),
    *under_load_lines(50),
    *under_load_lines(80),
    Line("new-topic", "idle cluster: creation of a topic to its first ack, longest of 15", "s", "lower", None, 0.25),
    Line("killed-p50", "leader killed (SIGKILL): time without acks, median", "s", "lower", None, 0.7),
    Line("killed-p95", "leader killed (SIGKILL): time without acks, 95th percentile", "s", "lower", None, 1.5),
    Line("silent-p95", "leader paused (SIGSTOP): time without acks, 95th percentile", "s", "lower", None, 4.0),
    Line("controller", "controller killed (SIGKILL): time until a topic is created, median", "s", "lower", 1 / 2),
    Line("planned", "leader restarted (SIGTERM): longest stall of a producer", "s", "lower", None, 0.25),
    Line("10k-create", "10,000 partitions: creation of their topics until all have leaders", "s", "lower", 1.0),
    Line("10k-restart", "10,000 partitions: restart of one broker until all are in sync", "s", "lower", None, 10.0),
    Line("10k-kill", "10,000 partitions: SIGKILL of one broker until all have leaders", "s", "lower", None, 5.0),
    Line("10k-cpu", "10,000 partitions: idle, share of a core of the busiest broker", "%", "lower", None, 5.0),
)
