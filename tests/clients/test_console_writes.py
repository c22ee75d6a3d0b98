"""Pages of the console that write, in a real browser, on a real broker of an open cluster with
`console.write=everyone`, as `ottla up` sets it.
"""

from collections.abc import Iterator

import confluent_kafka as ck
import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from tests.brokers import BrokerProcess
from tests.browser import open_tab, take_picture, take_screenshot
from tests.clients import librdkafka as rd
from tests.clients.console_pages import RECORDS, run_console, run_consumer, url_of


@pytest.fixture(scope="module")
def console() -> Iterator[BrokerProcess]:
    with run_console(write="everyone") as broker:
        yield broker


def audit_lines(console: BrokerProcess, request: str) -> list[str]:
    """Lines of the audit log about the console's requests of this name."""
    lines = [line for line in console.log_tail().splitlines() if '"listener":"http.listener"' in line]
    return [line for line in lines if f'"request":"{request}"' in line]


def test_offsets_of_a_group_are_reset_and_the_reset_is_undone(tab: Page, console: BrokerProcess) -> None:
    with run_consumer(console, "billing", "writes", commit_count=RECORDS):
        pass
    tab.goto(f"{url_of(console)}/group?id=billing")
    expect(tab.locator(".figures")).to_contain_text("Lag in records0")
    tab.get_by_role("link", name="Reset offsets").click()
    tab.locator("select[name=to]").select_option("earliest")
    tab.get_by_role("button", name="Dry run").click()
    expect(tab.get_by_role("region", name="Offsets").locator("tbody tr")).to_have_count(6)
    take_picture(tab, "reset")
    tab.get_by_role("button", name="Reset the offsets").click()
    expect(tab.get_by_role("main").get_by_role("status")).to_have_text("Offsets of 6 partitions are committed.")
    take_screenshot(tab, "reset-done")
    assert sum(committed_offsets(console, "billing")) == 0
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Download the undo file").click()
    assert sum(int(line.split(",")[2]) for line in download.value.path().read_text().splitlines()) == RECORDS
    tab.get_by_role("button", name="Undo", exact=True).click()
    expect(tab.get_by_role("region", name="Offsets").locator("tbody tr")).to_have_count(6)
    assert sum(committed_offsets(console, "billing")) == RECORDS
    lines = audit_lines(console, "OffsetCommit")
    assert len(lines) == 2
    assert all('"operation":"ALTER_OFFSETS"' in it and '"name":"billing"' in it and '"done"' in it for it in lines)


def committed_offsets(console: BrokerProcess, group: str) -> list[int]:
    client = ck.Consumer({"bootstrap.servers": console.bootstrap, "group.id": group})
    try:
        return [it.offset for it in client.committed([ck.TopicPartition("orders", it) for it in range(6)], timeout=30)]
    finally:
        client.close()


def test_record_is_produced_and_copied_to_another_topic(tab: Page, console: BrokerProcess) -> None:
    for topic, partitions in (("payments", 4), ("payments.retry", 1)):
        rd.create_topic(console.bootstrap, topic, partitions=partitions)
    tab.goto(f"{url_of(console)}/topics/payments")
    tab.get_by_role("link", name="Produce a record").click()
    tab.get_by_label("Key", exact=True).fill("customer-1")
    tab.get_by_label("Value", exact=True).fill('{"amount": 7,\n"text": "<b>ä</b>"}')
    tab.get_by_label("Headers").fill("trace: 00f0\nsource: console")
    take_screenshot(tab, "produce")
    tab.get_by_role("button", name="Produce").click()
    expect(tab.get_by_role("heading", level=1)).to_contain_text("payments partition")
    expect(tab.locator("pre").nth(1)).to_contain_text('"text": "<b>ä</b>"')
    take_screenshot(tab, "produced-record")
    tab.get_by_role("link", name="copy to a topic").click()
    tab.get_by_label("To topic").fill("payments.retry")
    take_screenshot(tab, "copy-record")
    tab.get_by_role("button", name="Produce the copy").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("payments.retry partition 0, offset 0")
    original, copy = (only_record(console, topic) for topic in ("payments", "payments.retry"))
    assert original.partition() == partition_by_librdkafka(console, b"customer-1")
    for record in (original, copy):
        assert (record.key(), record.value()) == (b"customer-1", '{"amount": 7,\n"text": "<b>ä</b>"}'.encode())
        assert record.headers() == [("trace", b"00f0"), ("source", b"console")]
    lines = audit_lines(console, "Produce")
    assert [('"name":"payments"' in it, '"operation":"WRITE"' in it, '"done"' in it) for it in lines] == [
        (True, True, True),
        (False, True, True),
    ]


def only_record(console: BrokerProcess, topic: str) -> ck.Message:
    settings = {"bootstrap.servers": console.bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    client = ck.Consumer(settings)
    client.subscribe([topic])
    try:
        message = client.poll(60)
        assert message is not None and message.error() is None
        return message
    finally:
        client.close()


def partition_by_librdkafka(console: BrokerProcess, key: bytes) -> int:
    """The partition that librdkafka chooses for a key in a topic with as many partitions as
    `payments`.
    """
    rd.create_topic(console.bootstrap, "keys", partitions=4)
    found: list[int] = []
    producer = ck.Producer({"bootstrap.servers": console.bootstrap, "partitioner": "murmur2_random"})
    producer.produce("keys", b"", key, on_delivery=lambda _, message: found.append(message.partition()))
    assert producer.flush(30) == 0
    return found[0]


def test_topic_is_created_changed_and_deleted(tab: Page, console: BrokerProcess) -> None:
    tab.get_by_role("link", name="Topics").click()
    tab.get_by_role("link", name="Create a topic").click()
    tab.get_by_label("Name").fill("returns")
    tab.get_by_label("Partitions").fill("3")
    tab.get_by_label("Configs").fill("retention.ms=86400000\ncleanup.policy=delete")
    take_screenshot(tab, "create-topic")
    tab.get_by_role("button", name="Create").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("returns")
    expect(tab.get_by_role("region", name="Partitions").locator("tbody tr")).to_have_count(3)
    tab.get_by_role("link", name="Change retention.ms").click()
    tab.get_by_label("Value").fill("3600000")
    take_screenshot(tab, "change-config")
    tab.get_by_role("button", name="Set").click()
    row = tab.get_by_role("region", name="Configs").locator("tbody tr").filter(has_text="retention.ms").first
    expect(row.locator("td").nth(1)).to_have_text("3600000")
    tab.get_by_role("link", name="Change retention.ms").click()
    tab.get_by_role("button", name="Remove").click()
    expect(row.locator("td").nth(2)).not_to_have_text("this topic")
    tab.get_by_role("link", name="Delete", exact=True).click()
    take_screenshot(tab, "delete-topic")
    tab.get_by_label("Name of the topic").fill("returns")
    tab.get_by_role("button", name="Delete the topic").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("Topics")
    assert tab.request.get(f"{url_of(console)}/topics/returns").status == 404
    for request, operation in (("CreateTopics", "CREATE"), ("DeleteTopics", "DELETE")):
        (line,) = audit_lines(console, request)
        assert f'"operation":"{operation}"' in line and '"name":"returns"' in line and '"done"' in line
    assert len(audit_lines(console, "IncrementalAlterConfigs")) == 2


def test_refused_forms_say_why_and_keep_what_was_entered(tab: Page, console: BrokerProcess) -> None:
    url = f"{url_of(console)}/topics/orders/produce"
    tab.goto(url)
    token = tab.locator("main input[name=token]").input_value()
    headers = {"Origin": url_of(console)}
    form = {"value": "7b", "value-form": "hexadecimal", "headers": "no colon"}
    for fields, status, text in (
        ({"token": token, **form}, 400, "expected lines of the form name: value, not &#39;no colon&#39;"),
        ({"token": token, **form, "headers": "", "partition": "6"}, 400, "orders has no partition &#39;6&#39;"),
        ({"token": token, **form, "value": "7"}, 400, "value: expected hexadecimal digits"),
        (form, 403, "This form is not of your session"),
        ({"token": "guessed", **form}, 403, "This form is not of your session"),
    ):
        answer = requests.post(url, data=fields, headers=headers, timeout=30)
        assert (answer.status_code, text in answer.text) == (status, True), answer.text
        assert status == 403 or f">{fields['value']}</textarea>" in answer.text
    foreign = requests.post(url, data={"token": token, **form}, headers={"Origin": "http://other.example"}, timeout=30)
    assert foreign.status_code == 403
    assert all("orders" not in it for it in audit_lines(console, "Produce"))


def test_offsets_changed_since_the_dry_run_and_offsets_of_a_group_with_members_are_not_reset(
    tab: Page, console: BrokerProcess
) -> None:
    headers = {"Origin": url_of(console)}
    with run_consumer(console, "shipping", "writes", commit_count=10):
        tab.goto(f"{url_of(console)}/group/reset?id=shipping&to=earliest")
        form = {field: tab.locator(f"main input[name={field}]").last.input_value() for field in ("token", "changes")}
        form["id"] = "shipping"
        answer = requests.post(f"{url_of(console)}/group/reset", data=form, headers=headers, timeout=30)
        assert answer.status_code == 409 and "shipping has members. Stop them first." in answer.text
    before = committed_offsets(console, "shipping")
    stale = [",".join([*line.split(",")[:2], "12345", "0"]) for line in form["changes"].splitlines()]
    answer = requests.post(
        f"{url_of(console)}/group/reset", data={**form, "changes": "\n".join(stale)}, headers=headers, timeout=30
    )
    assert answer.status_code == 409 and "was 12345, and is" in answer.text
    assert committed_offsets(console, "shipping") == before


def test_console_only_reads_where_it_may_not_write(browser: Browser) -> None:
    with run_console() as reading, open_tab(browser) as tab:
        tab.goto(f"{url_of(reading)}/topics/orders")
        expect(tab.get_by_role("link", name="Messages")).to_be_visible()
        for name in ("Produce a record", "Delete", "Change retention.ms"):
            expect(tab.get_by_role("link", name=name, exact=True)).to_have_count(0)
        for path in ("/topics/orders/produce", "/topics/orders/delete", "/topic/create", "/group/reset"):
            answer = requests.post(
                url_of(reading) + path, data={"id": "g"}, headers={"Origin": url_of(reading)}, timeout=30
            )
            assert answer.status_code == 403, path
            assert "This console only reads for User:ANONYMOUS: console.write=login." in answer.text
