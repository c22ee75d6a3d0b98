"""Finds the access control entry that decides for a principal, a host, an operation and a resource.
Pure.

The decision is the same as that of `acl_index`. It needs only the list of entries, so a client that
has read the list can explain the decisions of brokers.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ottla_broker.security.acl_index import AclIndex, Verdict, permission_of
from ottla_broker.security.acls import AccessControlEntry, Permission
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.security.principal import Principal


@dataclass(frozen=True, slots=True)
class Explanation:
    """`deciding`: the first entry that denies, else the first that allows; None if no entry applies
    to the principal, the host and the operation. `matching`: every entry whose pattern matches the
    resource.
    """

    verdict: Verdict
    deciding: AccessControlEntry | None
    matching: tuple[AccessControlEntry, ...]


def explain(
    entries: Iterable[AccessControlEntry], principal: Principal, host: str, operation: Operation, resource: Resource
) -> Explanation:
    index = AclIndex()
    for entry in entries:
        index.add(entry)
    matching = tuple(index.matching(resource))
    allowing: AccessControlEntry | None = None
    for entry in matching:
        match permission_of(entry, principal, host, operation):
            case Permission.DENY:
                return Explanation(Verdict.DENIED, entry, matching)
            case Permission.ALLOW:
                allowing = allowing or entry
    if allowing is not None:
        return Explanation(Verdict.ALLOWED, allowing, matching)
    return Explanation(Verdict.DENIED if matching else Verdict.NO_MATCHING_ENTRY, None, matching)
