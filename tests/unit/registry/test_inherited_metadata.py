"""What a schema gets from the version before it, and from the config."""

from typing import Any

import pytest

from ottla_broker.registry.inherited_metadata import merge_metadata, merge_rules
from ottla_broker.registry.modes import Mode, plan_mode
from ottla_broker.registry.schema import Schema
from ottla_broker.registry.settings import plan_config, plan_config_removal
from tests.unit.registry.memory_registry import INT, Registry, code_of

OWNER = {"properties": {"owner": "o"}}
RULES = {"domainRules": [{"name": "r", "type": "CEL", "expr": "true"}]}
DESCRIBED = Schema("AVRO", '"int"', metadata=OWNER, rule_set=RULES)


def latest(registry: Registry) -> Schema:
    return registry.state.versions("a")[-1].schema


def test_a_schema_without_metadata_takes_that_of_the_latest_version() -> None:
    """Serialisers register texts alone; they neither remove metadata nor make another version."""
    registry = Registry()
    first = registry.register("a", DESCRIBED)
    assert registry.register("a", INT) == registry.register("a", DESCRIBED) == first
    registry.register("a", Schema("AVRO", '"long"'))
    assert (latest(registry).metadata, latest(registry).rule_set) == (OWNER, RULES)


def test_metadata_of_the_request_replaces_that_of_the_version_before() -> None:
    registry = Registry()
    registry.register("a", DESCRIBED)
    registry.register("a", Schema("AVRO", '"int"', metadata={"properties": {"team": "t"}}))
    assert (latest(registry).metadata, latest(registry).rule_set) == ({"properties": {"team": "t"}}, RULES)


def test_a_config_has_defaults_and_overrides() -> None:
    registry = Registry()
    config: dict[str, Any] = {
        "defaultMetadata": {"properties": {"owner": "nobody", "level": "1"}},
        "overrideMetadata": {"properties": {"level": "2"}},
        "defaultRuleSet": RULES,
    }
    registry.write(plan_config(registry.state, None, config))
    registry.register("a", Schema("AVRO", '"int"', metadata=OWNER))
    assert latest(registry).metadata == {"properties": {"owner": "o", "level": "2"}}
    assert latest(registry).rule_set == RULES
    registry.register("a", INT)
    assert len(registry.state.versions("a")) == 1


def test_an_import_takes_no_metadata_of_the_version_before() -> None:
    registry = Registry()
    registry.register("a", DESCRIBED)
    registry.write(plan_mode(registry.state, "a", Mode.import_, force=True))
    registry.register("a", Schema("AVRO", '"long"'), id=7, version=3)
    assert latest(registry).metadata is None


def test_tags_properties_and_sensitive_ones_are_merged() -> None:
    old = {"tags": {"a": ["X"]}, "properties": {"p": "1", "q": "1"}, "sensitive": ["p"]}
    new = {"tags": {"b": ["Y"]}, "properties": {"q": "2"}, "sensitive": ["p", "q"]}
    assert merge_metadata(old, new) == {
        "tags": {"a": ["X"], "b": ["Y"]},
        "properties": {"p": "1", "q": "2"},
        "sensitive": ["p", "q"],
    }


def test_rules_of_the_same_name_are_replaced() -> None:
    old = {"domainRules": [{"name": "a", "expr": "1"}, {"name": "b"}], "migrationRules": [{"name": "m"}]}
    new = {"domainRules": [{"name": "a", "expr": "2"}], "enableAt": "CLIENT"}
    assert merge_rules(old, new) == {
        "domainRules": [{"name": "b"}, {"name": "a", "expr": "2"}],
        "migrationRules": [{"name": "m"}],
        "enableAt": "CLIENT",
    }


@pytest.mark.parametrize("mode", [Mode.readonly, Mode.readonly_override])
def test_a_read_only_registry_takes_no_settings(mode: Mode) -> None:
    """The registry that reads while another one writes must write nothing else than its mode."""
    registry = Registry()
    registry.write(plan_config(registry.state, "a", {"compatibility": "FULL"}))
    registry.write(plan_mode(registry.state, None, mode, force=False))
    assert code_of(lambda: plan_config(registry.state, "a", {"compatibility": "NONE"})) == 42205
    assert code_of(lambda: plan_config(registry.state, None, {"compatibility": "NONE"})) == 42205
    assert code_of(lambda: plan_config_removal(registry.state, "a")) == 42205
