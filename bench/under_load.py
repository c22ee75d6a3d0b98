"""Latency under load: records at times that are fixed in advance, at shares of the rate that Apache
Kafka sustains on this machine.
"""

import os
from collections.abc import Sequence
from functools import cache

from bench import programs
from bench.load_size import LoadSize
from bench.one_broker import RunBroker, is_any_selected
from tests.brokers import run_apache_kafka
from tests.clients import librdkafka as rd

TOPIC, PARTITIONS, KIB = "under-load", 6, 1024
SHARES = (10, 50, 80)  # percent of the sustained rate
TRIAL_STEP = 0.85
KEEPS_UP = 0.9
PERCENTILES = {"p50": "e2e_p50", "p99": "e2e_p99", "p99.9": "e2e_p999"}


def measure_under_load(run_broker: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    per_s = sustained_per_s(load_size)
    with run_broker(test_settings=False) as broker:
        rd.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        measure_flood(broker.bootstrap, load_size.sustained)  # warms up
        return measure_shares(broker.bootstrap, per_s, selected, load_size.under_load_warm_s, load_size.under_load_s)


def measure_shares(
    bootstrap: str, sustained: float, selected: Sequence[str], warm_s: float, seconds: float
) -> dict[str, float]:
    """The selected lines of one side, in ms: from when a record was due until it was read."""
    found: dict[str, float] = {}
    for share in SHARES:
        line = f"latency-under-load-{share}-"
        if is_any_selected(selected, line):
            rate = sustained * share / 100
            lag_s = measure_lag(bootstrap, rate, warm_s, seconds)
            found |= {line + name: lag_s[key] * 1000 for name, key in PERCENTILES.items()}
    return found


@cache
def sustained_per_s(load_size: LoadSize) -> float:
    """Records per second that one warm Apache Kafka broker sustains."""
    with run_apache_kafka(test_settings=False) as kafka:
        rd.create_topic(kafka.bootstrap, TOPIC, PARTITIONS)
        seconds = load_size.under_load_warm_s + load_size.under_load_s
        return find_sustained_rate(kafka.bootstrap, load_size.sustained, seconds)


def find_sustained_rate(bootstrap: str, records: int, seconds: float) -> float:
    """The first of several rates, in records per second, with which a cluster keeps up for as long
    as a line lasts: from the start until the last record is read, it delivers at least KEEPS_UP of
    that rate. The first rate that is tried is that of `measure_flood`, whose batches are larger;
    each further one is TRIAL_STEP of the one before.
    """
    rate = measure_flood(bootstrap, records)
    while rate > 1.0:
        result = measure_lag(bootstrap, rate, 0, seconds)
        if result["seconds"] * KEEPS_UP <= seconds:
            break
        rate *= TRIAL_STEP
    return rate


def measure_flood(bootstrap: str, records: int) -> float:
    """Records per second until the last one is read, if all `records` are due at the start."""
    for _ in range(2):  # the first one warms up
        result = measure_lag(bootstrap, records * 1e3, 0, 1e-3)
    return result["read"] / result["seconds"]


def measure_lag(bootstrap: str, per_s: float, warm_s: float, seconds: float) -> dict[str, float]:
    os.sync()  # else writeback of earlier records delays these: appends wait for the disk then
    return programs.measure_lag(bootstrap, TOPIC, bootstrap, TOPIC, PARTITIONS, KIB, per_s, warm_s, seconds)
