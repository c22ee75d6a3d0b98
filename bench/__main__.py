"""`python -m bench [LINE…]`: compare one broker with one Apache Kafka broker."""

import sys

from bench import floor, large_logs, many_consumers, one_broker, secured, two_workers, under_load, wide
from bench.lines import LINES
from bench.load_size import QUICK, LoadSize
from bench.runner import Benchmark, Session, run_benchmark
from tests.brokers import BROKERS

ONE_BROKER = Benchmark(
    name="bench",
    lines=LINES,
    sides=BROKERS,
    sessions=(
        Session(one_broker.LINES, 3, one_broker.measure_one_broker),
        Session(one_broker.CONNECTION_LINES, 2, one_broker.measure_one_broker),
        Session(("two-workers",), 2, two_workers.measure_two_workers),
        Session(("many-consumers", "group-of-200"), 2, many_consumers.measure_many_consumers),
        Session(("latency-under-load",), 2, under_load.measure_under_load),
        Session(("wide",), 1, wide.measure_wide),
        Session(("tls", "sasl"), 3, secured.measure_secured),
        Session(("cold-read", "recover"), 1, large_logs.measure_large_log),
        Session(("compaction",), 1, large_logs.measure_compaction),
        Session(("floor",), 2, floor.measure_floor),
    ),
    load_size=LoadSize(),
    quick=QUICK,
    about={},
)

if __name__ == "__main__":
    sys.exit(run_benchmark(ONE_BROKER))
