"""Metadata and rules that a schema gets from the version before it and from its subject's config.

A client that registers the text alone, as serialisers do, keeps the metadata and rules that someone
has added to the latest version. Those of the request replace them. The result is then merged with
the config's defaults, over which it takes precedence, and with the config's overrides, which take
precedence over it. Pure.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ottla_broker.registry.schema import LATEST, JsonObject, Schema
from ottla_broker.registry.state import RegistryState

RULE_LISTS: Final = ("migrationRules", "domainRules", "encodingRules")

Merge = Callable[[JsonObject, JsonObject], JsonObject]


def with_inherited(state: RegistryState, subject: str, schema: Schema) -> Schema:
    """The schema with its metadata and rules, or else those of the latest version, merged with the
    defaults and overrides of the subject's config.
    """
    latest = state.version(subject, LATEST)
    before = None if latest is None else latest.schema
    config = find_config(state, subject)
    metadata = schema.metadata or (None if before is None else before.metadata)
    rule_set = schema.rule_set or (None if before is None else before.rule_set)
    metadata = _merge(merge_metadata, config.get("defaultMetadata"), metadata, config.get("overrideMetadata"))
    rule_set = _merge(merge_rules, config.get("defaultRuleSet"), rule_set, config.get("overrideRuleSet"))
    if metadata == schema.metadata and rule_set == schema.rule_set:
        return schema
    return msgspec.structs.replace(schema, metadata=metadata, rule_set=rule_set)


def find_config(state: RegistryState, subject: str) -> JsonObject:
    """The config of the first of the subject's `setting_scopes` that has one; empty if none has."""
    return next((state.configs[scope] for scope in state.setting_scopes(subject) if scope in state.configs), {})


def _merge(merge: Merge, *layers: object) -> JsonObject | None:
    """The layers, merged so that later ones win. Layers that are not objects, or are empty, are
    left out; None if none remains.
    """
    merged: JsonObject | None = None
    for layer in layers:
        if isinstance(layer, dict) and layer:
            merged = layer if merged is None else merge(merged, layer)
    return merged


def merge_metadata(old: JsonObject, new: JsonObject) -> JsonObject:
    """`new` wins. Tags and properties are merged by name, and sensitive fields added."""
    merged = old | new
    for name in ("tags", "properties"):
        if isinstance(old.get(name), dict) and isinstance(new.get(name), dict):
            merged[name] = old[name] | new[name]
    if isinstance(old.get("sensitive"), list) and isinstance(new.get("sensitive"), list):
        merged["sensitive"] = list(dict.fromkeys([*old["sensitive"], *new["sensitive"]]))
    return merged


def merge_rules(old: JsonObject, new: JsonObject) -> JsonObject:
    """`new` wins: its rules replace those of the same name."""
    merged = old | new
    for name in RULE_LISTS:
        if isinstance(old.get(name), list) and isinstance(new.get(name), list):
            names = [_name(rule) for rule in new[name]]
            merged[name] = [rule for rule in old[name] if _name(rule) not in names] + new[name]
    return merged


def _name(rule: Any) -> object:
    return rule.get("name") if isinstance(rule, dict) else None
