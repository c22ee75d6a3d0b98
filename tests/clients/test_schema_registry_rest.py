"""The schema registry's REST interface where confluent-kafka's client does not use it: GUIDs, all
levels, forms of a schema, pages, and look-ups by metadata.
"""

import base64
import json
from dataclasses import dataclass
from typing import Any

import pytest
import requests
from google.protobuf.descriptor_pb2 import FileDescriptorProto

NEWER_CLIENT = {"Confluent-Accept-Unknown-Properties": "true"}
LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")


@dataclass(frozen=True, slots=True)
class Registry:
    url: str

    def call(self, method: str, path: str, body: Any = None, status: int = 200, **options: Any) -> Any:
        """Sends a request; returns the body of the response, which must have this status."""
        response = requests.request(method, self.url + path, json=body, timeout=30, **options)
        assert response.status_code == status, response.text
        return response.json()

    def register(self, subject: str, schema: object, **fields: Any) -> int:
        """Registers a schema, which is text or JSON; returns its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return int(self.call("POST", f"/subjects/{subject}/versions", {"schema": text, **fields})["id"])


@pytest.fixture(scope="module")
def registry(registry: str) -> Registry:
    return Registry(registry)


@pytest.mark.parametrize(
    ("versions", "new", "accepted"),
    [
        (("double", "int"), "long", {"NONE", "BACKWARD"}),
        (("int", "double"), "long", {"NONE", "FORWARD"}),
        (("int", "bytes"), "string", {"NONE", "BACKWARD", "FORWARD", "FULL"}),
        (("bytes",), "string", set(LEVELS)),
    ],
)
def test_each_level_checks_its_versions_in_its_directions(
    registry: Registry, name: str, versions: tuple[str, ...], new: str, accepted: set[str]
) -> None:
    config, check = f"/config/{name}", f"/compatibility/subjects/{name}/versions?verbose=true"
    registry.call("PUT", config, {"compatibility": "NONE"})
    for version in versions:
        registry.register(name, f'"{version}"')
    found = {}
    for level in LEVELS:
        registry.call("PUT", config, {"compatibility": level})
        found[level] = registry.call("POST", check, {"schema": f'"{new}"'})
    assert {level for level, answer in found.items() if answer["is_compatible"]} == accepted
    assert all(bool(answer["messages"]) != answer["is_compatible"] for answer in found.values())
    registry.call(
        "POST", f"/subjects/{name}/versions", {"schema": f'"{new}"'}, 200 if "FULL_TRANSITIVE" in accepted else 409
    )


def test_a_subject_without_a_level_has_that_of_all_subjects(registry: Registry, name: str) -> None:
    registry.register(name, '"int"')
    try:
        registry.call("PUT", "/config", {"compatibility": "FORWARD"})
        assert registry.call("GET", f"/config/{name}", status=404)["error_code"] == 40408
        inherited = registry.call("GET", f"/config/{name}?defaultToGlobal=true")
        assert inherited["compatibilityLevel"] == "FORWARD"
        registry.call("POST", f"/subjects/{name}/versions", {"schema": '"long"'}, 409)
        registry.call("PUT", "/mode", {"mode": "READONLY"})
        assert registry.call("POST", f"/subjects/{name}/versions", {"schema": '"int"'}, 422)["error_code"] == 42205
        assert registry.call("GET", f"/mode/{name}?defaultToGlobal=true") == {"mode": "READONLY"}
    finally:
        registry.call("DELETE", "/mode")
        registry.call("DELETE", "/config")
    assert registry.call("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    registry.register(name, '"long"')


def test_equal_schemas_of_all_contexts_have_one_guid(registry: Registry, name: str) -> None:
    body = {"schema": json.dumps({"type": "fixed", "name": "Guid", "size": 7})}
    subjects = (name, f":.other:{name}")
    found = [registry.call("POST", f"/subjects/{it}/versions", body, headers=NEWER_CLIENT) for it in subjects]
    [guid] = {it["guid"] for it in found}
    by_guid = registry.call("GET", f"/schemas/guids/{guid}", headers=NEWER_CLIENT)
    assert json.loads(by_guid["schema"]) == json.loads(body["schema"]) and by_guid["guid"] == guid
    ids = registry.call("GET", f"/schemas/guids/{guid}/ids")
    assert ids == [
        {"context": "." if it == name else ".other", "id": one["id"]} for it, one in zip(subjects, found, strict=True)
    ]
    assert (
        registry.call("GET", "/schemas/guids/00000000-0000-0000-0000-000000000000", status=404)["error_code"] == 40403
    )


def test_normalized_schemas_are_equal_whatever_the_order_of_their_keys(registry: Registry, name: str) -> None:
    one = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
    other = {"properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "type": "object"}

    def register(subject: str, schema: object, parameters: str = "") -> int:
        body = {"schema": json.dumps(schema), "schemaType": "JSON"}
        return int(registry.call("POST", f"/subjects/{subject}/versions{parameters}", body)["id"])

    assert register(name, one) != register(name, other)
    assert register(f"{name}-n", one, "?normalize=true") == register(f"{name}-n", other, "?normalize=true")
    registry.call("PUT", f"/config/{name}-c", {"normalize": True})
    assert register(f"{name}-c", one) == register(f"{name}-c", other)
    assert registry.call("GET", f"/subjects/{name}-n/versions") == [1]


def test_a_schema_is_returned_with_its_references_resolved_or_as_a_descriptor(registry: Registry, name: str) -> None:
    city = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
    registry.register(f"{name}-city", city)
    order = {"type": "record", "name": "Order", "fields": [{"name": "to", "type": "City"}]}
    reference = {"name": "City", "subject": f"{name}-city", "version": -1}
    schema_id = registry.register(name, order, references=[reference])
    for path in (f"/schemas/ids/{schema_id}", f"/subjects/{name}/versions/1"):
        resolved = json.loads(registry.call("GET", f"{path}?format=resolved")["schema"])
        assert resolved["fields"][0]["type"] == city
        assert json.loads(registry.call("GET", path)["schema"]) == order
    stored = registry.call("GET", f"/subjects/{name}/versions/1")["references"]
    assert stored == [reference | {"version": 1}], '"latest" is stored as the version that it was'
    assert registry.call("GET", f"/subjects/{name}-city/versions/1/referencedby") == [schema_id]

    proto = 'syntax = "proto3";\nmessage Line { string item = 1; }'
    registry.register(f"{name}-line", proto, schemaType="PROTOBUF")
    serialized = registry.call("GET", f"/subjects/{name}-line/versions/1?format=serialized")["schema"]
    descriptor = FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert [it.name for it in descriptor.message_type[0].field] == ["item"]
    again = registry.register(f"{name}-line", serialized, schemaType="PROTOBUF")
    assert registry.call("GET", f"/schemas/ids/{again}/versions")[-1]["subject"] == f"{name}-line"


def test_lists_have_pages_and_deleted_subjects_on_request(registry: Registry, name: str) -> None:
    subjects = [f"{name}-{number}" for number in range(5)]
    for subject in subjects:
        registry.call("PUT", f"/config/{subject}", {"compatibility": "NONE"})
        for schema in ('"int"', '"long"', '"string"'):
            registry.register(subject, schema)
    prefix = f"subjectPrefix={name}"
    assert registry.call("GET", f"/subjects?{prefix}&offset=1&limit=2") == subjects[1:3]
    assert registry.call("GET", f"/subjects/{subjects[0]}/versions?offset=1&limit=5") == [2, 3]
    latest = registry.call("GET", f"/schemas?{prefix}&latestOnly=true&offset=3&limit=-1")
    assert [(it["subject"], it["version"]) for it in latest] == [(it, 3) for it in subjects[3:]]
    registry.call("DELETE", f"/subjects/{subjects[4]}")
    registry.call("DELETE", f"/subjects/{subjects[0]}/versions/2")
    assert registry.call("GET", f"/subjects?{prefix}") == subjects[:4]
    assert registry.call("GET", f"/subjects?{prefix}&deletedOnly=true") == subjects[4:]
    assert registry.call("GET", f"/subjects/{subjects[0]}/versions") == [1, 3]
    assert registry.call("GET", f"/subjects/{subjects[0]}/versions?deleted=true") == [1, 2, 3]


def test_the_newest_version_with_the_metadata_is_found(registry: Registry, name: str) -> None:
    for schema, stage in (('"int"', "live"), ('"long"', "live"), ('"double"', "draft")):
        registry.register(name, schema, metadata={"properties": {"stage": stage}})
    found = registry.call("GET", f"/subjects/{name}/metadata?key=stage&value=live")
    assert (found["version"], found["metadata"]) == (2, {"properties": {"stage": "live"}})
    assert registry.call("GET", f"/subjects/{name}/metadata?key=stage&value=none", status=404)["error_code"] == 40403
