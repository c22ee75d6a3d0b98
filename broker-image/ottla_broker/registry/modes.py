"""Modes of subjects: whether schemas can be registered, and with which ids. Pure."""

from enum import StrEnum

from ottla_broker.registry import errors
from ottla_broker.registry.record_format import ModeValue, SchemasRecord, mode_key
from ottla_broker.registry.state import RegistryState
from ottla_broker.registry.subject_names import parse_subject


class Mode(StrEnum):
    readwrite = "READWRITE"
    readonly = "READONLY"
    readonly_override = "READONLY_OVERRIDE"
    import_ = "IMPORT"
    forward = "FORWARD"


DEFAULT_MODE = Mode.readwrite


def parse_mode(text: object) -> Mode:
    """Parses the mode in a request, in upper or lower case. Raises RegistryError."""
    try:
        return Mode(str(text).upper())
    except ValueError:
        raise errors.invalid_mode(text) from None


def mode_of(state: RegistryState, subject: str | None) -> Mode:
    """The mode that applies to a subject, or to the whole registry (None): that of the first of the
    `setting_scopes` that has one, else DEFAULT_MODE. READONLY_OVERRIDE of the registry overrides
    the subject's own mode.
    """
    if state.modes.get(None) == Mode.readonly_override:
        return Mode.readonly_override
    for scope in state.setting_scopes(subject):
        if scope in state.modes:
            return parse_mode(state.modes[scope])
    return DEFAULT_MODE


def check_writable(state: RegistryState, subject: str | None) -> None:
    """Raises RegistryError if the mode allows no changes."""
    mode = mode_of(state, subject)
    if mode in (Mode.readonly, Mode.readonly_override, Mode.forward):
        what = "The registry" if subject is None else f"Subject {subject}"
        raise errors.operation_not_permitted(f"{what} is in {mode} mode")


def plan_mode(state: RegistryState, subject: str | None, mode: Mode, *, force: bool) -> list[SchemasRecord]:
    """The record that sets a mode. IMPORT needs a subject, context or registry without schemas,
    because clients may have seen their ids, unless it is in IMPORT mode already. `force`: sets the
    mode in any case. Raises RegistryError.
    """
    if (
        mode is Mode.import_
        and not force
        and mode_of(state, subject) is not Mode.import_
        and _has_schemas(state, subject)
    ):
        raise errors.operation_not_permitted("Cannot import since found existing subjects")
    return [SchemasRecord(mode_key(subject), ModeValue(mode))]


def _has_schemas(state: RegistryState, scope: str | None) -> bool:
    if scope is None:
        return bool(state.subjects)
    name = parse_subject(scope)
    if name.is_context:
        return any(parse_subject(subject).context == name.context for subject in state.subjects)
    return scope in state.subjects


def plan_mode_removal(state: RegistryState, subject: str | None) -> list[SchemasRecord]:
    """The record that removes a mode. Raises RegistryError when the subject has none of its own."""
    if subject is not None and subject not in state.modes:
        raise errors.subject_not_found(subject)
    return [SchemasRecord(mode_key(subject), None)]
