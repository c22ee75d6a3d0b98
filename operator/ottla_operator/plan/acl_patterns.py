"""Access rules in the form that people write: `orders*` for a prefix, `*` for all, `alice` for
User:alice. Pure.
"""

import re
from typing import Final

from ottla_broker.security.acls import WILDCARD, AccessControlEntry, PatternType, Permission
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.security.principal import Principal

_PRINCIPAL: Final = re.compile(r"[A-Za-z]+:.+", re.DOTALL)


def parse_pattern(text: str) -> tuple[str, PatternType]:
    """Resource name and pattern type: a name that ends with `*` is a prefix, `*` alone matches
    every name.
    """
    if text != WILDCARD and text.endswith(WILDCARD):
        return text[:-1], PatternType.PREFIXED
    return text, PatternType.LITERAL


def format_pattern(name: str, pattern_type: int) -> str:
    """Inverse of `parse_pattern`. A literal name that ends with `*` is marked, because it reads
    like a prefix.
    """
    if pattern_type == PatternType.PREFIXED:
        return f"{name}{WILDCARD}"
    return f"{name} (literal)" if name != WILDCARD and name.endswith(WILDCARD) else name


def parse_principal(text: str) -> Principal:
    """Parses `User:alice`. A name without a type is a User's."""
    kind, _, name = text.partition(":") if _PRINCIPAL.fullmatch(text) else ("User", "", text)
    return Principal(kind, name)


def camel_case(name: str) -> str:
    """describe_configs → DescribeConfigs, as User resources and Kafka's tools name operations and
    resource types.
    """
    return "".join(part.capitalize() for part in name.split("_"))


def describe_entry(entry: AccessControlEntry) -> str:
    """Describes a rule, such as: allow Read on topic orders* to User:alice from 10.0.0.1."""
    resource = ResourceType(entry.resource_type).name.replace("_", " ")
    if entry.resource_type != ResourceType.cluster:
        resource += f" {format_pattern(entry.resource_name, entry.pattern_type)}"
    host = "" if entry.host == WILDCARD else f" from {entry.host}"
    permission = Permission(entry.permission).name.lower()
    return f"{permission} {camel_case(Operation(entry.operation).name)} on {resource} to {entry.principal}{host}"
