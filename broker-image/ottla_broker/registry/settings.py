"""Changes of the config of a subject, a context or the whole registry: its compatibility level and
STORED_FIELDS. Pure.
"""

from typing import Final

from ottla_broker.registry import errors
from ottla_broker.registry.compatibility import DEFAULT_LEVEL, parse_level
from ottla_broker.registry.modes import check_writable
from ottla_broker.registry.record_format import ConfigValue, SchemasRecord, config_key
from ottla_broker.registry.schema import JsonObject
from ottla_broker.registry.state import RegistryState

STORED_FIELDS: Final = (
    "alias",
    "aliasForDeks",
    "normalize",
    "validateFields",
    "validateNewSchemas",
    "validateRules",
    "compatibilityGroup",
    "compatibilityPolicy",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
"""Fields of a config that are stored and returned, besides the level."""


def plan_config(state: RegistryState, subject: str | None, request: JsonObject) -> list[SchemasRecord]:
    """The record that changes a config. Fields that the request leaves out keep their values; null
    removes a field of STORED_FIELDS. Raises RegistryError, also if no field would remain.
    """
    check_writable(state, subject)
    fields = dict(state.configs.get(subject, {}))
    level = request.get("compatibility", request.get("compatibilityLevel"))
    if level is not None:
        fields["compatibilityLevel"] = str(parse_level(level))
    for name in STORED_FIELDS:
        if name in request:
            fields[name] = request[name]
    fields = {name: value for name, value in fields.items() if value is not None}
    if not fields:
        raise errors.invalid_compatibility(level)
    return [SchemasRecord(config_key(subject), ConfigValue(fields))]


def plan_config_removal(state: RegistryState, subject: str | None) -> tuple[JsonObject, list[SchemasRecord]]:
    """The removed settings, and the record that removes them. Raises RegistryError."""
    check_writable(state, subject)
    if subject is not None and subject not in state.configs:
        raise errors.subject_not_found(subject)
    return dict(state.configs.get(subject, {})), [SchemasRecord(config_key(subject), None)]


def describe_config(state: RegistryState, subject: str | None, *, with_defaults: bool) -> JsonObject:
    """The settings of a subject, a context or the registry (None). `with_defaults`: also the
    settings that apply where it has none of its own, which the registry's always include. Without
    it, raises RegistryError for a subject or context that has no settings.
    """
    if subject is not None and not with_defaults:
        own = state.configs.get(subject)
        if own is None:
            raise errors.compatibility_not_configured(subject)
        return own
    fields: JsonObject = {"compatibilityLevel": str(DEFAULT_LEVEL)}
    for scope in reversed(list(state.setting_scopes(subject))):
        fields |= state.configs.get(scope, {})
    return fields
