"""`python -m bench.scrape`: cost of a scrape of a broker with many partitions, and what it does to
the latency of a producer.
"""

import argparse
import gzip
import multiprocessing
import re
import statistics
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from bench.plain_requests import Connection, encode_batch, produce_request, wait_for_first_ack
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.ports import free_port

TOPIC: Final = "latency"
ACCEPT: Final = "application/openmetrics-text; version=1.0.0"
LABELLED_FAMILIES: Final = 10  # with a sample for each partition


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scrape", description=__doc__)
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--scrapes", type=int, default=10)
    parser.add_argument("--requests", type=int, default=5000, help="produce requests of one measurement of latency")
    options = parser.parse_args()
    http_port = free_port()
    with run_ottla_broker(http_listener=f"127.0.0.1:{http_port}") as broker:
        wait_for_first_ack(broker.port, TOPIC, 30)
        create_partitions(broker, options.partitions)
        while count_leaders(http_port) < options.partitions:  # logs are created after the response
            time.sleep(0.1)
        for encoding in ("identity", "gzip"):
            before_s = broker.cpu_s()
            durations, sizes = zip(*(scrape(http_port, encoding) for _ in range(options.scrapes)), strict=True)
            cpu_ms = (broker.cpu_s() - before_s) / options.scrapes * 1e3
            median_ms = statistics.median(durations) * 1e3
            print(f"scrape, {encoding}: {median_ms:.0f} ms, {cpu_ms:.0f} ms of processor time, {sizes[-1]:,} bytes")
        print_latency("without scrapes", broker.port, options.requests)
        with scrape_every_second(http_port):
            print_latency("with a scrape a second", broker.port, options.requests)
    print(f"prometheus-client, about as many samples: {generate_with_library(options.partitions) * 1e3:.0f} ms")


def create_partitions(broker: BrokerProcess, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("many", count, 1)], operation_timeout=120)["many"].result(120)


def count_leaders(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        found = re.search(rb"^kafka_server_replicamanager_leadercount (\d+)$", response.read(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def scrape(port: int, encoding: str) -> tuple[float, int]:
    """Duration in seconds, and size of the response in bytes."""
    headers = {"Accept": ACCEPT, "Accept-Encoding": encoding}
    began_s = time.perf_counter()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    with urllib.request.urlopen(request) as response:
        data = response.read()
    elapsed_s = time.perf_counter() - began_s
    text = gzip.decompress(data) if encoding == "gzip" else data
    assert text.endswith(b"# EOF\n")
    return elapsed_s, len(data)


@contextmanager
def scrape_every_second(port: int) -> Iterator[None]:
    """Scrapes in another process: a thread would share the interpreter's lock with the producer."""
    processes = multiprocessing.get_context("spawn")
    started, stopped = processes.Event(), processes.Event()
    scraper = processes.Process(target=scrape_until, args=(port, started, stopped))
    scraper.start()
    try:
        assert started.wait(60)
        yield
    finally:
        stopped.set()
        scraper.join()


def scrape_until(port: int, started: Event, stopped: Event) -> None:
    started.set()
    while not stopped.wait(1.0):
        scrape(port, "gzip")


def print_latency(title: str, port: int, requests: int) -> None:
    connection = Connection(port)
    request = produce_request(TOPIC, encode_batch(bytes(100)))
    latencies = []
    for _ in range(requests):
        began_s = time.perf_counter()
        connection.send(request)
        latencies.append(time.perf_counter() - began_s)
        time.sleep(0.001)
    cuts = statistics.quantiles(latencies, n=1000)
    print(f"produce, {title}: p50 {cuts[499] * 1e3:.2f}, p99 {cuts[989] * 1e3:.2f}, p99.9 {cuts[998] * 1e3:.2f} ms")


def generate_with_library(partitions: int) -> float:
    """Processor seconds that prometheus-client takes to write LABELLED_FAMILIES gauges with a
    sample for each partition, about as many samples as the broker's scrape has.
    """

    class Collector:
        def collect(self) -> list[GaugeMetricFamily]:
            families = [
                GaugeMetricFamily(f"family_{n}", "doc", labels=("topic", "partition")) for n in range(LABELLED_FAMILIES)
            ]
            for family in families:
                for partition in range(partitions):
                    family.add_metric(("many", str(partition)), partition)
            return families

    registry = CollectorRegistry()
    registry.register(Collector())
    began_s = time.process_time()
    generate_latest(registry)
    return time.process_time() - began_s


if __name__ == "__main__":
    main()
