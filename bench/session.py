"""One side, once through the chosen lines: default settings, a fresh folder, warmed up before it is measured."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from bench import programs, raw
from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd

NewBroker = Callable[..., AbstractContextManager[BrokerProcess]]
KIB, HUNDRED = 1024, 100
CONSUMERS = 20
READINGS = 5
PARTITIONS, TOPICS = 2000, 20
STARTS_WITHIN_S = 120.0
STOPS_WITHIN_S = 180.0  # with many partitions, Kafka alone may take more than half a minute


@dataclass(frozen=True)
class Amounts:
    """How much is moved. Records, but for `*_s` (seconds) and `*_per_s` (bytes)."""

    large: int = 1_500_000
    small: int = 8_000_000
    java: int = 2_000_000
    latency: int = 5_000
    warm_latency: int = 5_000
    fan_out: int = 80_000
    fan_out_per_s: float = 10e6
    idle_s: float = 10.0


QUICK = Amounts(60_000, 400_000, 300_000, 1_000, 500, 20_000, 10e6, 3.0)


def measure(side: NewBroker, wanted: Sequence[str], amounts: Amounts) -> dict[str, float]:
    """The wanted lines of one side, by name, in the units of `bench.lines`."""
    found: dict[str, float] = {}
    if _any(wanted, "produce", "consume", "latency", "fan-out", "start", "memory"):
        with side(test_settings=False, start=False) as broker:
            found |= _one_broker(broker, wanted, amounts)
    if _any(wanted, "partitions"):
        with side(test_settings=False) as broker:
            found |= _many_partitions(broker, amounts)
    return {name: value for name, value in found.items() if name in wanted}


def _one_broker(broker: BrokerProcess, wanted: Sequence[str], amounts: Amounts) -> dict[str, float]:
    broker.command(broker)  # Kafka's folder is formatted before the clock runs
    found = {"start": _start(broker, "first")}
    time.sleep(2)  # whatever a start leaves to be done comes to its end
    found["memory-idle"] = broker.resident_memory_kib() / 1024
    for topic in ("large", "small", "java", "latency", "busy"):
        rd.create(broker.bootstrap, topic)
    where = broker.bootstrap
    if _any(wanted, "produce-1k", "consume-1k", "memory-load"):
        programs.produce(where, "large", amounts.large // 4, KIB)
        with _noting_cpu(broker):
            found["produce-1k"] = programs.produce(where, "large", amounts.large, KIB).mb_per_s
        found["consume-1k"] = _consume(broker, "large", amounts.large)
    if _any(wanted, "produce-100", "consume-100", "memory-load"):
        programs.produce(where, "small", amounts.small // 4, HUNDRED)
        with _noting_cpu(broker):
            found["produce-100"] = programs.produce(where, "small", amounts.small, HUNDRED).mb_per_s
        found["consume-100"] = _consume(broker, "small", amounts.small)
    if _any(wanted, "produce-java", "memory-load"):
        programs.java_produce(where, "java", amounts.java // 4, HUNDRED)
        with _noting_cpu(broker):
            found["produce-java"] = programs.java_produce(where, "java", amounts.java, HUNDRED)
    if _any(wanted, "latency"):
        os.sync()  # what earlier lines wrote goes to the disk before, and takes no processor time from this one
        programs.latency(broker.port, "latency", amounts.warm_latency, KIB)
        took = programs.latency(broker.port, "latency", amounts.latency, KIB)
        found |= {"latency-p50": took.p50, "latency-p99": took.p99}
    if _any(wanted, "fan-out", "memory-load"):
        found["fan-out"] = _fan_out(broker, amounts)
    found["memory-load"] = broker.resident_memory_kib() / 1024
    return found


def _consume(broker: BrokerProcess, topic: str, records: int) -> float:
    """The median of a few readings: one takes no two seconds, in which the machine's own noise counts."""
    programs.consume(broker.bootstrap, topic, records)
    os.sync()
    found = []
    for _ in range(READINGS):
        with _noting_cpu(broker):
            found.append(programs.consume(broker.bootstrap, topic, records).mb_per_s)
    return statistics.median(found)


@contextmanager
def _noting_cpu(broker: BrokerProcess) -> Iterator[None]:
    """Writes the broker's processor time under the command: no line of the table, but it says what a figure cost."""
    before = broker.cpu_s()
    yield
    programs.commands[-1] += f"\n      the broker took {broker.cpu_s() - before:.2f} s of processor time"


def _fan_out(broker: BrokerProcess, amounts: Amounts) -> float:
    """Processor seconds of the broker per GB that it served while one producer wrote and twenty consumers followed."""
    os.sync()
    readers = programs.consumers(broker.bootstrap, "busy", amounts.fan_out, CONSUMERS)
    time.sleep(1)  # all of them connected and waiting
    before = broker.cpu_s()
    programs.produce(broker.bootstrap, "busy", amounts.fan_out, KIB, amounts.fan_out_per_s)
    served = programs.finished(readers)
    return (broker.cpu_s() - before) / (served.records * KIB / 1e9)


def _many_partitions(broker: BrokerProcess, amounts: Amounts) -> dict[str, float]:
    names = [f"many-{number}" for number in range(TOPICS)]
    for name in names:
        rd.create(broker.bootstrap, name, PARTITIONS // TOPICS)
    records = rd.numbered(0, 1)
    for name in names[:2]:
        for partition in range(0, PARTITIONS // TOPICS, 25):
            rd.produce(broker.bootstrap, name, records, partition=partition)
    broker.stop(within_s=STOPS_WITHIN_S)
    took = _start(broker, names[-1])
    time.sleep(2)
    before, began = broker.cpu_s(), time.monotonic()
    time.sleep(amounts.idle_s)
    share = (broker.cpu_s() - before) / (time.monotonic() - began)
    return {"partitions-start": took, "partitions-cpu": share * 100}


def _start(broker: BrokerProcess, topic: str) -> float:
    """Seconds from the creation of the process to the first acknowledged record, in a topic that is made if need be."""
    broker.spawn()
    raw.first_ack(broker.port, topic, STARTS_WITHIN_S)
    took = time.monotonic() - broker.spawned_at
    broker.wait_until_ready()
    return took


def _any(wanted: Sequence[str], *prefixes: str) -> bool:
    return any(name.startswith(prefixes) for name in wanted)
