"""The console in a real browser, on a real broker."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlencode

import confluent_kafka as ck
import pytest
import requests
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from playwright.sync_api import Browser, Page, expect

from ottla_broker.console.record_display import printable
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.browser import PHONE, WIDE, open_tab, run_chromium, take_screenshot
from tests.clients import librdkafka as rd
from tests.clients.hostile_values import HOSTILE
from tests.clients.sample_messages import START_MS, Message
from tests.ports import free_port
from tests.waiting import eventually

RECORDS = 600
MANY = 100_000
WITHIN_MS = 60_000


@pytest.fixture(scope="module")
def console() -> Iterator[BrokerProcess]:
    """A broker with a console and a schema registry, and with the topic `orders`."""
    with run_ottla_broker(
        num_partitions=1,
        http_listener=f"127.0.0.1:{free_port()}",
        console_enable="true",
        schema_registry_listener=f"127.0.0.1:{free_port()}",
    ) as it:
        rd.create_topic(it.bootstrap, "orders", partitions=6, retention_ms=604_800_000)
        producer = ck.Producer({"bootstrap.servers": it.bootstrap})
        for number in range(RECORDS):
            producer.produce(
                "orders", b'{"amount": %d}' % number, key=b"customer-%d" % (number % 20), timestamp=START_MS + number
            )
        assert producer.flush(30) == 0
        yield it


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_chromium() as found:
        yield found


@pytest.fixture
def tab(browser: Browser, console: BrokerProcess) -> Iterator[Page]:
    with open_tab(browser) as page:
        page.goto(url_of(console))
        yield page


def url_of(console: BrokerProcess) -> str:
    return f"http://{console.settings['http.listener']}"


def test_overview_shows_health_brokers_disks_and_plots(tab: Page) -> None:
    expect(tab.get_by_role("status")).to_have_text(
        "All is well: one broker, every partition has a leader and all its replicas."
    )
    expect(tab.get_by_role("region", name="Brokers").locator("tbody tr")).to_have_count(1)
    expect(tab.get_by_role("region", name="Disks").get_by_role("meter")).to_have_count(1)
    expect(tab.locator(".plots canvas")).to_have_count(3)
    take_screenshot(tab, "overview")


def test_topics_are_found_while_their_name_is_typed(tab: Page, console: BrokerProcess) -> None:
    for name in ("payments.refunds", "payments.new"):
        rd.create_topic(console.bootstrap, name)
    tab.get_by_role("link", name="Topics").click()
    search = tab.get_by_role("searchbox", name="Search")
    search.press_sequentially("pay re")
    rows = tab.get_by_role("region", name="Topics").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(tab).to_have_url(f"{url_of(console)}/topics?search=pay%20re")
    rows.get_by_role("link").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("payments.refunds")


def test_topic_shows_partitions_with_offsets_and_sizes_and_its_configs(tab: Page, console: BrokerProcess) -> None:
    tab.goto(f"{url_of(console)}/topics/orders")
    rows = tab.get_by_role("region", name="Partitions").locator("tbody tr")
    expect(rows).to_have_count(6)
    ends = [int(row.locator("td").nth(5).inner_text()) for row in rows.all()]
    assert sum(ends) == RECORDS
    assert all(row.locator("td").last.inner_text().endswith("KiB") for row in rows.all())
    first = tab.get_by_role("region", name="Configs").locator("tbody tr").first
    expect(first.locator("td").nth(0)).to_have_text("retention.ms")
    expect(first.locator("td").nth(2)).to_have_text("this topic")
    take_screenshot(tab, "topic")


def test_pages_are_used_with_the_keyboard(tab: Page) -> None:
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="Skip to the content")).to_be_focused()
    for _ in range(3):
        tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="Topics", exact=True)).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", level=1)).to_have_text("Topics")


# Messages


def test_messages_are_browsed_by_place_and_shown_in_full(tab: Page, console: BrokerProcess) -> None:
    tab.goto(f"{url_of(console)}/topics/orders/messages")
    rows = tab.get_by_role("region", name="Records").locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text('"amount": 599')
    take_screenshot(tab, "messages")
    tab.get_by_label("Partition").fill("2")
    tab.get_by_label("From").select_option("offset")
    tab.get_by_label("at", exact=True).fill("3")
    tab.get_by_role("button", name="Show", exact=True).click()
    assert rows.locator("td:nth-child(2)").all_inner_texts()[:3] == ["3", "4", "5"]
    rows.first.get_by_role("link").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("orders partition 2, offset 3")
    tab.get_by_role("link", name="as hexadecimal").click()
    expect(tab.locator("pre").last).to_contain_text("00000000  7b 22 61 6d")


def test_search_finds_the_one_record_among_many(tab: Page, console: BrokerProcess) -> None:
    rd.create_topic(console.bootstrap, "many", partitions=3)
    settings = {"bootstrap.servers": console.bootstrap, "compression.type": "lz4", "queue.buffering.max.messages": MANY}
    producer = ck.Producer(settings)
    for number in range(MANY):
        producer.produce("many", b'{"id": %d}' % number, partition=number % 3)
    assert producer.flush(60) == 0
    search(tab, console, "many", f"value.id == {MANY - 2} && value.id + 1 > 0")
    expect(tab.locator(".progress")).to_contain_text("everything is read", timeout=WITHIN_MS)
    expect(tab.locator(".progress")).to_contain_text(f"{MANY:,} read · 1 found")
    expect(tab.locator("#records tr")).to_have_count(1)
    expect(tab.locator("#records tr")).to_contain_text(f'"id": {MANY - 2}')
    take_screenshot(tab, "search")


def test_stopped_search_can_be_resumed(tab: Page, console: BrokerProcess) -> None:
    tab.goto(f"{url_of(console)}/topics/orders/messages?filter=value.amount >= 0&limit=100")
    expect(tab.locator(".progress")).to_contain_text("stopped, 500 offsets are not read", timeout=WITHIN_MS)
    first = tab.locator("#records tr").all_inner_texts()
    tab.get_by_role("link", name="Go on from here").click()
    expect(tab.locator(".progress")).to_contain_text("stopped, 400 offsets are not read", timeout=WITHIN_MS)
    second = tab.locator("#records tr").all_inner_texts()
    assert (len(first), len(second)) == (100, 100)
    assert not set(first) & set(second)


def test_search_reports_an_invalid_filter(tab: Page, console: BrokerProcess) -> None:
    search(tab, console, "orders", "valeu.amount > 3")
    expect(tab.locator(".problem.warning")).to_contain_text("the filter uses 'valeu'; allowed: key, value")
    search(tab, console, "orders", "value.price > 3")
    expect(tab.locator(".problem.warning")).to_contain_text("no result for 600 records", timeout=WITHIN_MS)


def test_records_are_followed_as_they_arrive(tab: Page, console: BrokerProcess) -> None:
    rd.create_topic(console.bootstrap, "followed", partitions=2)
    tab.goto(f"{url_of(console)}/topics/followed/messages?mode=follow")
    expect(tab.locator(".progress")).to_contain_text("waiting for more", timeout=WITHIN_MS)
    for number in range(3):
        rd.produce(
            console.bootstrap,
            "followed",
            [Message(None, b"record %d" % number, START_MS + number)],
            partition=number % 2,
        )
        expect(tab.locator("#records tr").first).to_contain_text(f"record {number}", timeout=WITHIN_MS)
    tab.get_by_role("button", name="Stop").click()
    expect(tab.locator(".progress")).to_contain_text("3 read · 3 found · stopped")


def test_hostile_values_are_shown_as_text(tab: Page, console: BrokerProcess) -> None:
    rd.create_topic(console.bootstrap, "hostile")
    producer = ck.Producer({"bootstrap.servers": console.bootstrap})
    for text in HOSTILE:
        producer.produce("hostile", text.encode(), key=text.encode(), headers=[(text, text.encode())])
    assert producer.flush(30) == 0
    pages = ["?start=oldest&form=text", "?mode=search&form=text", "?mode=follow&form=text", "?start=oldest"]
    pages += [f"/0/{offset}" for offset in range(len(HOSTILE))]
    for path in pages:
        tab.goto(f"{url_of(console)}/topics/hostile/messages{path}")
        if path.endswith("form=text"):
            shown = 10 if "follow" in path else len(HOSTILE)
            expect(tab.locator("#records > tr")).to_have_count(shown, timeout=WITHIN_MS)
            texts = [
                normalize_spaces(text) for text in tab.locator("#records > tr > td:nth-child(4)").all_inner_texts()
            ]
            assert set(texts) <= {normalize_spaces(printable(text)) for text in HOSTILE}, path
        assert_is_text(tab)
    name = "%3Cscript%3Eattacked()%3C%2Fscript%3E"
    for path in (f"/topics?search={name}", f"/topics/hostile/messages?key={name}&filter={name}"):
        tab.goto(f"{url_of(console)}{path}")
        assert tab.locator("main script").count() == 0


def assert_is_text(tab: Page) -> None:
    """The page runs and contains nothing of an attack."""
    assert tab.evaluate("typeof attacked") == "undefined"
    attacks = "main script, main iframe, main img, main svg, main base, main style, main [onerror], main [onfocus]"
    assert tab.locator(attacks).count() == 0


def test_export_has_every_record_as_a_line_of_json(console: BrokerProcess) -> None:
    with urllib.request.urlopen(f"{url_of(console)}/topics/orders/messages/export?mode=search") as response:
        assert response.headers["Content-Disposition"] == 'attachment; filename="orders.jsonl"'
        lines = [json.loads(line) for line in response]
    assert sorted(line["value"]["amount"] for line in lines) == list(range(RECORDS))


def search(tab: Page, console: BrokerProcess, topic: str, expression: str) -> None:
    tab.goto(f"{url_of(console)}/topics/{topic}/messages?limit=1")
    tab.get_by_label("At most").fill("50")
    tab.get_by_label("Filter").fill(expression)
    tab.get_by_role("button", name="Search all").click()


def normalize_spaces(text: str) -> str:
    return " ".join(text.split())


# Groups


def test_group_shows_members_assignment_and_lag(tab: Page, console: BrokerProcess) -> None:
    with consumer(console, "billing", "group-classic", commits=RECORDS - 10):
        tab.get_by_role("link", name="Groups").click()
        tab.get_by_role("link", name="billing").click()
        figures = tab.locator(".figures")
        expect(figures).to_contain_text("Stable")
        expect(figures).to_contain_text("Lag in records10")
        rows = tab.get_by_role("region", name="Partitions").locator("tbody tr")
        expect(rows).to_have_count(6)
        expect(rows.first).to_contain_text("group-classic")
        expect(tab.get_by_role("region", name="Members").locator("tbody tr")).to_have_count(1)
        take_screenshot(tab, "group")
        tab.get_by_role("link", name="Try an offset reset").click()
        expect(tab.locator(".problem.warning")).to_contain_text("only while it has no members")
        tab.locator("select[name=to]").select_option("shift")
        tab.get_by_label("at", exact=True).fill("-1000")
        tab.get_by_role("button", name="Try").click()
        offsets = tab.get_by_role("region", name="Offsets").locator("tbody tr")
        expect(offsets).to_have_count(6)
        assert {row.locator("td").nth(3).inner_text() for row in offsets.all()} == {"0"}
        take_screenshot(tab, "group-reset")
        undo = tab.request.get(url_of(console) + str(tab.get_by_role("link", name="undo").get_attribute("href")))
        lines = undo.text().splitlines()
        assert sum(int(line.split(",")[2]) for line in lines) == RECORDS - 10
    tab.goto(f"{url_of(console)}/topics/orders")
    readers = tab.get_by_role("region", name="Groups that read it").locator("tbody tr")
    expect(readers.filter(has_text="billing").locator("td").last).to_have_text("10")


def test_groups_of_the_consumer_protocol_and_strange_names_are_shown(tab: Page, console: BrokerProcess) -> None:
    name = "<i>a/b?c&d</i>"
    with consumer(console, name, "group-newer", commits=1, group_protocol="consumer"):
        tab.goto(f"{url_of(console)}/groups?search=b%3Fc")
        tab.get_by_role("link", name=name).click()
        expect(tab.get_by_role("heading", level=1)).to_have_text(name)
        expect(tab.locator(".figures")).to_contain_text("uniform")
        expect(tab.get_by_role("region", name="Members").locator("tbody tr")).to_contain_text(
            "orders: 0, 1, 2, 3, 4, 5"
        )


@contextmanager
def consumer(
    console: BrokerProcess, group: str, client_id: str, *, commits: int, **settings: object
) -> Iterator[ck.Consumer]:
    """A consumer that has read and committed some records of `orders`, and stays in its group."""
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
        for _ in range(commits):
            message = eventually(lambda: made.poll(1.0), within_s=60)
            assert message.error() is None
            made.store_offsets(message)
        made.commit(asynchronous=False)
        yield made
    finally:
        made.close()


# Schemas


def test_subject_shows_its_schema_and_changes_and_checks_another(tab: Page, console: BrokerProcess) -> None:
    register(console, "shipments-value", SHIPMENT, SHIPMENT.replace("]}", f",{NOTE}]}}"))
    tab.get_by_role("link", name="Schemas").click()
    tab.get_by_role("searchbox", name="Search").press_sequentially("shipm")
    tab.get_by_role("link", name="shipments-value").click()
    expect(tab.locator(".figures")).to_contain_text("BACKWARD")
    expect(tab.get_by_role("region", name="Changes").locator(".added")).to_contain_text(['"name": "note"'])
    take_screenshot(tab, "subject")
    tab.get_by_role("textbox", name="Schema").fill(SHIPMENT.replace("long", "string"))
    tab.get_by_role("button", name="Check").click()
    expect(tab.get_by_role("alert")).to_contain_text("TYPE_MISMATCH")
    tab.get_by_role("textbox", name="Schema").fill(SHIPMENT)
    tab.get_by_role("button", name="Check").click()
    expect(tab.get_by_role("main").get_by_role("status")).to_contain_text("compatible with version 2")
    tab.get_by_role("navigation", name="Versions").get_by_role("link", name="1").click()
    expect(tab.get_by_role("region", name="Changes")).to_have_count(0)


def test_values_are_decoded_and_searched_by_their_schema(tab: Page, console: BrokerProcess) -> None:
    rd.create_topic(console.bootstrap, "shipments")
    client = SchemaRegistryClient({"url": f"http://{console.settings['schema.registry.listener']}"})
    serialize = AvroSerializer(client, SHIPMENT)
    context = SerializationContext("shipments", MessageField.VALUE)
    values = [serialize({"id": number}, context) for number in range(30)]
    rd.produce(console.bootstrap, "shipments", [Message(b"k", value, START_MS) for value in values])
    tab.goto(f"{url_of(console)}/topics/shipments/messages?start=oldest")
    rows = tab.locator("#records > tr")
    expect(rows.first).to_contain_text('{"id": 0}')
    expect(rows.first).to_contain_text("AVRO, schema ")
    take_screenshot(tab, "messages-decoded")
    rows.first.get_by_role("link").click()
    expect(tab.locator("pre").last).to_contain_text('{"id": 0}')
    tab.get_by_role("link", name="as hexadecimal").click()
    expect(tab.locator("pre").last).to_contain_text("00000000  00 00 00")
    search(tab, console, "shipments", "value.id == 17")
    expect(tab.locator(".progress")).to_contain_text("30 read · 1 found", timeout=WITHIN_MS)
    expect(rows).to_contain_text(['{"id": 17}'])


def test_hostile_schemas_are_shown_as_text(tab: Page, console: BrokerProcess) -> None:
    allowed = [text for text in HOSTILE if text.isprintable() and not set(text) & set("/{}")]  # paths of the registry
    for text in allowed:
        register(console, f"hostile-{text}", json.dumps({"type": "string", "doc": "".join(HOSTILE), "x": text}))
    for path in ["/schemas", *(f"/schema?{urlencode({'subject': f'hostile-{text}'})}" for text in allowed[::4])]:
        tab.goto(f"{url_of(console)}{path}")
        assert_is_text(tab)


def register(console: BrokerProcess, subject: str, *schemas: str, kind: str = "AVRO") -> int:
    """The id of the last of them."""
    url = f"http://{console.settings['schema.registry.listener']}/subjects/{quote(subject, safe='')}/versions"
    for schema in schemas:
        answer = requests.post(url, json={"schema": schema, "schemaType": kind}, timeout=60)
        assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


SHIPMENT = '{"type":"record","name":"Shipment","fields":[{"name":"id","type":"long"}]}'
NOTE = '{"name":"note","type":"string","default":""}'


# Cluster and access


def test_cluster_shows_its_quorum_its_log_and_the_departure_of_a_broker(tab: Page, console: BrokerProcess) -> None:
    tab.get_by_role("link", name="Cluster").click()
    replicas = tab.get_by_role("region", name="Replicas of the metadata log").locator("tbody tr")
    expect(replicas).to_have_count(1)
    expect(replicas).to_contain_text("leader")
    take_screenshot(tab, "cluster")
    tab.get_by_label("What would happen if broker").select_option("1")
    tab.get_by_role("button", name="Simulate").click()
    expect(tab.get_by_role("main").get_by_role("status")).to_contain_text("would be offline until it returns")
    expect(tab.get_by_role("region", name="Offline").locator("tbody tr").first).to_contain_text("none")
    take_screenshot(tab, "departure")
    tab.goto(f"{url_of(console)}/cluster")
    tab.get_by_role("link", name="Records of the metadata log").click()
    tab.get_by_label("From offset").fill("0")
    tab.get_by_role("button", name="Show").click()
    rows = tab.get_by_role("region", name="Records of the metadata log").locator("tbody tr")
    expect(rows.filter(has_text="register-broker").first).to_be_visible()
    take_screenshot(tab, "metadata")


def test_access_pages_are_reached_from_each_other(tab: Page, console: BrokerProcess) -> None:
    tab.get_by_role("link", name="Access").click()
    expect(tab.get_by_role("main")).to_contain_text("have no authorizer")
    tabs = tab.get_by_role("navigation", name="Pages of access")
    for name in ("Why may X do Y", "Users", "Quotas"):
        tabs.get_by_role("link", name=name).click()
        expect(tabs.locator("[aria-current]")).to_have_text(name)


PAGES = (
    "/cluster",
    "/cluster/departure?broker=1",
    "/cluster/metadata",
    "/access",
    "/access/users",
    "/access/quotas",
    "/schemas",
    "/schema?subject=shipments-value",
    "/groups",
    "/group?id=billing",
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages?filter=value.amount<9",
)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_pages_fit_the_screen_and_texts_have_contrast(
    browser: Browser, console: BrokerProcess, size: tuple[int, int], dark: bool
) -> None:
    with open_tab(browser, size, dark=dark) as page:
        for path in PAGES:
            page.goto(url_of(console) + path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0], path
            assert page.evaluate(LOW_CONTRASTS) == [], path
            name = path.partition("?")[0].strip("/").replace("/", "-") or "overview"
            take_screenshot(page, f"{name}-{size[0]}-{'dark' if dark else 'light'}")


# Texts whose contrast with the ground behind them is below WCAG 2.2's 4.5:1 (level AA).
LOW_CONTRASTS = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => colour.slice(0, 3)
    .map((one) => one / 255).map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    const [low, high] = [luminance(rgb(getComputedStyle(element).color)), luminance(ground(element))]
      .sort((one, other) => one - other);
    if ((high + 0.05) / (low + 0.05) < 4.5) found.push(element.tagName + " " + element.textContent.trim().slice(0, 40));
  }
  return found;
}"""
