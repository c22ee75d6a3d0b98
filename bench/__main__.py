"""`python -m bench [LINE…]`: one broker of each side."""

import sys

from bench import session
from bench.lines import LINES
from bench.turns import Benchmark, Session, main
from tests.brokers import BROKERS

ONE_BROKER = Benchmark(
    name="bench",
    lines=LINES,
    sides=BROKERS,
    sessions=(Session(("",), 5, session.measure),),
    amounts=session.Amounts(),
    quick=session.QUICK,
    about={},
)

if __name__ == "__main__":
    sys.exit(main(ONE_BROKER))
