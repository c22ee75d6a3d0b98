"""`python -m bench.groups [LINE…]`: groups on one broker, beside one Apache Kafka broker. All
members are in one process: that of `members.c`, or of `share_acknowledgements.py`.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import uvloop

from bench import programs
from bench.lines import Line
from bench.one_broker import RunBroker
from bench.rebalances import measure_rebalances
from bench.runner import Benchmark, Session, run_benchmark
from bench.share_acknowledgements import measure_acknowledgements
from tests.brokers import run_apache_kafka, run_ottla_broker
from tests.clients import librdkafka as rd
from tests.jars import KAFKA_4_2

NO_INTERVAL = {"group_consumer_assignment_interval_ms": 0, "group_share_assignment_interval_ms": 0}
"""Assignments wait for nothing, as in KAFKA_4_2, which ignores the settings."""
PROTOCOLS = ("classic", "consumer")
SIZES = (100, 1000)
MEMBERS = 8
ONE_RECORD_A_BATCH = ("batch.num.messages=1",)
BATCH = 200  # BATCH × MEMBERS is less than group.share.partition.max.record.locks
WARM_MEMBERS, WARM_REPEATS = 50, 10


def _rebalance_lines(protocol: str, members: int) -> tuple[Line, ...]:
    prefix, which = f"{protocol}-{members}", f"{members:,} members, {protocol} protocol"
    return (
        Line(f"{prefix}-start", f"{which}: all join at once, until settled", "s", "lower", 0.5),
        Line(f"{prefix}-rebalance", f"{which}: one leaves or joins, until settled", "ms", "lower", 0.5),
        Line(f"{prefix}-cpu", "the same: the broker's processor time", "ms", "lower"),
    )


LINES = (
    *(line for protocol in PROTOCOLS for size in SIZES for line in _rebalance_lines(protocol, size)),
    Line("share-batches", "share group, one partition, 8 members, 200 records per ShareFetch", "acks/s", "higher", 1.0),
    Line("share-batches-cpu", "the same: the broker's processor time per record", "µs", "lower"),
    Line("share-records", "share group, one partition, 8 members, one record per ShareFetch", "acks/s", "higher", 1.0),
    Line("share-records-cpu", "the same: the broker's processor time per record", "µs", "lower"),
)


@dataclass(frozen=True)
class LoadSize:
    """`repeats`: number of times that a member leaves and another joins. `batched`, `single`:
    records that a share group acknowledges."""

    repeats: int = 10
    batched: int = 400_000
    single: int = 8_000


def measure_groups(
    protocol: str, members: int, run_broker: RunBroker, selected: Sequence[str], load_size: LoadSize
) -> dict[str, float]:
    with run_broker(test_settings=False, group_initial_rebalance_delay_ms=0, **NO_INTERVAL) as broker:
        for topic, partitions in (("warm", WARM_MEMBERS), ("measured", members)):
            rd.create_topic(broker.bootstrap, topic, partitions)
        uvloop.run(measure_rebalances(broker, protocol, "warm", WARM_MEMBERS, WARM_REPEATS))
        result = uvloop.run(measure_rebalances(broker, protocol, "measured", members, load_size.repeats))
    prefix = f"{protocol}-{members}"
    return {
        f"{prefix}-start": result.start_s,
        f"{prefix}-rebalance": result.rebalance_ms,
        f"{prefix}-cpu": result.broker_cpu_ms,
    }


def measure_share_groups(run_broker: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    """A response has whole batches. So single records are produced as batches of one record."""
    found: dict[str, float] = {}
    loads = (
        ("share-batches", load_size.batched, BATCH, ()),
        ("share-records", load_size.single, 1, ONE_RECORD_A_BATCH),
    )
    with run_broker(test_settings=False, **NO_INTERVAL) as broker:
        for name, records, max_records, settings in loads:
            rd.create_topic(broker.bootstrap, name)
            programs.produce(broker.bootstrap, name, records * 5 // 4, 100, settings=settings)
            measure = partial(measure_acknowledgements, broker, name, members=MEMBERS, max_records=max_records)
            asyncio.run(measure(records=records // 4))  # warms up
            result = asyncio.run(measure(records=records))
            found |= {name: result.acknowledged_per_s, f"{name}-cpu": result.cpu_us}
    return {name: value for name, value in found.items() if name in selected}


GROUPS = Benchmark(
    name="bench.groups",
    lines=LINES,
    sides={"ottla": run_ottla_broker, "kafka": partial(run_apache_kafka, version=KAFKA_4_2)},
    sessions=(
        *(
            Session((f"{protocol}-{size}-",), 3, partial(measure_groups, protocol, size))
            for protocol in PROTOCOLS
            for size in SIZES
        ),
        Session(("share",), 3, measure_share_groups),
    ),
    load_size=LoadSize(),
    quick=LoadSize(repeats=3, batched=50_000, single=4_000),
    about={"Apache Kafka": f"{KAFKA_4_2}, default settings, KRaft combined mode, heap 1 GiB"},
)

if __name__ == "__main__":
    sys.exit(run_benchmark(GROUPS))
