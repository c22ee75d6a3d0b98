"""The console that the tests in a browser share, and what several of these tests do with it."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar
from urllib.parse import quote

import confluent_kafka as ck
import requests
from playwright.sync_api import Page

from tests.brokers import BrokerProcess, run_ottla_broker
from tests.clients import librdkafka as rd
from tests.ports import free_port
from tests.waiting import eventually

T = TypeVar("T")

RECORDS = 600
"""Number of records of the topic `orders`, whose amounts are 0 to 599."""
AGE_S = 3_660
"""Age of the first record when it is written."""
WITHIN_MS = 60_000
SHIPMENT = '{"type":"record","name":"Shipment","fields":[{"name":"id","type":"long"}]}'
NOTE = '{"name":"note","type":"string","default":""}'

# True when every plot has a point or line of a series right of the `share` of its width.
PLOTS_ARE_DRAWN = """(share) => [...document.querySelectorAll(".plots canvas")].every((canvas) => {
  const left = Math.floor(canvas.width * share);
  const pixels = canvas.getContext("2d").getImageData(left, 0, canvas.width - left, canvas.height).data;
  for (let at = 0; at < pixels.length; at += 4) {
    if (pixels[at + 3] > 200 && Math.abs(pixels[at + 2] - pixels[at]) > 100) return true;
  }
  return false;
})"""


@contextmanager
def run_console(write: str = "login") -> Iterator[BrokerProcess]:
    """A broker of an open cluster with a console, a schema registry and the topic `orders`.
    `write`: the setting `console.write`.
    """
    with run_ottla_broker(
        num_partitions=1,
        http_listener=f"127.0.0.1:{free_port()}",
        console_enable="true",
        console_write=write,
        schema_registry_listener=f"127.0.0.1:{free_port()}",
    ) as broker:
        rd.create_topic(broker.bootstrap, "orders", partitions=6, retention_ms=604_800_000)
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
        first_ms = int(time.time() * 1000) - AGE_S * 1000
        for number in range(RECORDS):
            producer.produce(
                "orders", b'{"amount": %d}' % number, key=b"customer-%d" % (number % 20), timestamp=first_ms + number
            )
        assert producer.flush(30) == 0
        yield broker


def run_on_thread(call: Callable[[], T]) -> T:
    """Runs a function that starts an event loop. The main thread has that of Playwright already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def url_of(console: BrokerProcess) -> str:
    return f"http://{console.settings['http.listener']}"


def search(tab: Page, console: BrokerProcess, topic: str, expression: str) -> None:
    tab.goto(f"{url_of(console)}/topics/{topic}/messages?limit=1")
    tab.get_by_label("At most").fill("50")
    tab.get_by_label("Filter").fill(expression)
    tab.get_by_role("button", name="Search all").click()


def assert_no_attack(tab: Page) -> None:
    """Hostile values on the page are text: none has run, and none has become an element."""
    assert tab.evaluate("typeof attacked") == "undefined"
    attacks = "main script, main iframe, main img, main svg, main base, main style, main [onerror], main [onfocus]"
    assert tab.locator(attacks).count() == 0


@contextmanager
def run_consumer(
    console: BrokerProcess, group: str, client_id: str, *, commit_count: int, **settings: object
) -> Iterator[ck.Consumer]:
    """A consumer that has read and committed `commit_count` records of `orders`, and stays in its
    group until the end of the block.
    """
    made = ck.Consumer(
        {
            "bootstrap.servers": console.bootstrap,
            "group.id": group,
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
        | rd.to_librdkafka_names(settings)
    )
    made.subscribe(["orders"])
    try:
        for _ in range(commit_count):
            message = eventually(lambda: made.poll(1.0), within_s=60)
            assert message.error() is None
            made.store_offsets(message)
        made.commit(asynchronous=False)
        yield made
    finally:
        made.close()


def register(console: BrokerProcess, subject: str, *schemas: str, kind: str = "AVRO") -> int:
    """Registers schemas as versions of a subject. Returns the id of the last one."""
    registry, name = console.settings["schema.registry.listener"], quote(subject, safe="")
    url = f"http://{registry}/subjects/{name}/versions"
    for schema in schemas:
        answer = requests.post(url, json={"schema": schema, "schemaType": kind}, timeout=60)
        assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])
