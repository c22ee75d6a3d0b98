"""The lines of the benchmark of mirroring, with their requirements."""

from bench.lines import Line

LINES = (
    Line("copy-rate", "copy 1 KiB records of six partitions", "MB/s", "higher", 2.0),
    Line("copy-cpu", "the same per CPU second of everything but the source", "MB/CPU s", "higher", 4.0),
    Line("catch-up", "catch up from 2 GB behind while new records arrive", "s", "lower", 1 / 2),
    Line(
        "lag-p50", "5,000 records/s: from the source's ack until readable at the target, median", "ms", "lower", 1 / 2
    ),
    Line(
        "lag-p99",
        "5,000 records/s: from the source's ack until readable at the target, 99th percentile",
        "ms",
        "lower",
        1 / 2,
    ),
    Line("memory", "resident memory added by mirroring, after the lines above", "MiB", "lower", None, 50.0),
    Line("idle", "1,000 idle mirrored partitions, share of a core", "%", "lower", None, 3.0),
)
