"""A broker's registry takes over a topic `_schemas` that another registry has written, and serves
clients of that registry. The records are those of tests/unit/registry/test_other_registries.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
import requests
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from ottla_broker.registry.languages.protobuf_descriptor import load_descriptor
from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.ports import free_port
from tests.unit.registry.test_other_registries import CONFLUENT, KARAPACE

RECORDS = Path(__file__).parents[1] / "unit" / "registry"
USER = (
    '{"type":"record","name":"User","fields":[{"name":"name","type":"string"},{"name":"age","type":"int","default":0},'
    '{"name":"mail","type":["null","string"],"default":null}]}'
)
ITEM = (
    '{"title":"Item","type":"object","properties":{"name":{"type":"string"},"count":{"type":"integer"},'
    '"color":{"type":"string"}},"additionalProperties":false}'
)
PARCEL = load_descriptor(
    'syntax = "proto3"; package shop; message Parcel { string name = 1; int64 weight = 2; }', name="Parcel.proto"
)
Parcel = message_factory.GetMessageClass(PARCEL.message_types_by_name["Parcel"])
NEWER_FORMAT = {"use.deprecated.format": False}
# Written through the other registry, by the serialisers below.
AVRO_RECORD = b"\0\0\0\0\x05\x02k\x02\0"
JSON_RECORD = b'\0\0\0\0\x1a{"name":"k","count":1}'


@pytest.fixture(params=[KARAPACE, CONFLUENT])
def broker(request: pytest.FixtureRequest, new_broker: NewBroker) -> Iterator[BrokerProcess]:
    """A broker with the records of another registry."""
    with new_broker(**{"schema.registry.listener": f"127.0.0.1:{free_port()}"}) as broker:
        rd.create_topic(broker.bootstrap, "_schemas", cleanup_policy="compact")
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
        for key, value in json.loads((RECORDS / f"{request.param}-records.json").read_text()):
            producer.produce("_schemas", value, key)
        assert producer.flush(30) == 0
        yield broker


@pytest.fixture
def url(broker: BrokerProcess) -> str:
    """The address of the broker's registry."""
    return f"http://{broker.settings['schema.registry.listener']}"


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_serializers_write_the_ids_of_the_other_registry_and_read_its_records(
    url: str,
) -> None:
    client = SchemaRegistryClient({"url": url})
    value = {"name": "k", "age": 1, "mail": None}
    assert AvroSerializer(client, USER)(value, context("kuser")) == AVRO_RECORD
    assert AvroDeserializer(client)(AVRO_RECORD, context("kuser")) == value
    assert JSONSerializer(ITEM, client)({"name": "k", "count": 1}, context("kitem")) == JSON_RECORD
    read = JSONDeserializer(None, schema_registry_client=client)(JSON_RECORD, context("kitem"))
    assert read == {"name": "k", "count": 1}
    known_id = client.get_latest_version("kparcel-value").schema_id
    parcel = Parcel(name="k", weight=5)
    record = ProtobufSerializer(Parcel, client, NEWER_FORMAT)(parcel, context("kparcel"))
    assert record is not None and int.from_bytes(record[1:5]) == known_id
    assert ProtobufDeserializer(Parcel, NEWER_FORMAT, client)(record, context("kparcel")) == parcel
    for subject in ("kuser-value", "kitem-value", "kparcel-value"):
        assert client.get_versions(subject) == [1]


def test_a_deleted_setting_is_deleted_in_every_form_of_its_key(broker: BrokerProcess, url: str) -> None:
    """Confluent's registry writes the key of the global level without a subject."""
    keys = {message.key() for message in rd.consume(broker.bootstrap, "_schemas") if b'"CONFIG"' in message.key()}
    requests.delete(f"{url}/config", timeout=30).raise_for_status()
    last: dict[bytes, Any] = {message.key(): message.value() for message in rd.consume(broker.bootstrap, "_schemas")}
    global_keys = [key for key in keys if json.loads(key).get("subject") is None]
    assert global_keys and [last[key] for key in global_keys] == [None] * len(global_keys)
    broker.restart()
    assert requests.get(f"{url}/config", timeout=30).json() == {"compatibilityLevel": "BACKWARD"}
