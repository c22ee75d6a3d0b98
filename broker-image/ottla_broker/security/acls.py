"""Access control entries (ACLs) and filters of them. Codes are those of Kafka's AclOperation,
AclPermissionType and PatternType."""

from enum import IntEnum
from typing import Final

import msgspec

from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.security.principal import Principal

ANY: Final = 1
"""Matches every resource type, operation or permission in a filter."""
WILDCARD: Final = "*"
"""Every resource of the type, as a resource name; every host, as a host; every user, as a
principal's name.
"""


class PatternType(IntEnum):
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


class AccessControlEntry(msgspec.Struct, frozen=True):
    """Allows or denies `operation` (Operation.all: each) to `principal` from `host` on the
    resources that match.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


def find_problem(entry: AccessControlEntry) -> str | None:
    """The reason why Kafka's controller refuses an entry with INVALID_REQUEST; None for a valid
    one."""
    if entry.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"pattern type {entry.pattern_type} cannot be created; allowed: 3 (LITERAL), 4 (PREFIXED)"
    if entry.resource_type not in list(ResourceType):
        return f"resource type {entry.resource_type} cannot be created; allowed: {_codes(ResourceType)}"
    if entry.operation not in list(Operation):
        return f"operation {entry.operation} cannot be created; allowed: {_codes(Operation)}"
    if entry.permission not in list(Permission):
        return f"permission type {entry.permission} cannot be created; allowed: {_codes(Permission)}"
    if not entry.resource_name:
        return "the resource name is empty"
    if entry.resource_type == ResourceType.cluster and entry.resource_name != CLUSTER.name:
        return f"the resource name of a cluster is {entry.resource_name!r}; allowed: {CLUSTER.name!r}"
    kind, colon, name = entry.principal.partition(":")
    if not (kind and colon and name):
        return f"the principal is {entry.principal!r}; allowed: TYPE:NAME, for example User:alice"
    if not entry.host:
        return "the host is empty; allowed: an IP address or *"
    return None


def _codes(kinds: type[IntEnum]) -> str:
    return ", ".join(f"{kind.value} ({kind.name.upper()})" for kind in kinds)


class AclFilter(msgspec.Struct, frozen=True):
    """Selects entries (KIP-290). None selects every name, principal or host; 1 every code. The
    pattern type MATCH selects the entries whose patterns match the resource of that name."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def find_problem(self) -> str | None:
        """The reason why the filter is refused with INVALID_REQUEST; None for a valid one."""
        codes = (
            ("resource type", self.resource_type, list(ResourceType)),
            ("pattern type", self.pattern_type, list(PatternType)),
            ("operation", self.operation, list(Operation)),
            ("permission type", self.permission, list(Permission)),
        )
        for what, code, known in codes:
            if code != ANY and code not in known:
                return (
                    f"the filter has the unknown {what} {code}; allowed: 1 (ANY), {', '.join(map(str, sorted(known)))}"
                )
        return None

    def selects(self, entry: AccessControlEntry) -> bool:
        return (
            self.resource_type in (ANY, entry.resource_type)
            and self._selects_pattern(entry)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )

    def _selects_pattern(self, entry: AccessControlEntry) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, entry.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == entry.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if entry.pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(entry.resource_name)
        return entry.resource_name == WILDCARD


def matches_principal(entry: AccessControlEntry, principal: Principal) -> bool:
    return entry.principal in (f"{principal.kind}:{principal.name}", f"{principal.kind}:{WILDCARD}")
