"""Compatibility levels: which earlier versions a new one is checked against, and in which
direction.

BACKWARD: the new schema reads data of the old one. FORWARD: the old schema reads data of the new
one. FULL: both. TRANSITIVE: against every earlier version, not just the latest.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from ottla_broker.registry.errors import invalid_compatibility
from ottla_broker.registry.schema import JsonObject
from ottla_broker.registry.state import RegistryState, SchemaVersion


class CompatibilityLevel(StrEnum):
    none = "NONE"
    backward = "BACKWARD"
    backward_transitive = "BACKWARD_TRANSITIVE"
    forward = "FORWARD"
    forward_transitive = "FORWARD_TRANSITIVE"
    full = "FULL"
    full_transitive = "FULL_TRANSITIVE"

    @property
    def new_reads_old(self) -> bool:
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        return self.startswith(("FORWARD", "FULL"))

    @property
    def is_transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")


DEFAULT_LEVEL: Final = CompatibilityLevel.backward


def parse_level(text: object) -> CompatibilityLevel:
    """Parses the compatibility level in a request, in upper or lower case. Raises RegistryError."""
    try:
        return CompatibilityLevel(str(text).upper())
    except ValueError:
        raise invalid_compatibility(text) from None


def level_of(state: RegistryState, subject: str) -> CompatibilityLevel:
    """The level that applies to a subject: that of the first of its `setting_scopes` that has one,
    else DEFAULT_LEVEL.
    """
    for scope in state.setting_scopes(subject):
        if (level := state.configs.get(scope, {}).get("compatibilityLevel")) is not None:
            return parse_level(level)
    return DEFAULT_LEVEL


def versions_to_check(level: CompatibilityLevel, versions: Sequence[SchemaVersion]) -> list[SchemaVersion]:
    """The earlier versions that a new one must be compatible with, the newest first. `versions`:
    those of the subject in ascending order.
    """
    if level is CompatibilityLevel.none:
        return []
    found = list(reversed(versions))
    return found if level.is_transitive else found[:1]


def compatibility_group(config: JsonObject, metadata: JsonObject | None) -> object:
    """The value of the metadata property that a subject's config names as its compatibility group;
    None if it names none. Only versions of the same group are compared.
    """
    name = config.get("compatibilityGroup")
    return None if name is None else ((metadata or {}).get("properties") or {}).get(name)
