"""`ottla up` keeps Schemas in the schema registry of a real broker."""

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, resource
from tests.waiting import eventually


def registry(up: UpProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": f"http://127.0.0.1:{up.port + 1}"})


def cluster(up: UpProcess) -> Json:
    listeners = [{"name": "plain", "port": up.port}]
    return resource("Cluster", "demo", replicas=1, listeners=listeners, schemaRegistry={"port": up.port + 1})


def schema(name: str = "orders-value", **spec: Any) -> Json:
    return resource("Schema", name, clusterRef={"name": "demo"}, **spec)


def record(name: str, *fields: str, **defaults: Any) -> str:
    """Avro's JSON of a record of strings. `defaults`: further fields with their defaults."""
    listed = [{"name": it, "type": "string"} for it in fields]
    listed += [{"name": it, "type": "string", "default": default} for it, default in defaults.items()]
    return json.dumps({"type": "record", "name": name, "fields": listed})


def test_a_schema_of_a_file_gets_versions_as_the_file_is_edited(up: UpProcess) -> None:
    file = up.folder / "resources" / "avro" / "order.avsc"
    file.parent.mkdir(parents=True)
    file.write_text(record("Order", "id"))
    up.write_resources(cluster(up), schema(schemaFrom={"file": "avro/order.avsc"}, compatibility="FULL"))
    up.start()
    up.wait_for_line("subject orders-value: compatibility FULL")
    up.wait_for_line("subject orders-value: version 1 has id 1")
    assert registry(up).get_compatibility("orders-value") == "FULL"

    file.write_text(record("Order", "id", note=""))
    up.wait_for_line("subject orders-value: version 2 has id 2")
    assert registry(up).get_versions("orders-value") == [1, 2]

    file.write_text(record("Order", "id", "customer", note=""))
    line = up.wait_for_line("READER_FIELD_MISSING_DEFAULT_VALUE")
    assert "customer" in line and "oldSchemaVersion: 2" in line
    file.write_text("{")
    up.wait_for_line("Invalid schema")
    file.unlink()
    line = up.wait_for_line("spec.schemaFrom.file: cannot read resources/avro/order.avsc: No such file")
    assert line.startswith("✗ resources/all.yaml:"), line
    assert registry(up).get_versions("orders-value") == [1, 2]
    assert not any("Traceback" in line for line in up.lines)


def test_a_schema_refers_to_another_and_follows_its_versions(up: UpProcess) -> None:
    text = '{"type":"record","name":"Order","fields":[{"name":"to","type":"Address"}]}'
    order = schema(schema=text, references=[{"name": "Address", "schemaRef": {"name": "address"}}])
    up.write_resources(cluster(up), order, schema("address", schema=record("Address", "city")))
    up.start()
    up.wait_for_line("subject orders-value: version 1")
    up.write_resources(cluster(up), order, schema("address", schema=record("Address", "city", zip="")))
    up.wait_for_line("subject orders-value: version 2")
    references = registry(up).get_latest_version("orders-value").schema.references
    assert references is not None
    assert [(it.name, it.subject, it.version) for it in references] == [("Address", "address", 2)]


def test_a_subject_stays_without_its_schema_unless_the_policy_is_delete(up: UpProcess) -> None:
    text = record("Order", "id")
    kept, dropped = schema("kept", schema=text), schema("dropped", schema=text, deletionPolicy="Delete")
    up.write_resources(cluster(up), kept, dropped)
    up.start()
    up.wait_for_line("subject kept: version 1")
    up.wait_for_line("subject dropped: version 1")
    up.write_resources(cluster(up))
    up.wait_for_line("subject kept is no longer described; it stays (deletionPolicy: Retain)")
    up.wait_for_line("subject dropped soft-deleted")
    assert registry(up).get_subjects() == ["kept"]
    assert registry(up).get_schema(1).schema_str is not None


def test_the_registry_is_served_by_default_and_not_when_it_is_disabled(up: UpProcess) -> None:
    listeners = [{"name": "plain", "port": up.port}]
    plain = resource("Cluster", "demo", replicas=1, listeners=listeners)
    up.write_resources(plain, schema(schema=record("Order", "id")))
    up.start()
    address = up.wait_for_line("schema registry of cluster demo: ").rpartition(" ")[2]
    up.wait_for_line("subject orders-value: version 1")
    assert SchemaRegistryClient({"url": f"http://{address}"}).get_subjects() == ["orders-value"]
    broker = up.broker_pid()

    up.write_resources(plain, schema(schema=record("Order", "id", note="")))
    up.wait_for_line("subject orders-value: version 2")
    assert up.broker_pid() == broker, "an edit changes no port"

    off = resource("Cluster", "demo", replicas=1, listeners=listeners, schemaRegistry={"enabled": False})
    assert up.stop() == 0
    up.write_resources(off, schema(schema=record("Order", "id", note="")))
    up.start()
    up.wait_for_line("Cluster demo serves no schema registry")
    assert not any("schema registry of cluster" in line for line in up.lines)


def test_schemas_of_a_cluster_with_tls_and_logins_are_registered_by_its_own_login(up: UpProcess) -> None:
    listeners = [{"name": "clients", "port": up.port, "authentication": "SCRAM", "tls": True}]
    secured = resource("Cluster", "demo", replicas=1, listeners=listeners, authorization={"type": "ACL"})
    secured["spec"]["tls"] = {"issuer": "Internal"}
    up.write_resources(secured, schema(schema=record("Order", "id"), compatibility="FULL"))
    up.start()
    address = up.wait_for_line("schema registry of cluster demo: ").rpartition(" ")[2]
    up.wait_for_line("subject orders-value: version 1 has id 1")
    authorities = next((up.folder / ".ottla" / "demo" / "certificates").rglob("ca.crt"))
    client = SchemaRegistryClient(
        {"url": f"https://{address}", "ssl.ca.location": str(authorities), "basic.auth.user.info": "nobody:secret"}
    )
    with pytest.raises(SchemaRegistryError, match="401"):
        client.get_subjects()


@pytest.mark.slow
def test_a_deleted_subject_is_registered_again(up: UpProcess) -> None:
    up.write_resources(cluster(up), schema("orders-value", schema=record("Order", "id")))
    up.start()
    up.wait_for_line("subject orders-value: version 1")
    registry(up).delete_subject("orders-value")
    eventually(lambda: registry(up).get_subjects() == ["orders-value"], within_s=60, message="registered again")
