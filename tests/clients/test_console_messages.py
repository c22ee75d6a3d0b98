"""The pages of messages in a real browser, on a real broker."""

import confluent_kafka as ck
import duckdb
from playwright.sync_api import Page, expect

from ottla_broker.console.record_display import escape_unprintable
from tests.brokers import BrokerProcess
from tests.browser import take_picture, take_screenshot
from tests.clients import librdkafka as rd
from tests.clients.console_pages import RECORDS, WITHIN_MS, assert_no_attack, search, url_of
from tests.clients.hostile_values import HOSTILE
from tests.clients.sample_messages import START_MS, Message

MANY = 300_000  # at least ten batches in each partition
BATCH = 10_000
READERS = {
    "jsonl": "SELECT value.amount FROM read_json('{}', format = 'newline_delimited')",
    "csv": "SELECT (value::json->>'amount')::int FROM read_csv('{}')",
    "parquet": "SELECT (value::json->>'amount')::int FROM read_parquet('{}')",
}


def test_messages_are_browsed_by_partition_and_offset_and_shown_in_full(tab: Page, console: BrokerProcess) -> None:
    tab.goto(f"{url_of(console)}/topics/orders/messages")
    rows = tab.get_by_role("region", name="Records").locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text('"amount": 599')
    take_picture(tab, "messages")
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
    settings = {
        "bootstrap.servers": console.bootstrap,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 2 * BATCH,
        "batch.num.messages": BATCH,
        "linger.ms": 50,
    }
    producer = ck.Producer(settings)
    for first in range(0, MANY, BATCH):
        messages = [{"value": b'{"id": %d}' % number} for number in range(first, first + BATCH)]
        assert producer.produce_batch("many", messages, partition=first // BATCH % 3) == BATCH
        assert producer.flush(60) == 0
    search(tab, console, "many", f"value.id == {MANY - 2} && value.id + 1 > 0")
    expect(tab.locator(".progress")).to_contain_text("everything is read", timeout=4 * WITHIN_MS)
    expect(tab.locator(".progress")).to_contain_text(f"{MANY:,} read · 1 found")
    expect(tab.locator("#records tr")).to_have_count(1)
    expect(tab.locator("#records tr")).to_contain_text(f'"id": {MANY - 2}')
    take_screenshot(tab, "search")


def test_search_is_used_with_the_keyboard(tab: Page, console: BrokerProcess) -> None:
    tab.goto(f"{url_of(console)}/topics/orders/messages")
    expression = tab.get_by_label("Filter")
    for _ in range(40):
        tab.keyboard.press("Tab")
        if expression.evaluate("one => one === document.activeElement"):
            break
    tab.keyboard.type("value.amount == 599")
    tab.keyboard.press("Enter")
    expect(tab.locator(".progress")).to_contain_text("1 found", timeout=WITHIN_MS)
    expect(tab.locator("#records tr")).to_have_count(1)


def test_stopped_search_can_be_resumed(tab: Page, console: BrokerProcess) -> None:
    tab.goto(f"{url_of(console)}/topics/orders/messages?filter=value.amount >= 0&limit=100")
    expect(tab.locator(".progress")).to_contain_text("stopped, 500 offsets are not read", timeout=WITHIN_MS)
    first = tab.locator("#records tr").all_inner_texts()
    tab.get_by_role("link", name="Continue from here").click()
    expect(tab.locator(".progress")).to_contain_text("stopped, 400 offsets are not read", timeout=WITHIN_MS)
    second = tab.locator("#records tr").all_inner_texts()
    assert (len(first), len(second)) == (100, 100)
    assert not set(first) & set(second)


def test_search_reports_an_invalid_filter_and_records_without_a_result(tab: Page, console: BrokerProcess) -> None:
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
            row_count = 10 if "follow" in path else len(HOSTILE)
            expect(tab.locator("#records > tr")).to_have_count(row_count, timeout=WITHIN_MS)
            texts = [
                normalize_spaces(text) for text in tab.locator("#records > tr > td:nth-child(4)").all_inner_texts()
            ]
            assert set(texts) <= {normalize_spaces(escape_unprintable(text)) for text in HOSTILE}, path
        assert_no_attack(tab)
    name = "%3Cscript%3Eattacked()%3C%2Fscript%3E"
    for path in (f"/topics?search={name}", f"/topics/hostile/messages?key={name}&filter={name}"):
        tab.goto(f"{url_of(console)}{path}")
        assert tab.locator("main script").count() == 0


def test_export_has_every_record_in_the_chosen_format(tab: Page, console: BrokerProcess) -> None:
    tab.goto(f"{url_of(console)}/topics/orders/messages")
    for label, export_format in (("JSON lines", "jsonl"), ("CSV", "csv"), ("Parquet", "parquet")):
        tab.get_by_label("Format").select_option(label)
        with tab.expect_download() as download:
            tab.get_by_role("button", name="Export").click()
        assert download.value.suggested_filename == f"orders.{export_format}"
        found = duckdb.sql(READERS[export_format].format(download.value.path()))
        assert found is not None
        assert sorted(amount for (amount,) in found.fetchall()) == list(range(RECORDS)), export_format


def normalize_spaces(text: str) -> str:
    return " ".join(text.split())
