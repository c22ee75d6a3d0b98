"""Confluent's own serialisers in Java for Avro, JSON Schema and Protobuf, with the schema registry
and with those of Python.

Confluent publishes them (`io.confluent:kafka-avro-serializer`, `kafka-json-schema-serializer` and
`kafka-protobuf-serializer`) in a repository of its own, not on Maven Central. So the jars, with
everything that they need, are to be put into a folder that OTTLA_CONFLUENT_JARS names; without it
the tests are skipped, also in CI. The JVM is controlled from Python (py4j).
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from py4j.protocol import Py4JJavaError

from ottla_broker.registry.languages.protobuf_descriptor import load_descriptor
from ottla_broker.registry.schema import NamedSchema
from tests.java_gateway import start_jvm

JARS = os.environ.get("OTTLA_CONFLUENT_JARS", "")

pytestmark = pytest.mark.skipif(
    not JARS, reason="OTTLA_CONFLUENT_JARS names no folder of Confluent's jars, which are not on Maven Central"
)

USER = '{"type":"record","name":"User","namespace":"shop","fields":[{"name":"name","type":"string"}]}'
USER_WITHOUT_NAME = '{"type":"record","name":"User","namespace":"shop","fields":[{"name":"born","type":"int"}]}'
ITEM = (
    '{"$schema":"http://json-schema.org/draft-07/schema#","title":"Item","type":"object",'
    '"properties":{"name":{"type":"string"},"price":{"type":"integer"}},"additionalProperties":false}'
)
PLACE = 'syntax = "proto3";\npackage shop;\nmessage Place { string city = 1; }\n'
SHIPMENT = (
    'syntax = "proto3";\npackage shop;\nimport "place.proto";\n'
    "message Shipment { Place to = 1; repeated int64 items = 2; }\n"
)
DESCRIPTOR = load_descriptor(SHIPMENT, (NamedSchema("place.proto", "PROTOBUF", PLACE),), name="shipment.proto")
Shipment = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Shipment"])
NEWER_FORMAT = {"use.deprecated.format": False}


@pytest.fixture
def client(registry: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry})


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with start_jvm(f"{JARS}/*") as (gateway, _):
        yield gateway.jvm


def configured(serializer: Any, registry: str, **settings: object) -> Any:
    serializer.configure({"schema.registry.url": registry} | settings, False)
    return serializer


def value_context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def avro_record(jvm: Any, schema: str, **fields: object) -> Any:
    parsed = getattr(jvm.org.apache.avro, "Schema$Parser")().parse(schema)
    record = getattr(jvm.org.apache.avro.generic, "GenericData$Record")(parsed)
    for name, value in fields.items():
        record.put(name, value)
    return record


def test_avro_records_of_java_are_read_by_python_and_vice_versa(
    jvm: Any, registry: str, client: SchemaRegistryClient, name: str
) -> None:
    serializer = configured(jvm.io.confluent.kafka.serializers.KafkaAvroSerializer(), registry)
    of_java = bytes(serializer.serialize(name, avro_record(jvm, USER, name="Ottla")))
    of_python = AvroSerializer(client, USER)({"name": "Ottla"}, value_context(name))
    assert of_java == of_python
    assert AvroDeserializer(client)(of_java, value_context(name)) == {"name": "Ottla"}
    deserializer = configured(jvm.io.confluent.kafka.serializers.KafkaAvroDeserializer(), registry)
    assert str(deserializer.deserialize(name, of_python).get("name")) == "Ottla"


def test_json_records_of_java_are_read_by_python_and_vice_versa(
    jvm: Any, registry: str, client: SchemaRegistryClient, name: str
) -> None:
    confluent, tree = jvm.io.confluent.kafka, jvm.com.fasterxml.jackson.databind.ObjectMapper().readTree
    serializer = configured(confluent.serializers.json.KafkaJsonSchemaSerializer(), registry)
    record = confluent.schemaregistry.json.JsonSchemaUtils.envelope(tree(ITEM), tree('{"name":"rope","price":3}'))
    of_java = bytes(serializer.serialize(name, record))
    of_python = JSONSerializer(ITEM, client)({"name": "rope", "price": 3}, value_context(name))
    assert of_python is not None and of_java[:5] == of_python[:5]
    assert client.get_versions(f"{name}-value") == [1]
    read = JSONDeserializer(None, schema_registry_client=client)(of_java, value_context(name))
    assert read == {"name": "rope", "price": 3}
    deserializer = configured(confluent.serializers.json.KafkaJsonSchemaDeserializer(), registry)
    found = deserializer.deserialize(name, of_python)
    assert (found["name"], found["price"]) == ("rope", 3)


def test_protobuf_records_with_imports_of_java_are_read_by_python_and_vice_versa(
    jvm: Any, registry: str, client: SchemaRegistryClient, name: str
) -> None:
    """Both serialisers register the imported file as a subject of its own. They print the same
    schema differently, but the normalized texts are equal.
    """
    confluent, format_ = jvm.io.confluent.kafka, jvm.com.google.protobuf.util.JsonFormat
    imports = [confluent.schemaregistry.client.rest.entities.SchemaReference("place.proto", "place.proto", -1)]
    schema = confluent.schemaregistry.protobuf.ProtobufSchema(SHIPMENT, imports, {"place.proto": PLACE}, None, None)
    builder = schema.newMessageBuilder("shop.Shipment")
    format_.parser().merge('{"to":{"city":"Newark"},"items":["7","8"]}', builder)
    normalizes = {"normalize.schemas": True}
    serializer = configured(confluent.serializers.protobuf.KafkaProtobufSerializer(), registry, **normalizes)
    of_java = bytes(serializer.serialize(name, builder.build()))
    assert client.get_latest_version(f"{name}-value").schema.references[0].name == "place.proto"
    wanted = Shipment(items=[7, 8], to={"city": "Newark"})
    of_python = ProtobufSerializer(Shipment, client, NEWER_FORMAT | normalizes)(wanted, value_context(name))
    assert of_python == of_java and client.get_versions(f"{name}-value") == [1]
    assert ProtobufDeserializer(Shipment, NEWER_FORMAT, client)(of_java, value_context(name)) == wanted
    deserializer = configured(confluent.serializers.protobuf.KafkaProtobufDeserializer(), registry)
    read = json.loads(format_.printer().print(deserializer.deserialize(name, of_python)))
    assert read == {"to": {"city": "Newark"}, "items": ["7", "8"]}


def test_error_in_java_says_why_a_schema_is_incompatible(jvm: Any, registry: str, name: str) -> None:
    serializer = configured(jvm.io.confluent.kafka.serializers.KafkaAvroSerializer(), registry)
    serializer.serialize(name, avro_record(jvm, USER, name="Ottla"))
    with pytest.raises(Py4JJavaError, match="READER_FIELD_MISSING_DEFAULT_VALUE"):
        serializer.serialize(name, avro_record(jvm, USER_WITHOUT_NAME, born=1892))
