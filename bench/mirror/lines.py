"""What is measured of mirrors, and what is required of Ottla: the table, once."""

from bench.lines import Line

LINES = (
    Line("copy-rate", "1 KiB records of six partitions, copied", "MB/s", "higher", 2.0),
    Line("copy-cpu", "the same per second of processor time, of all but the source", "MB/CPU s", "higher", 4.0),
    Line("catch-up", "2 GB behind while new records come, until level", "s", "lower", 1 / 2),
    Line("lag-p50", "5,000 records/s: from the source's ack until readable here, median", "ms", "lower", 1 / 2),
    Line(
        "lag-p99", "5,000 records/s: from the source's ack until readable here, 99th percentile", "ms", "lower", 1 / 2
    ),
    Line("memory", "resident memory that mirroring adds, after the lines above", "MiB", "lower", None, 50.0),
    Line("idle", "1,000 copied partitions in which nothing happens, share of a core", "%", "lower", None, 3.0),
)
