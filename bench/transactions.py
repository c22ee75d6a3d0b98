"""`python -m bench.transactions [LINE…]`: transactions on one broker, beside one Apache Kafka
broker. The producer is librdkafka's, which uses transaction version 1.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench import programs
from bench.lines import Line
from bench.one_broker import RunBroker
from bench.runner import Benchmark, Session, run_benchmark
from tests.brokers import BROKERS
from tests.clients import librdkafka as rd

KIB = 1024
LINES = (
    Line("commit-p50", "commit of a transaction with one record of 1 KiB, median", "ms", "lower", 0.5),
    Line("commit-p99", "commit of a transaction, 99th percentile", "ms", "lower", 0.5),
    Line("commits", "transactions of one record, one after the other", "1/s", "higher", 2.0),
    Line("read-lag-p50", "from the commit until a read_committed consumer has the record, median", "ms", "lower", 1.0),
    Line("read-lag-p99", "the same, 99th percentile", "ms", "lower", 1.0),
    Line("transactional-1k", "produce 1 KiB in transactions of 10,000 records", "MB/s", "higher", 1.0),
    Line("plain-1k", "the same number of records without transactions", "MB/s", "higher"),
)


@dataclass(frozen=True)
class LoadSize:
    """`commits`: transactions of one record. `large`: transactions of `records` records."""

    commits: int = 1000
    large: int = 40
    records: int = 10_000


@dataclass(frozen=True)
class TransactResult:
    """The output of `transact.c`."""

    seconds: float
    transactions: int
    bytes: float
    commit_p50: float
    commit_p99: float
    lag_p50: float
    lag_p99: float


def measure_transactions(run_broker: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    found: dict[str, float] = {}
    with run_broker(test_settings=False) as broker:
        for topic in ("commits", "large", "plain"):
            rd.create_topic(broker.bootstrap, topic)
        if any(name.startswith(("commit", "read-lag")) for name in selected):
            small = transact(broker.bootstrap, "commits", load_size.commits, 1)
            found |= {
                "commit-p50": small.commit_p50,
                "commit-p99": small.commit_p99,
                "commits": small.transactions / small.seconds,
                "read-lag-p50": small.lag_p50,
                "read-lag-p99": small.lag_p99,
            }
        os.sync()
        if "transactional-1k" in selected:
            large = transact(broker.bootstrap, "large", load_size.large, load_size.records)
            found["transactional-1k"] = large.bytes / large.seconds / 1e6
        if "plain-1k" in selected:
            records = load_size.large * load_size.records
            found["plain-1k"] = programs.produce(broker.bootstrap, "plain", records, KIB).mb_per_s
    return {name: value for name, value in found.items() if name in selected}


def transact(bootstrap: str, topic: str, transactions: int, records: int) -> TransactResult:
    program = programs.compile_program("transact")
    words = [program, bootstrap, topic, str(transactions), str(records), str(KIB)]
    return TransactResult(**json.loads(programs.run_program(words)))


TRANSACTIONS = Benchmark(
    name="bench.transactions",
    lines=LINES,
    sides=BROKERS,
    sessions=(Session(("",), 3, measure_transactions),),
    load_size=LoadSize(),
    quick=LoadSize(commits=200, large=4, records=5_000),
    about={},
)

if __name__ == "__main__":
    sys.exit(run_benchmark(TRANSACTIONS))
