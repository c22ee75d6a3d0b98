"""`python -m bench.cluster [LINE…]`: compare three brokers with three Apache Kafka brokers."""

import sys

from bench.cluster.lines import LINES
from bench.cluster.load_size import QUICK, LoadSize
from bench.cluster.sessions import SESSIONS, cluster_runner
from bench.runner import Benchmark, run_benchmark

THREE_BROKERS = Benchmark(
    name="bench.cluster",
    lines=LINES,
    sides={kind: cluster_runner(kind) for kind in ("ottla", "kafka")},
    sessions=SESSIONS,
    load_size=LoadSize(),
    quick=QUICK,
    about={"brokers": "3 each; replication factor 3, min.insync.replicas 2, acks=all"},
)

if __name__ == "__main__":
    sys.exit(run_benchmark(THREE_BROKERS))
