"""Measures one broker with default settings and a new folder. Throughput and latency are measured
after a warm-up.
"""

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from bench import plain_requests, programs
from bench.load_size import LoadSize
from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd

RunBroker = Callable[..., AbstractContextManager[BrokerProcess]]
"""Runs a broker of one side of the comparison: Ottla, or Apache Kafka."""
KIB, HUNDRED = 1024, 100  # bytes of a record
CONSUMERS = 20
READS = 5
PARTITIONS, TOPICS = 2000, 20
MANY_CONNECTIONS, MANY_PARTITIONS = (50, 500, 2000), 12
IDLE_CONNECTIONS = 10_000
NEW_CONNECTIONS_PER_S = 1_000
PRODUCER_SETTINGS = {
    "produce-idempotent": ("enable.idempotence=true",),
    "produce-lz4": ("compression.codec=lz4",),
    "produce-zstd": ("compression.codec=zstd",),
}
STARTS_WITHIN_S = 120.0
LINES = ("produce", "consume", "latency-p", "fan-out", "start", "memory", "partitions")
CONNECTION_LINES = ("many-producers", "connections")
STOPS_WITHIN_S = 180.0  # Kafka with many partitions may take more than half a minute


def measure_one_broker(run_broker: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    """The selected lines of one side by name, in the units of `bench.lines`."""
    found: dict[str, float] = {}
    if is_any_selected(selected, "produce", "consume", "latency-p", "fan-out", "start", "memory"):
        with run_broker(test_settings=False, start=False) as broker:
            found |= _measure_load(broker, selected, load_size)
    if is_any_selected(selected, "partitions"):
        with run_broker(test_settings=False) as broker:
            found |= _measure_many_partitions(broker, load_size)
    if is_any_selected(selected, "many-producers"):
        with run_broker(test_settings=False) as broker:
            found |= _measure_many_producers(broker, selected, load_size)
    if is_any_selected(selected, "connections-memory", "connections-cpu"):
        with run_broker(test_settings=False) as broker:
            found |= _measure_idle_connections(broker, load_size)
    if is_any_selected(selected, "connections-new"):
        with run_broker(test_settings=False) as broker:
            found |= _measure_new_connections(broker, load_size)
    return {name: value for name, value in found.items() if name in selected}


def _measure_load(broker: BrokerProcess, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    broker.command(broker)  # formats Kafka's folder before the clock starts
    found = {"start": measure_start_s(broker, "first")}
    time.sleep(2)  # lets background work of the start finish
    found["memory-idle"] = broker.resident_memory_kib() / 1024
    for topic in ("large", "small", "java", "latency", "busy"):
        rd.create_topic(broker.bootstrap, topic)
    where = broker.bootstrap
    if is_any_selected(selected, "produce-1k", "consume-1k", "memory-load"):
        found["produce-1k"] = _measure_producing(broker, "large", load_size.large, KIB)
        found["consume-1k"] = _measure_consuming(broker, "large", load_size.large)
    if is_any_selected(selected, "produce-100", "consume-100", "memory-load"):
        found["produce-100"] = _measure_producing(broker, "small", load_size.small, HUNDRED)
        found["consume-100"] = _measure_consuming(broker, "small", load_size.small)
    for line, settings in PRODUCER_SETTINGS.items():
        if line in selected:
            rd.create_topic(where, line)
            found[line] = _measure_producing(broker, line, load_size.settings, KIB, settings)
    if is_any_selected(selected, "produce-java", "memory-load"):
        programs.produce_with_java(where, "java", load_size.java // 4, HUNDRED)
        with _log_broker_cpu(broker):
            found["produce-java"] = programs.produce_with_java(where, "java", load_size.java, HUNDRED)
    if is_any_selected(selected, "latency-p"):
        os.sync()  # else writeback of earlier lines takes processor time from this one
        programs.measure_latency(broker.port, "latency", load_size.warm_latency, KIB)
        latency = programs.measure_latency(broker.port, "latency", load_size.latency, KIB)
        found |= {"latency-p50": latency.p50, "latency-p99": latency.p99}
    if is_any_selected(selected, "fan-out", "memory-load"):
        found["fan-out"] = _measure_fan_out(broker, load_size)
    found["memory-load"] = broker.resident_memory_kib() / 1024
    return found


def _measure_producing(
    broker: BrokerProcess, topic: str, records: int, size: int, settings: Sequence[str] = ()
) -> float:
    """MB/s of one run, after a run with a quarter of the records: on virtual machines, writes are
    slower while the page cache takes memory that it has not had before.
    """
    programs.produce(broker.bootstrap, topic, records // 4, size, settings=settings)
    with _log_broker_cpu(broker):
        return programs.produce(broker.bootstrap, topic, records, size, settings=settings).mb_per_s


def _measure_consuming(broker: BrokerProcess, topic: str, records: int) -> float:
    """MB/s, the median of several reads: one takes less than two seconds, so noise of the machine
    matters.
    """
    programs.consume(broker.bootstrap, topic, records)
    os.sync()
    found = []
    for _ in range(READS):
        with _log_broker_cpu(broker):
            found.append(programs.consume(broker.bootstrap, topic, records).mb_per_s)
    return statistics.median(found)


@contextmanager
def _log_broker_cpu(broker: BrokerProcess) -> Iterator[None]:
    """Adds the broker's processor time to the command log: not a line, but it explains a figure."""
    before = broker.cpu_s()
    yield
    programs.command_log[-1] += f"\n      broker CPU: {broker.cpu_s() - before:.2f} s"


def _measure_fan_out(broker: BrokerProcess, load_size: LoadSize) -> float:
    """Processor seconds of the broker per GB served, while one producer writes and 20 consumers
    follow.
    """
    os.sync()
    readers = programs.start_consumers(broker.bootstrap, "busy", load_size.fan_out, CONSUMERS)
    time.sleep(1)  # until all consumers are connected and waiting
    before = broker.cpu_s()
    programs.produce(broker.bootstrap, "busy", load_size.fan_out, KIB, load_size.fan_out_per_s)
    served = programs.wait_for_load(readers)
    return (broker.cpu_s() - before) / (served.records * KIB / 1e9)


def _measure_many_partitions(broker: BrokerProcess, load_size: LoadSize) -> dict[str, float]:
    names = [f"many-{number}" for number in range(TOPICS)]
    for name in names:
        rd.create_topic(broker.bootstrap, name, PARTITIONS // TOPICS)
    records = rd.numbered_messages(0, 1)
    for name in names[:2]:
        for partition in range(0, PARTITIONS // TOPICS, 25):
            rd.produce(broker.bootstrap, name, records, partition=partition)
    broker.stop(within_s=STOPS_WITHIN_S)
    start_s = measure_start_s(broker, names[-1])
    return {"partitions-start": start_s, "partitions-cpu": _measure_idle_share(broker, load_size) * 100}


def _measure_many_producers(broker: BrokerProcess, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    rd.create_topic(broker.bootstrap, "many", MANY_PARTITIONS)
    found: dict[str, float] = {}
    for connections in MANY_CONNECTIONS:
        name = f"many-producers-{connections}-"
        if is_any_selected(selected, name):
            os.sync()
            result = programs.measure_many_producers(
                broker.port, broker.pid, "many", MANY_PARTITIONS, connections, load_size.many_warm_s, load_size.many_s
            )
            values = {"rate": result.per_s, "p50": result.p50, "p99": result.p99, "cpu": result.broker_cpu_us}
            found |= {name + suffix: value for suffix, value in values.items()}
    return found


def _measure_idle_connections(broker: BrokerProcess, load_size: LoadSize) -> dict[str, float]:
    """Memory of the broker for each idle connection, and its use of a core with all of them. Each
    has sent one record. Raises RuntimeError if the limit on open files is too low.
    """
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit < IDLE_CONNECTIONS + 1_000:
        raise RuntimeError(f"{IDLE_CONNECTIONS} connections need more open files than the limit, {limit}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    rd.create_topic(broker.bootstrap, "idle")
    plain_requests.wait_for_first_ack(broker.port, "idle", STARTS_WITHIN_S)
    request = plain_requests.produce_request("idle", plain_requests.encode_batch(bytes(HUNDRED)))
    before_kib, connections = broker.resident_memory_kib(), []
    for _ in range(IDLE_CONNECTIONS):
        connections.append(plain_requests.Connection(broker.port))
        connections[-1].send(request)
    each_kib = (broker.resident_memory_kib() - before_kib) / IDLE_CONNECTIONS
    share = _measure_idle_share(broker, load_size)
    for connection in connections:
        connection.close()
    return {"connections-memory": each_kib, "connections-cpu": share * 100}


def _measure_new_connections(broker: BrokerProcess, load_size: LoadSize) -> dict[str, float]:
    rd.create_topic(broker.bootstrap, "new", MANY_PARTITIONS)
    plain_requests.wait_for_first_ack(broker.port, "new", STARTS_WITHIN_S)
    result = programs.measure_new_connections(
        broker.port,
        broker.pid,
        "new",
        MANY_PARTITIONS,
        NEW_CONNECTIONS_PER_S,
        load_size.many_warm_s,
        load_size.many_s,
    )
    return {
        "connections-new-p50": result.p50,
        "connections-new-p99": result.p99,
        "connections-new-cpu": result.broker_cpu_us,
    }


def _measure_idle_share(broker: BrokerProcess, load_size: LoadSize) -> float:
    """The share of a core that the broker uses when nothing is sent to it."""
    time.sleep(2)
    before, began = broker.cpu_s(), time.monotonic()
    time.sleep(load_size.idle_s)
    return (broker.cpu_s() - before) / (time.monotonic() - began)


def measure_start_s(broker: BrokerProcess, topic: str) -> float:
    """Seconds from the process's creation to the first acknowledgement, in a topic created if
    missing.
    """
    broker.spawn()
    plain_requests.wait_for_first_ack(broker.port, topic, STARTS_WITHIN_S)
    took = time.monotonic() - broker.spawned_at
    broker.wait_until_ready()
    return took


def is_any_selected(selected: Sequence[str], *prefixes: str) -> bool:
    return any(name.startswith(prefixes) for name in selected)
