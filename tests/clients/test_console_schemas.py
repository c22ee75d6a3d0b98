"""The pages of schemas in a real browser, on a real broker."""

import json
from urllib.parse import urlencode

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from playwright.sync_api import Page, expect

from tests.brokers import BrokerProcess
from tests.browser import take_picture, take_screenshot
from tests.clients import librdkafka as rd
from tests.clients.console_pages import NOTE, SHIPMENT, WITHIN_MS, assert_no_attack, register, search, url_of
from tests.clients.hostile_values import HOSTILE
from tests.clients.sample_messages import START_MS, Message


def test_subject_shows_its_schema_and_changes_and_checks_another(tab: Page, console: BrokerProcess) -> None:
    register(console, "shipments-value", SHIPMENT, SHIPMENT.replace("]}", f",{NOTE}]}}"))
    tab.get_by_role("link", name="Schemas").click()
    tab.get_by_role("searchbox", name="Search").press_sequentially("shipm")
    # The search replaces the rows; a click on a former one would be lost.
    expect(tab.get_by_role("status")).to_contain_text("“shipm”")
    tab.get_by_role("link", name="shipments-value").click()
    expect(tab.locator(".figures")).to_contain_text("BACKWARD")
    expect(tab.get_by_role("region", name="Changes").locator(".added")).to_contain_text(['"name": "note"'])
    take_picture(tab, "schema")
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
    # A subject is part of a path of the registry's REST API, which rules out some characters.
    allowed = [text for text in HOSTILE if text.isprintable() and not set(text) & set("/{}")]
    for text in allowed:
        register(console, f"hostile-{text}", json.dumps({"type": "string", "doc": "".join(HOSTILE), "x": text}))
    for path in ["/schemas", *(f"/schema?{urlencode({'subject': f'hostile-{text}'})}" for text in allowed[::4])]:
        tab.goto(f"{url_of(console)}{path}")
        assert_no_attack(tab)
