"""`python -m bench.mirror [LINE…]`: compare mirroring with MirrorMaker 2."""

import sys

from bench.mirror.lines import LINES
from bench.mirror.sessions import QUICK, SESSIONS, LoadSize
from bench.mirror.sides import SIDES
from bench.runner import Benchmark, run_benchmark

MIRRORS = Benchmark(
    name="bench.mirror",
    lines=LINES,
    sides=SIDES,
    sessions=SESSIONS,
    load_size=LoadSize(),
    quick=QUICK,
    about={
        "source": "one Apache Kafka broker",
        "targets": "one broker of each side; MirrorMaker 2 of the same Kafka version",
    },
)

if __name__ == "__main__":
    sys.exit(run_benchmark(MIRRORS))
