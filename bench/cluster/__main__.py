"""`python -m bench.cluster [LINE…]`: three brokers of each side."""

import sys

from bench.cluster.lines import LINES
from bench.cluster.sessions import QUICK, SESSIONS, Amounts, new_cluster
from bench.turns import Benchmark, main

THREE_BROKERS = Benchmark(
    name="bench.cluster",
    lines=LINES,
    sides={kind: new_cluster(kind) for kind in ("ottla", "kafka")},
    sessions=SESSIONS,
    amounts=Amounts(),
    quick=QUICK,
    about={"brokers": "3 each; replication factor 3, min.insync.replicas 2, acks=all"},
)

if __name__ == "__main__":
    sys.exit(main(THREE_BROKERS))
