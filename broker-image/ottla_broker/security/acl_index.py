"""Finds the access control entries that match a resource, and decides by them. Pure.

The rules are those of Kafka's StandardAuthorizer (KIP-801):

- An entry matches a resource by its literal name, by a prefix of it, or by the name `*`.
- Any matching DENY takes precedence over every ALLOW.
- READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS. This
  holds for ALLOW only.
- Without a matching entry for the principal the operation is denied. For a resource that no entry
  matches, `allow.everyone.if.no.acl.found` decides.
"""

from collections import Counter
from collections.abc import Iterator
from enum import Enum

from ottla_broker.security.acls import WILDCARD, AccessControlEntry, PatternType, Permission, matches_principal
from ottla_broker.security.authorizer import IMPLIED_BY, Operation, Resource, ResourceType
from ottla_broker.security.principal import Principal


class Verdict(Enum):
    ALLOWED = "allowed"
    DENIED = "denied"
    NO_MATCHING_ENTRY = "no entry matches the resource"


class AclIndex:
    """Entries by resource type and name, with literal names and prefixes in separate maps. `decide`
    takes one step for each length of a prefix, independent of the number of entries. `allows_any`
    takes one for each entry of the principal, or of all principals of its type.
    """

    def __init__(self) -> None:
        self._literal: dict[tuple[int, str], dict[AccessControlEntry, None]] = {}
        self._prefixed: dict[tuple[int, str], dict[AccessControlEntry, None]] = {}
        self._prefix_lengths: dict[int, Counter[int]] = {}  # by resource type
        self._of_principal: dict[tuple[int, str], dict[AccessControlEntry, None]] = {}  # by resource type, principal

    def add(self, entry: AccessControlEntry) -> None:
        key = entry.resource_type, entry.resource_name
        self._of_principal.setdefault((key[0], entry.principal), {})[entry] = None
        if entry.pattern_type == PatternType.PREFIXED:
            self._prefix_lengths.setdefault(key[0], Counter())[len(key[1])] += 1
            self._prefixed.setdefault(key, {})[entry] = None
        else:
            self._literal.setdefault(key, {})[entry] = None

    def remove(self, entry: AccessControlEntry) -> None:
        key = entry.resource_type, entry.resource_name
        entries = self._prefixed if entry.pattern_type == PatternType.PREFIXED else self._literal
        owned = entry.resource_type, entry.principal
        for index, at in ((entries, key), (self._of_principal, owned)):
            index[at].pop(entry)
            if not index[at]:
                del index[at]
        if entry.pattern_type == PatternType.PREFIXED:
            lengths = self._prefix_lengths[key[0]]
            lengths[len(key[1])] -= 1
            lengths += Counter()  # drops the lengths that no prefix has

    def matching(self, resource: Resource) -> Iterator[AccessControlEntry]:
        """The entries whose pattern matches the resource, of all principals."""
        kind, name = int(resource.kind), resource.name
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length <= len(name):
                yield from self._prefixed.get((kind, name[:length]), ())

    def decide(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> Verdict:
        verdict = Verdict.NO_MATCHING_ENTRY
        for entry in self.matching(resource):
            permission = permission_of(entry, principal, host, operation)
            if permission is Permission.DENY:
                return Verdict.DENIED
            if permission is Permission.ALLOW:
                verdict = Verdict.ALLOWED
            elif verdict is Verdict.NO_MATCHING_ENTRY:
                verdict = Verdict.DENIED
        return verdict

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """True if an ALLOW entry for some resource of the type is not covered by a DENY entry:
        Kafka's `authorizeByResourceType` (KIP-679)."""
        allowed, denied_names, denied_prefixes = list[AccessControlEntry](), set[str](), set[str]()
        for entry in self._of_client(principal, kind):
            permission = permission_of(entry, principal, host, operation)
            if permission is Permission.ALLOW:
                allowed.append(entry)
            elif permission is Permission.DENY and entry.pattern_type == PatternType.PREFIXED:
                denied_prefixes.add(entry.resource_name)
            elif permission is Permission.DENY:
                denied_names.add(entry.resource_name)
        if WILDCARD in denied_names:
            return False
        return any(not _is_covered(entry, denied_names, denied_prefixes) for entry in allowed)

    def _of_client(self, principal: Principal, kind: ResourceType) -> Iterator[AccessControlEntry]:
        for name in {principal.name, WILDCARD}:
            yield from self._of_principal.get((int(kind), f"{principal.kind}:{name}"), ())


def permission_of(
    entry: AccessControlEntry, principal: Principal, host: str, operation: Operation
) -> Permission | None:
    """Permission of the operation by an entry; None when the entry is for another principal, host
    or operation.
    """
    if not matches_principal(entry, principal) or entry.host not in (WILDCARD, host):
        return None
    if entry.operation in (Operation.all, operation):
        return Permission(entry.permission)
    if entry.permission == Permission.ALLOW and entry.operation in IMPLIED_BY.get(operation, ()):
        return Permission.ALLOW
    return None


def _is_covered(entry: AccessControlEntry, denied_names: set[str], denied_prefixes: set[str]) -> bool:
    """True if every resource that an ALLOW entry matches is denied. A literal `*` is covered only
    by a denied `*`.
    """
    name = entry.resource_name
    if entry.pattern_type == PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if name in denied_names:
            return True
    return any(name[:length] in denied_prefixes for length in range(1, len(name) + 1))
