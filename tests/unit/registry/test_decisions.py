"""Decisions of the registry and its state, which records alone determine."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla_broker.registry.deletions import plan_subject_deletion, plan_version_deletion
from ottla_broker.registry.errors import RegistryError
from ottla_broker.registry.modes import Mode, mode_of, plan_mode
from ottla_broker.registry.record_format import decode_record
from ottla_broker.registry.registrations import plan_check, resolve_references
from ottla_broker.registry.schema import Reference, Schema
from ottla_broker.registry.settings import describe_config, plan_config
from ottla_broker.registry.state import RegistryState, SchemaVersion
from ottla_broker.registry.subject_names import context_of
from tests.unit.registry.memory_registry import INT, LONG, Registry, code_of


def contents(state: RegistryState) -> Any:
    versions = [
        (one.subject, one.version, one.id, one.schema.text, one.deleted)
        for subject in sorted(state.subjects)
        for one in state.versions(subject, with_deleted=True)
    ]
    return versions, state.configs, state.modes, {name: one.max_id for name, one in state.contexts.items()}


def test_ids_belong_to_a_context_and_versions_to_a_subject() -> None:
    registry = Registry()
    assert registry.register("a", INT) == (1, 1)
    assert registry.register("a", LONG) == (2, 2)
    assert registry.register("b", LONG) == (1, 2)
    assert registry.register("a", INT) == (1, 1)
    assert registry.register(":.lab:a", LONG) == (1, 1)


def test_a_soft_deleted_version_keeps_its_number_and_its_id() -> None:
    registry = Registry()
    registry.register("a", INT)
    assert registry.delete("a") == [1]
    assert registry.state.versions("a") == [] and 1 in registry.state.contexts["."].schemas
    assert registry.register("a", INT) == (2, 1)
    assert code_of(lambda: plan_version_deletion(registry.state, "a", 1, permanent=False)) == 40406
    assert code_of(lambda: plan_version_deletion(registry.state, "a", 2, permanent=True)) == 40407
    assert code_of(lambda: plan_version_deletion(registry.state, "a", 3, permanent=True)) == 40402
    registry.delete("a")
    assert registry.delete("a", permanent=True) == [1, 2]
    assert registry.state.contexts["."].schemas == {} and registry.state.guids == {}
    assert registry.register("a", LONG) == (1, 2), "an id is not given twice"


def test_a_deleted_subject_loses_its_settings() -> None:
    registry = Registry()
    registry.register("a", INT)
    registry.write(plan_config(registry.state, "a", {"compatibility": "full", "compatibilityGroup": "g"}))
    assert describe_config(registry.state, "a", with_defaults=False)["compatibilityLevel"] == "FULL"
    registry.delete("a")
    assert code_of(lambda: describe_config(registry.state, "a", with_defaults=False)) == 40408
    assert describe_config(registry.state, "a", with_defaults=True) == {"compatibilityLevel": "BACKWARD"}


@pytest.mark.parametrize("scope", [":.c:a", ":.c:", None])
def test_versions_of_another_compatibility_group_are_not_checked(scope: str | None) -> None:
    registry = Registry()
    registry.write(plan_config(registry.state, scope, {"compatibilityGroup": "g"}))
    registry.register(":.c:a", Schema("AVRO", '"int"', metadata={"properties": {"g": "1"}}))
    other = plan_check(registry.state, ":.c:a", Schema("AVRO", '"long"', metadata={"properties": {"g": "2"}}))
    same = plan_check(registry.state, ":.c:a", Schema("AVRO", '"long"', metadata={"properties": {"g": "1"}}))
    assert (len(other.versions), len(same.versions)) == (0, 1)


def test_an_import_keeps_ids_and_versions() -> None:
    registry = Registry()
    assert code_of(lambda: registry.register("a", INT, id=7)) == 42205
    registry.write(plan_mode(registry.state, "a", Mode.import_, force=False))
    assert registry.register("a", INT, id=7, version=3) == (3, 7)
    assert code_of(lambda: registry.register("a", LONG, id=7)) == 42205
    assert code_of(lambda: registry.register("a", LONG)) == 42205, "an import names its id"
    registry.write(plan_mode(registry.state, "a", Mode.readonly, force=False))
    assert code_of(lambda: registry.register("a", LONG)) == 42205
    registry.write(plan_mode(registry.state, None, Mode.readonly_override, force=False))
    assert mode_of(registry.state, "b") is Mode.readonly_override
    assert code_of(lambda: plan_mode(registry.state, None, Mode.import_, force=False)) == 42205


def test_references_are_resolved_once_each_and_before_the_schemas_that_need_them() -> None:
    registry = Registry()
    registry.register("base", INT)
    for level in range(60):  # each level refers twice to the one below
        below = "base" if level == 0 else f"l{level - 1}"
        references = (Reference(f"n{level}", below, 1), Reference(f"m{level}", below, 1))
        registry.register(f"l{level}", Schema("AVRO", f'"t{level}"', references))
    top = registry.state.version("l59", 1)
    assert top is not None
    found = resolve_references(registry.state, "l59", top.schema)
    assert len(found) == 120 and {found[0].text, found[1].text} == {'"int"'}
    assert code_of(lambda: plan_subject_deletion(registry.state, "base", permanent=False)) == 42206
    missing = Schema("AVRO", '"x"', (Reference("n", "none", 1),))
    assert code_of(lambda: resolve_references(registry.state, "a", missing)) == 42201


def test_the_records_alone_make_the_state() -> None:
    registry = Registry()
    registry.register("a", INT)
    registry.register("a", LONG)
    registry.register(":.lab:a", INT)
    registry.write(plan_config(registry.state, None, {"compatibility": "NONE"}))
    registry.write(plan_mode(registry.state, "b", Mode.readonly, force=False))
    registry.delete("a")
    registry.register("a", LONG)
    again, compacted = RegistryState(), RegistryState()
    for key, value in registry.written:
        record = decode_record(key, value)
        assert record is not None
        again.apply(record)
    assert contents(again) == contents(registry.state)
    last = {key: value for key, value in registry.written if not json.loads(key)["keytype"].startswith("DELETE")}
    for key, value in last.items():
        record = decode_record(key, value)
        assert record is not None
        compacted.apply(record)
    assert compacted.contexts["."].max_id == registry.state.contexts["."].max_id


def compact(written: list[tuple[bytes, bytes | None]]) -> RegistryState:
    """The state of a registry that starts after the topic was compacted: the last record of each
    key is left.
    """
    state, last = RegistryState(), dict[bytes, bytes | None]()
    for key, value in written:
        last.pop(key, None)
        last[key] = value
    for key, value in last.items():
        record = None if value is None else decode_record(key, value)
        if record is not None:
            state.apply(record)
    return state


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["register", "delete", "delete for good", "compact"]),
        st.sampled_from(["a", "b", ":.lab:a"]),
        st.integers(1, 3),
    ),
    max_size=25,
)


@given(STEPS)
@example([("register", "a", 1), ("delete", "a", 1), ("delete for good", "a", 1), ("compact", "", 1)] * 2)
@example(
    [("register", "a", 1), ("delete", "a", 1), ("delete for good", "a", 1), ("compact", "", 1), ("register", "b", 2)]
)
def test_an_id_never_names_another_schema_whatever_is_deleted_and_compacted(steps: list[tuple[str, str, int]]) -> None:
    registry = Registry()
    named: dict[tuple[str, int], str] = {}
    for step, subject, size in steps:
        match step:
            case "register":
                schema = Schema("AVRO", f'{{"type":"fixed","name":"F","size":{size}}}')
                _, schema_id = registry.register(subject, schema)
                assert named.setdefault((context_of(subject), schema_id), schema.text) == schema.text
            case "compact":
                registry.state = compact(registry.written)
                assert not any("HIGHEST_ID" in name for name in registry.state.subjects)
            case _:
                with contextlib.suppress(RegistryError):
                    registry.delete(subject, permanent=step != "delete")


def test_the_record_of_the_highest_id_is_a_soft_deleted_schema_for_other_registries() -> None:
    registry = Registry()
    registry.register("a", INT)
    registry.register("a", LONG)
    registry.delete("a")
    before = len(registry.written)
    registry.delete("a", permanent=True)
    key, value = registry.written[before]
    assert json.loads(key) == {"keytype": "SCHEMA", "subject": "__HIGHEST_ID", "version": 1, "magic": 1}
    assert value is not None
    assert {"id": 2, "version": 1, "deleted": True}.items() <= json.loads(value).items()
    assert code_of(lambda: registry.register("__HIGHEST_ID", INT)) == 42208


def test_records_of_confluents_registry_are_read() -> None:
    state = RegistryState()
    for key, value in (
        ('{"keytype":"NOOP","magic":0}', None),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}'),
        ('{"keytype":"CONTEXT","tenant":"default","context":".","magic":0}', '{"tenant":"default","context":"."}'),
        (
            '{"keytype":"SCHEMA","subject":"t-value","version":1,"magic":1}',
            '{"subject":"t-value","version":1,"id":5,"md5":"aGFsbG8=","schema":"\\"int\\"","deleted":false}',
        ),
        (
            '{"keytype":"SCHEMA","subject":"j","version":1,"magic":1}',
            '{"subject":"j","version":1,"id":6,"schemaType":"JSON","references":[{"name":"r","subject":"t-value",'
            '"version":1}],"schema":"{}","deleted":true}',
        ),
        ('{"keytype":"MODE","subject":"t-value","magic":0}', '{"subject":"t-value","mode":"READONLY"}'),
    ):
        record = decode_record(key.encode(), None if value is None else value.encode())
        if record is not None:
            state.apply(record)
    version = state.version("t-value", 1)
    assert isinstance(version, SchemaVersion) and (version.id, version.schema.text) == (5, '"int"')
    assert state.version("j", 1) is None and state.version("j", 1, with_deleted=True) is not None
    assert [one.subject for one in state.referrers("t-value", 1, with_deleted=True)] == ["j"]
    assert describe_config(state, None, with_defaults=True) == {"compatibilityLevel": "FULL"}
    assert mode_of(state, "t-value") is Mode.readonly
    with pytest.raises(ValueError, match="cannot be read"):
        decode_record(b'{"keytype":"SCHEMA","subject":"t","version":1,"magic":1}', b"{}")


def test_the_keys_have_confluents_fields_in_their_order() -> None:
    registry = Registry()
    registry.register("a", INT)
    registry.write(plan_config(registry.state, None, {"compatibility": "NONE"}))
    assert [key.decode() for key, _ in registry.written] == [
        '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        '{"keytype":"CONFIG","subject":null,"magic":0}',
    ]
    value = json.loads(registry.written[0][1] or b"")
    assert list(value) == ["subject", "version", "id", "guid", "schema", "deleted"]
