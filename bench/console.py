"""`python -m bench.console`: what pages of the console cost in a large cluster, and what its
searches and writes do to the latency of a producer.

One broker on loopback. Times are those of a client that asks for one page after the other; bytes
are those of the HTML as the broker sends it, with gzip, and unpacked.
"""

import argparse
import gzip
import os
import re
import statistics
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, Final

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

from bench.plain_requests import wait_for_first_ack
from bench.scrape import TOPIC, print_latency
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.ports import free_port

PARTITIONS_PER_TOPIC: Final = 4
BATCH: Final = 250
"""Topics of one request, and groups whose offsets are committed at once."""
SEARCHED_TOPIC: Final = "searched"
PAGES: Final = {
    "overview": "/",
    "topics": "/topics",
    "search of topics": "/topics?search=team-7+kind-99",
    "one topic": "/topics/events.team-7.kind-7",
    "groups": "/groups",
    "search of groups": "/groups?search=reader-21",
    "cluster": "/cluster",
}
PAUSE_BETWEEN_WRITES_S: Final = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument(
        "--topics", type=int, default=10_000, help="topics in the cluster; 0: measures only the latency"
    )
    parser.add_argument("--groups", type=int, default=2_200)
    parser.add_argument("--repeats", type=int, default=20, help="requests of each page after its first")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of the topic that is searched")
    parser.add_argument("--requests", type=int, default=5_000, help="produce requests of one measurement of latency")
    options = parser.parse_args()
    url = f"http://127.0.0.1:{free_port()}"
    with run_ottla_broker(
        http_listener=url.removeprefix("http://"), console_enable="true", console_write="everyone"
    ) as broker:
        wait_for_first_ack(broker.port, TOPIC, 30)
        produce_records(broker, options.records)
        print(f"load average of {os.cpu_count()} processors: {os.getloadavg()[0]:.1f}")
        print_effects(broker, url, options.requests)
        if not options.topics:
            return
        create_topics(broker, options.topics)
        commit_offsets(broker, options.groups)
        print(f"{options.topics:,} topics of {PARTITIONS_PER_TOPIC} partitions, {options.groups:,} groups:")
        for name, path in PAGES.items():
            print_page(name, url + path, options.repeats)


def produce_records(broker: BrokerProcess, count: int) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": count + 1})
    for number in range(count):
        producer.produce(SEARCHED_TOPIC, b'{"amount": %d, "state": "paid", "of": "nobody"}' % number)
    assert producer.flush(120) == 0


def create_topics(broker: BrokerProcess, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(f"events.team-{number % 100}.kind-{number}", PARTITIONS_PER_TOPIC, 1) for number in range(count)]
    for first in range(0, count, BATCH):
        new = topics[first : first + BATCH]
        for created in admin.create_topics(new, operation_timeout=120).values():
            created.result(120)


def commit_offsets(broker: BrokerProcess, groups: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    read = [ck.TopicPartition(SEARCHED_TOPIC, 0, 1)]
    offsets = [ck.ConsumerGroupTopicPartitions(f"reader-{number}", read) for number in range(groups)]
    for first in range(0, groups, BATCH):
        for one in [admin.alter_consumer_group_offsets([it]) for it in offsets[first : first + BATCH]]:
            for committed in one.values():
                committed.result(120)


def print_page(name: str, url: str, repeats: int) -> None:
    times_ms: list[float] = []
    for _ in range(repeats + 1):
        began_s = time.perf_counter()
        sent = get(url)
        times_ms.append((time.perf_counter() - began_s) * 1e3)
    first, rest = times_ms[0], sorted(times_ms[1:])
    size = len(gzip.decompress(sent))
    print(
        f"  {name}: first {first:.0f} ms, then median {statistics.median(rest):.0f} ms, slowest {rest[-1]:.0f} ms; "
        f"{len(sent):,} bytes, {size:,} unpacked"
    )


def get(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=120) as response:
        data: bytes = response.read()
        return data


# What the console does to a producer


def print_effects(broker: BrokerProcess, url: str, requests: int) -> None:
    print_latency("console idle", broker.port, requests)
    for title, repeat in (
        ("during a search", lambda stopped: search_until(url, stopped)),
        ("during console writes", lambda stopped: write_until(url, stopped)),
    ):
        print_latency_during(title, repeat, broker.port, requests)
    print_latency("console idle again", broker.port, requests)


def print_latency_during(title: str, repeat: Callable[[threading.Event], int], port: int, requests: int) -> None:
    """Prints the latency of a producer while `repeat` runs in a thread until the event is set, and
    the number of records that it read or wrote.
    """
    stopped, counts, began_s = threading.Event(), list[int](), time.monotonic()
    thread = threading.Thread(target=lambda: counts.append(repeat(stopped)))
    thread.start()
    print_latency(title, port, requests)
    stopped.set()
    thread.join()
    done, rate = "read" if "search" in title else "written", counts[0] / (time.monotonic() - began_s)
    print(f"  meanwhile: {counts[0]:,} records {done}, {rate:,.0f} a second")


def search_until(url: str, stopped: threading.Event) -> int:
    """Searches for a value that no record has, again and again. Returns the number of records that
    were read.
    """
    query = urllib.parse.urlencode({"mode": "search", "filter": "value.state == 'refunded'"})
    read = 0
    while not stopped.is_set():
        with urllib.request.urlopen(f"{url}/topics/{SEARCHED_TOPIC}/messages/stream?{query}", timeout=120) as response:
            last = 0
            for line in response:
                if found := re.search(rb'"scanned": ?(\d+)', line):
                    last = int(found.group(1))
                if stopped.is_set():
                    break
            read += last
    return read


def write_until(url: str, stopped: threading.Event) -> int:
    """Produces a record with the console's form, at most ten times a second. Returns the number of
    records.
    """
    page = gzip.decompress(get(f"{url}/topics/{SEARCHED_TOPIC}/produce")).decode()
    token = re.search(r'name="token" value="([^"]+)"', page)
    assert token is not None
    form = urllib.parse.urlencode({"token": token.group(1), "value": "written by the console"}).encode()
    written = 0
    opener = urllib.request.build_opener(KeepRedirect())
    while not stopped.wait(PAUSE_BETWEEN_WRITES_S):
        request = urllib.request.Request(f"{url}/topics/{SEARCHED_TOPIC}/produce", form, {"Origin": url})
        with opener.open(request, timeout=120) as response:
            assert response.status == 303
        written += 1
    return written


class KeepRedirect(urllib.request.HTTPErrorProcessor):
    """Returns a redirect as it is."""

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        return response


if __name__ == "__main__":
    main()
