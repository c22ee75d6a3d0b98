"""The topic `_schemas` after another registry has written to it, and before one does.

The records are those that a run of three registries left on one topic: Ottla registered schemas,
the other registry took over, registered and deleted some, and stopped
(docs/measurements/2026-11-29-schema-registries.md). In the JSON files, a value "" is empty and null
is a tombstone.
"""

import json
from pathlib import Path

import pytest

from ottla_broker.registry.deletions import plan_subject_deletion, plan_version_deletion
from ottla_broker.registry.languages.dispatch import print_schema
from ottla_broker.registry.modes import Mode, mode_of
from ottla_broker.registry.record_format import decode_record, encode_key, encode_record, schema_value
from ottla_broker.registry.registrations import (
    NewVersion,
    Registration,
    plan_schema_registration,
    resolve_references,
)
from ottla_broker.registry.schema import Reference, Schema, SchemaSource
from ottla_broker.registry.state import RegistryState, SchemaVersion
from ottla_broker.registry.subject_names import context_of

KARAPACE, CONFLUENT = "karapace-6.2.0", "confluent-7.9.9"
ADDRESS = Reference("shop.Address", "address", 2)
COMMON = Reference("common.proto", "common.proto", 1)
# As clients registered them at the other registry.
USER = Schema(
    "AVRO",
    '{"type":"record","name":"User","fields":[{"name":"name","type":"string"},'
    '{"name":"age","type":"int","default":0}]}',
)
INVOICE = Schema(
    "AVRO",
    '{"type":"record","name":"Invoice","namespace":"shop","fields":[{"name":"to","type":"shop.Address"},'
    '{"name":"no","type":"long","x":1}]}',
    (ADDRESS,),
)
COLOR = Schema(
    "JSON",
    '{"type":"object","properties":{"name":{"type":"string"},"alpha":{"type":"integer"}},"additionalProperties":false}',
)
PARCEL = Schema(
    "PROTOBUF",
    'syntax = "proto3";\npackage shop;\nmessage Parcel { string name = 1; int64 weight = 2; string note = 3; }\n',
)
DEPOT = Schema(
    "PROTOBUF",
    'syntax = "proto3";\npackage shop;\nimport "common.proto";\nmessage Depot { Place at = 1; int32 size = 2; }\n',
    (COMMON,),
)


def load_state(name: str) -> RegistryState:
    state = RegistryState()
    for key, value in json.loads((Path(__file__).parent / f"{name}-records.json").read_text()):
        record = decode_record(key.encode(), None if value is None else value.encode())
        if record is not None:
            state.apply(record)
    return state


@pytest.fixture(params=[KARAPACE, CONFLUENT])
def state(request: pytest.FixtureRequest) -> RegistryState:
    return load_state(request.param)


def normal_form(state: RegistryState, subject: str, schema: Schema) -> bytes:
    source = SchemaSource(schema.type, schema.text, tuple(resolve_references(state, subject, schema)))
    text = print_schema(source, normalize=True)
    return Schema(schema.type, text, schema.references).fingerprint()


def add_normal_forms(state: RegistryState, subject: str, schema: Schema) -> bytes | None:
    """As `SchemaRegistry.find_normal_form` does."""
    versions = state.foreign_versions(subject, schema.type)
    for version in versions:
        normal_forms = state.contexts[context_of(subject)].normal_forms
        normal_forms[version.id] = normal_form(state, subject, version.schema)
    return normal_form(state, subject, schema) if versions else None


def register(state: RegistryState, subject: str, schema: Schema) -> SchemaVersion | NewVersion:
    form = add_normal_forms(state, subject, schema)
    return plan_schema_registration(state, Registration(subject, schema, normal_form=form))


def test_subjects_and_versions_are_those_of_the_other_registry(state: RegistryState) -> None:
    live = {name: [one.version for one in state.versions(name)] for name in state.subjects}
    assert (
        live.items()
        >= {
            "address": [1, 2],
            "cart-value": [1],
            "common.proto": [1],
            "depot-value": [1],
            "frozen": [1],
            "invoice-value": [1],
            "parcel-value": [2, 3],
            "price": [1],
            "shipment-value": [1],
            "temp3": [1],
            "user-value": [1, 2, 4],
        }.items()
    )
    assert sorted(name for name, versions in live.items() if not versions) == ["color-value", "item-value", "temp2"]
    assert "soft" not in state.subjects and "temp" not in state.subjects, "deleted for good"


def test_settings_are_those_of_the_other_registry(state: RegistryState) -> None:
    assert state.configs == {
        None: {"compatibilityLevel": "BACKWARD"},
        "shelf": {"compatibilityLevel": "FULL"},
        "temp3": {"compatibilityLevel": "NONE"},
    }, "that of address is deleted"
    assert mode_of(state, "frozen") is Mode.readonly


@pytest.mark.parametrize(
    ("subject", "schema"),
    [
        ("user-value", USER),
        ("invoice-value", INVOICE),
        ("parcel-value", PARCEL),
        ("depot-value", DEPOT),
    ],
)
def test_a_schema_that_was_registered_at_the_other_registry_is_found(
    state: RegistryState, subject: str, schema: Schema
) -> None:
    """Otherwise serialisers would register it again, with another id."""
    found = register(state, subject, schema)
    assert isinstance(found, SchemaVersion) and found is state.version(subject, -1)


def test_a_soft_deleted_schema_of_another_registry_keeps_its_id_and_text(state: RegistryState) -> None:
    [deleted] = state.versions("color-value", with_deleted=True)
    planned = register(state, "color-value", COLOR)
    assert isinstance(planned, NewVersion) and (planned.id, planned.version) == (deleted.id, 2)
    expected = schema_value("color-value", 2, deleted.id, deleted.schema, is_printed=False)
    assert planned.records[-1].value == expected


def test_a_new_schema_gets_an_id_above_all(state: RegistryState) -> None:
    planned = register(state, "new", Schema("AVRO", '{"type":"fixed","name":"New","size":9}'))
    ids = [one.id for name in state.subjects for one in state.versions(name, with_deleted=True)]
    assert isinstance(planned, NewVersion) and planned.id == max(ids) + 1


def test_a_version_of_another_registry_stays_comparable_when_it_is_deleted(state: RegistryState) -> None:
    _, [record] = plan_version_deletion(state, "invoice-value", 1, permanent=False)
    key, value = encode_record(record)
    assert value is not None and "guid" not in json.loads(value)
    assert json.loads(value)["deleted"] and json.loads(value)["references"] == [
        {"name": "shop.Address", "subject": "address", "version": 2}
    ]
    assert key == b'{"keytype":"SCHEMA","subject":"invoice-value","version":1,"magic":1}'


@pytest.mark.parametrize("value", [None, b"", b"null", b'""'])
def test_every_form_of_a_deletion_deletes(value: bytes | None) -> None:
    state = load_state(KARAPACE)
    for key in (
        b'{"keytype":"SCHEMA","subject":"temp2","version":1,"magic":1}',
        b'{"keytype":"CONFIG","subject":"shelf","magic":0}',
        b'{"keytype":"MODE","subject":"frozen","magic":0}',
    ):
        record = decode_record(key, value)
        assert record is not None and record.value is None
        state.apply(record)
    assert "temp2" not in state.subjects and "shelf" not in state.configs and "frozen" not in state.modes


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        (b'{"keytype":"CONFIG","magic":0}', b'{"keytype":"CONFIG","subject":null,"magic":0}'),
        (
            b'{"subject":"a","version":1,"magic":1,"keytype":"SCHEMA"}',
            b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        ),
    ],
)
def test_a_key_that_another_registry_writes_differently_is_remembered(key: bytes, ours: bytes) -> None:
    """Compaction takes it for another key, so a deletion needs a tombstone for it too."""
    state = RegistryState()
    record = decode_record(key, None)
    assert record is not None and encode_key(record.key) == ours
    state.apply(record)
    again = decode_record(ours, None)
    assert again is not None
    state.apply(again)
    assert state.foreign_keys == {ours: {key}}


@pytest.mark.parametrize(
    ("schema", "md5"),
    [
        (Schema("AVRO", '{"type":"string"}'), "2809284b6e54d0d34017715ffe5636bd"),
        (
            Schema("AVRO", '"int"', (Reference("shop.Address", "address", 1), Reference("b", "ö", 258))),
            "bf1aa6c8f189e5cdc8771e33e245be6a",
        ),
        (
            Schema(
                "AVRO",
                '"int"',
                metadata={
                    "tags": {"z": ["PII", "A"], "**.ssn": ["X"]},
                    "properties": {"owner": "o", "app": "1"},
                    "sensitive": ["s", "a"],
                },
            ),
            "a49ef5ba0201c67835d1607c94596d53",
        ),
        (
            Schema(
                "AVRO",
                '"int"',
                (Reference("a", "b", 2),),
                {"properties": {"owner": "Ö"}},
                {
                    "migrationRules": [
                        {"name": "m", "kind": "TRANSFORM", "mode": "UPGRADE", "type": "JSONATA", "expr": "$"}
                    ],
                    "domainRules": [
                        {
                            "name": "r",
                            "doc": "d",
                            "kind": "CONDITION",
                            "type": "CEL",
                            "mode": "WRITE",
                            "tags": ["T", "A"],
                            "params": {"p": "1", "a": "2"},
                            "expr": "x > 1",
                            "onSuccess": "NONE",
                            "onFailure": "DLQ",
                            "disabled": True,
                        },
                        {"name": "plain", "type": "CEL"},
                    ],
                },
            ),
            "adb646264bcf3f7a95392834283ca96b",
        ),
    ],
)
def test_guids_are_those_of_confluents_registry(schema: Schema, md5: str) -> None:
    """As MD5.ofSchema of Confluent's registry 7.9.9 hashes them."""
    assert schema.md5().hex() == md5 == schema.guid().replace("-", "")


@pytest.mark.parametrize("other", [{"tags": [1], "properties": 5, "sensitive": {"a": 1}}, {"tags": {"a": 7}}])
def test_any_metadata_and_rules_have_a_guid(other: dict[str, object]) -> None:
    assert Schema("AVRO", '"int"', metadata=other, rule_set={"domainRules": [5, {"tags": 5}], **other}).guid()


def test_schemas_are_found_by_guid_while_a_context_has_them() -> None:
    state = RegistryState()
    schema = Schema("JSON", '{"type":"string"}')
    guid_of_record = "00000000-0000-0000-0000-000000000007"
    for subject, schema_id in (("a", 7), (":.lab:a", 3)):
        key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
        value = {"subject": subject, "version": 1, "id": schema_id, "schemaType": "JSON", "schema": schema.text}
        value |= {"md5": "AAAAAAAAAAAAAAAAAAAABw=="} if subject == "a" else {}
        record = decode_record(json.dumps(key).encode(), json.dumps(value).encode())
        assert record is not None
        state.apply(record)
    assert state.find_by_guid(schema.guid()) == state.find_by_guid(guid_of_record) == (".", 7)
    for permanent in (False, True):
        _, records = plan_subject_deletion(state, "a", permanent=permanent)
        for one in records:
            state.apply(one)
    assert state.find_by_guid(schema.guid()) == (".lab", 3) and state.find_by_guid(guid_of_record) is None


def test_the_first_schema_of_a_context_lists_the_context() -> None:
    state = RegistryState()
    planned = register(state, ":.lab:a", USER)
    assert isinstance(planned, NewVersion)
    assert encode_record(planned.records[0]) == (
        b'{"keytype":"CONTEXT","tenant":"default","context":".lab","magic":0}',
        b'{"tenant":"default","context":".lab"}',
    )
    for record in planned.records:
        state.apply(record)
    again = register(state, ":.lab:b", Schema("AVRO", '"int"'))
    assert isinstance(again, NewVersion) and len(again.records) == 1 and again.id == 2
