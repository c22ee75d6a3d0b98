"""Records that the console encodes by schemas of the registry, read by Confluent's libraries."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest
import requests
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from playwright.sync_api import Page, expect

from ottla_broker.registry.languages.protobuf_descriptor import load_descriptor
from tests.brokers import BrokerProcess
from tests.browser import take_screenshot
from tests.clients import librdkafka as rd
from tests.clients.console_pages import NOTE, SHIPMENT, register, run_console, url_of

TOPIC = "shipments"
KEY = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "title": "key"}'
PARCEL = 'syntax = "proto3"; package post; message First { string a = 1; } message Parcel { int64 grams = 1; }'


@pytest.fixture(scope="module")
def console() -> Iterator[BrokerProcess]:
    with run_console(write="everyone") as broker:
        rd.create_topic(broker.bootstrap, TOPIC)
        register(broker, f"{TOPIC}-value", SHIPMENT, SHIPMENT.replace("]}", f",{NOTE}]}}"))
        register(broker, f"{TOPIC}-key", KEY, kind="JSON")
        register(broker, "parcels", PARCEL, kind="PROTOBUF")
        yield broker


def read_all(console: BrokerProcess, count: int) -> list[ck.Message]:
    settings = {"bootstrap.servers": console.bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"}
    client = ck.Consumer(settings)
    client.assign([ck.TopicPartition(TOPIC, 0, 0)])
    try:
        return list(client.consume(count, 60))
    finally:
        client.close()


def test_records_by_schema_are_read_by_deserialisers_and_invalid_ones_are_refused(
    tab: Page, console: BrokerProcess
) -> None:
    url = f"{url_of(console)}/topics/{TOPIC}/produce"
    tab.goto(url)
    tab.get_by_label("Form of the key").select_option("JSON by schema")
    tab.get_by_label("Key", exact=True).fill('{"id": 7}')
    tab.get_by_label("Form of the value").select_option("JSON by schema")
    tab.get_by_label("Value", exact=True).fill('{"id": 7, "note": "fragile"}')
    tab.get_by_text("Schemas of the key and the value").click()
    take_screenshot(tab, "produce-by-schema")
    tab.get_by_role("button", name="Produce").click()
    expect(tab.get_by_role("heading", level=1)).to_contain_text("partition 0, offset 0")
    expect(tab.locator("pre").nth(1)).to_contain_text('"note": "fragile"')
    tab.goto(url)
    token = tab.locator("main input[name=token]").input_value()

    def produce(**fields: str) -> requests.Response:
        form = {"token": token} | {name.replace("_", "-"): text for name, text in fields.items()}
        headers = {"Origin": url_of(console)}
        return requests.post(url, data=form, headers=headers, allow_redirects=False, timeout=30)

    by_schema: dict[str, str] = {"value_form": "JSON by schema"}
    assert produce(value='{"id": 8}', value_version="1", **by_schema).status_code == 303
    parcel = {"value": '{"grams": 250}', "value_subject": "parcels", "value_message": "Parcel", **by_schema}
    assert produce(**parcel).status_code == 303
    for fields, message in (
        ({"value": '{"id": "x"}'}, "value, by version 2 of shipments-value: field id: expected an integer of 64 bits"),
        ({"value_subject": "none"}, "value: there is no subject &#39;none&#39; that User:ANONYMOUS may describe"),
        ({"value_version": "3"}, "value: shipments-value has no version &#39;3&#39;; versions: 1, 2"),
        ({"value_subject": "parcels", "value_message": "X"}, "expected the name of a message, one of First, Parcel"),
    ):
        answer = produce(**{"value": "{}"} | by_schema | fields)
        assert (answer.status_code, message in answer.text) == (400, True), answer.text
        assert "<option selected>JSON by schema</option>" in answer.text
    assert_records(console)


def assert_records(console: BrokerProcess) -> None:
    client = SchemaRegistryClient({"url": f"http://{console.settings['schema.registry.listener']}"})
    first, second, third = read_all(console, 3)
    of_value = SerializationContext(TOPIC, MessageField.VALUE)
    read_avro = AvroDeserializer(client)
    assert read_avro(first.value(), of_value) == {"id": 7, "note": "fragile"}
    assert read_avro(second.value(), of_value) == {"id": 8}
    read_key = JSONDeserializer(KEY, schema_registry_client=client)
    assert read_key(first.key(), SerializationContext(TOPIC, MessageField.KEY)) == {"id": 7}
    parcel: Any = message_factory.GetMessageClass(load_descriptor(PARCEL).message_types_by_name["Parcel"])
    read_parcel = ProtobufDeserializer(parcel, {"use.deprecated.format": False}, client)
    assert read_parcel(third.value(), of_value).grams == 250
