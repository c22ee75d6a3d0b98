"""Kafka's StandardAuthorizer: super users, then the access control entries of the metadata log.
Between the two are Ottla's `restricted.super.users`.

Decisions are cached until an entry changes, so a removed entry already counts for the next request
of an open connection.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from ottla_broker.security.acl_index import AclIndex, Verdict
from ottla_broker.security.acls import AccessControlEntry
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.security.principal import Principal
from ottla_broker.security.restricted_super_users import RestrictedSuperUsers

MAX_CACHED_DECISIONS: Final = 20_000
"""The cache is emptied when it has this many entries. They take some megabytes, and are more than
the clients of a broker need at a time.
"""
PROBED_NAME: Final = "hardcode"
"""The resource name with which Kafka's `authorizeByResourceType` begins, so that super users and
entries for every name decide first.
"""


class StandardAuthorizer:
    """`super_users`: texts of principals (`User:alice`) that may do every operation. `restricted`:
    those that may do some, on every resource.
    """

    allows_everything = False

    def __init__(
        self, super_users: Iterable[str], restricted: RestrictedSuperUsers | None = None, *, allow_if_no_acl: bool
    ) -> None:
        self.generation = 0
        self._super_users = frozenset(super_users)
        self._restricted = restricted or {}
        self._allow_if_no_acl = allow_if_no_acl
        self._entries: dict[UUID, AccessControlEntry] = {}
        self._index = AclIndex()
        self._decisions: dict[tuple[Principal, str, Operation, Resource | ResourceType], bool] = {}

    def update(self, changed: Iterable[UUID], entries: Mapping[UUID, AccessControlEntry]) -> None:
        """Adds, replaces or removes the entries with the ids in `changed`. `entries`: all current
        entries; an id that it lacks was removed."""
        for entry_id in changed:
            if (old := self._entries.pop(entry_id, None)) is not None:
                self._index.remove(old)
            if (new := entries.get(entry_id)) is not None:
                self._entries[entry_id] = new
                self._index.add(new)
        self._decisions.clear()
        self.generation += 1

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        decision = self._decisions.get((principal, host, operation, resource))
        if decision is None:
            decision = self._is_allowed(principal, host, operation, resource)
            self._cache((principal, host, operation, resource), decision)
        return decision

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """True if the operation is allowed on some resource of the type, which need not exist."""
        decision = self._decisions.get((principal, host, operation, kind))
        if decision is None:
            probed = Resource(kind, PROBED_NAME)
            decision = self._is_allowed(principal, host, operation, probed) or self._index.allows_any(
                principal, host, operation, kind
            )
            self._cache((principal, host, operation, kind), decision)
        return decision

    def _cache(self, key: tuple[Principal, str, Operation, Resource | ResourceType], decision: bool) -> None:
        if len(self._decisions) >= MAX_CACHED_DECISIONS:
            self._decisions.clear()
        self._decisions[key] = decision

    def _is_allowed(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        name = str(principal)
        if name in self._super_users or (resource.kind, operation) in self._restricted.get(name, ()):
            return True
        verdict = self._index.decide(principal, host, operation, resource)
        return self._allow_if_no_acl if verdict is Verdict.NO_MATCHING_ENTRY else verdict is Verdict.ALLOWED
