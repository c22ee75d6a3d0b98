"""Mirrors copy schemas with their ids: two clusters of `ottla up`, each with a registry."""

from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, resource
from tests.waiting import eventually


def clusters(up: UpProcess) -> tuple[Json, Json]:
    ports = {"copy": up.port, "origin": up.port + 1}
    listeners = {name: [{"name": "plain", "port": port}] for name, port in ports.items()}
    copy, origin = (resource("Cluster", name, replicas=1, listeners=it) for name, it in listeners.items())
    return copy, origin


def mirror(**spec: Any) -> Json:
    clusters_of_mirror = {"source": {"clusterRef": {"name": "origin"}}, "target": {"clusterRef": {"name": "copy"}}}
    return resource("Mirror", "west", **clusters_of_mirror, topics=["orders"], **spec)


def registry(up: UpProcess, cluster: str) -> SchemaRegistryClient:
    address = up.wait_for_line(f"schema registry of cluster {cluster}: ").rpartition(" ")[2]
    return SchemaRegistryClient({"url": f"http://{address}", "max.retries": 0})


def record(name: str, *fields: str, references: list[SchemaReference] | None = None) -> Schema:
    listed = ",".join(f'{{"name":"{it}","type":["null","string"],"default":null}}' for it in fields)
    return Schema(f'{{"type":"record","name":"{name}","fields":[{listed}]}}', "AVRO", references or [])


def contents(client: SchemaRegistryClient) -> dict[str, list[tuple[int, int, str]]]:
    """Subject → version, id and text of each version, also of deleted ones."""
    client.clear_caches()
    found = {}
    for subject in client.get_subjects(deleted=True):
        versions = [client.get_version(subject, it, deleted=True) for it in client.get_versions(subject, deleted=True)]
        found[subject] = [(it.version, it.schema_id, str(it.schema.schema_str)) for it in versions]
    return found


def test_a_mirror_copies_schemas_with_their_ids_until_it_fails_over(up: UpProcess) -> None:
    up.write_resources(*clusters(up))
    up.start()
    source, target = registry(up, "origin"), registry(up, "copy")
    source.set_compatibility(level="FULL")
    source.register_schema("dropped", record("Dropped"))
    source.register_schema("orders-value", record("Order", "id"))
    source.register_schema("orders-value", record("Order", "id", "note"))
    source.delete_subject("dropped")

    up.write_resources(*clusters(up), mirror(sync={"schemas": True}))
    eventually(lambda: contents(target) == contents(source), within_s=60, message=lambda: f"{up.lines}")
    assert [it[:2] for it in contents(target)["orders-value"]] == [(1, 2), (2, 3)]
    assert target.get_compatibility() == "FULL"
    source.register_schema("orders-key", record("Key", "id"))
    eventually(lambda: contents(target) == contents(source), within_s=60, message=lambda: f"{up.lines}")

    assert target.register_schema("orders-value", record("Order", "id", "note")) == 3, (
        "this schema is registered already"
    )
    with pytest.raises(SchemaRegistryError) as refused:
        target.register_schema("orders-value", record("Order", "id", "note", "more"))
    assert refused.value.error_code == 42205
    assert "can be changed only at its source until the mirror fails over" in refused.value.error_message

    up.write_resources(*clusters(up), mirror(sync={"schemas": True}, role="FailedOver"))
    up.wait_for_line("mirror west: open for writing")
    assert target.register_schema("orders-value", record("Order", "id", "note", "more")) == 5
    assert [it[:2] for it in contents(target)["orders-value"]] == [(1, 2), (2, 3), (3, 5)]
    assert not any("Traceback" in line for line in up.lines)


def test_schemas_are_not_copied_into_a_registry_that_has_its_own(up: UpProcess) -> None:
    up.write_resources(*clusters(up))
    up.start()
    source, target = registry(up, "origin"), registry(up, "copy")
    source.register_schema("orders-value", record("Order", "id"))
    target.register_schema("mine-value", record("Mine"))
    up.write_resources(*clusters(up), mirror(sync={"schemas": True}))
    up.wait_for_line("_schemas is not copied")
    assert target.get_subjects() == ["mine-value"]
    assert target.register_schema("mine-value", record("Mine", "more")) == 2
