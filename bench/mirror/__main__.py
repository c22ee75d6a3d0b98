"""`python -m bench.mirror [LINE…]`: mirrors, beside MirrorMaker 2."""

import sys

from bench.mirror.lines import LINES
from bench.mirror.sessions import QUICK, SESSIONS, Amounts
from bench.mirror.sides import SIDES
from bench.turns import Benchmark, main

MIRRORS = Benchmark(
    name="bench.mirror",
    lines=LINES,
    sides=SIDES,
    sessions=SESSIONS,
    amounts=Amounts(),
    quick=QUICK,
    about={
        "clusters": "one Apache Kafka broker as the source, one broker of each side as the target; MirrorMaker 2 of the same Kafka"
    },
)

if __name__ == "__main__":
    sys.exit(main(MIRRORS))
