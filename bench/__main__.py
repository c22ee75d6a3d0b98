"""`python -m bench [LINE…]`: compare one broker with one Apache Kafka broker."""

import sys

from bench import one_broker
from bench.lines import LINES
from bench.runner import Benchmark, Session, run_benchmark
from tests.brokers import BROKERS

ONE_BROKER = Benchmark(
    name="bench",
    lines=LINES,
    sides=BROKERS,
    sessions=(Session(("",), 5, one_broker.measure_one_broker),),
    load_size=one_broker.LoadSize(),
    quick=one_broker.QUICK,
    about={},
)

if __name__ == "__main__":
    sys.exit(run_benchmark(ONE_BROKER))
