"""The schema registry with Confluent's client in Java, as Apache Flink's Avro format ships it.

Confluent publishes its own serialisers (`io.confluent:kafka-avro-serializer`) only in a repository
of its own. Flink's jar on Maven Central contains the same registry client, and writes the same
framing. The JVM is controlled from Python (py4j), so no Java is compiled.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from py4j.protocol import Py4JJavaError

from tests.jars import kafka_classpath
from tests.java_gateway import start_jvm

FLINK = "1.20.0"
FORMAT = (
    "org.apache.flink:flink-sql-avro-confluent-registry:{version}",
    "org.apache.flink:flink-core:{version}",
    "org.slf4j:slf4j-simple:1.7.36",
)
USER = '{"type":"record","name":"User","namespace":"shop","fields":[{"name":"name","type":"string"}]}'
USER_WITH_AGE = (
    '{"type":"record","name":"User","namespace":"shop","fields":'
    '[{"name":"name","type":"string"},{"name":"age","type":"int","default":7}]}'
)
USER_WITHOUT_NAME = '{"type":"record","name":"User","namespace":"shop","fields":[{"name":"born","type":"int"}]}'


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with start_jvm(kafka_classpath(FLINK, FORMAT)) as (gateway, _):
        yield gateway.jvm


def parse_schema(jvm: Any, schema: str) -> Any:
    return getattr(jvm.org.apache.flink.avro.shaded.org.apache.avro, "Schema$Parser")().parse(schema)


def serializer(jvm: Any, subject: str, schema: str, registry: str) -> Any:
    format_ = jvm.org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema
    return format_.forGeneric(subject, parse_schema(jvm, schema), registry)


def deserializer(jvm: Any, schema: str, registry: str) -> Any:
    format_ = jvm.org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema
    return format_.forGeneric(parse_schema(jvm, schema), registry)


def user(jvm: Any, name: str) -> Any:
    record = getattr(jvm.org.apache.flink.avro.shaded.org.apache.avro.generic, "GenericData$Record")(
        parse_schema(jvm, USER)
    )
    record.put("name", name)
    return record


def test_a_record_of_java_is_read_by_python(jvm: Any, registry: str, name: str) -> None:
    data = bytes(serializer(jvm, f"{name}-value", USER, registry).serialize(user(jvm, "Ottla")))
    client = SchemaRegistryClient({"url": registry})
    stored = client.get_latest_version(f"{name}-value")
    assert data[:5] == b"\0" + stored.schema_id.to_bytes(4, "big")
    context = SerializationContext(name, MessageField.VALUE)
    assert AvroDeserializer(client)(data, context) == {"name": "Ottla"}


def test_a_record_of_python_is_read_by_java_with_a_newer_schema(jvm: Any, registry: str, name: str) -> None:
    write = AvroSerializer(SchemaRegistryClient({"url": registry}), USER)
    data = write({"name": "Ottla"}, SerializationContext(name, MessageField.VALUE))
    found = deserializer(jvm, USER_WITH_AGE, registry).deserialize(data)
    assert (str(found.get("name")), found.get("age")) == ("Ottla", 7)


def test_an_incompatible_schema_of_java_is_refused(jvm: Any, registry: str, name: str) -> None:
    serializer(jvm, f"{name}-value", USER, registry).serialize(user(jvm, "Ottla"))
    other = getattr(jvm.org.apache.flink.avro.shaded.org.apache.avro.generic, "GenericData$Record")(
        parse_schema(jvm, USER_WITHOUT_NAME)
    )
    other.put("born", 1892)
    with pytest.raises(Py4JJavaError, match="409"):
        serializer(jvm, f"{name}-value", USER_WITHOUT_NAME, registry).serialize(other)
