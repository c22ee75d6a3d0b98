"""Principals that may do some operations on every resource of a type, whatever access control
entries say: `restricted.super.users`, which is `super.users` with a part of the rights.

It is for components that must work before any entry exists and cannot be locked out by one, but
need few operations: the operator of a Cluster administers topics, users and rules, and reads no
record.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla_broker.security.authorizer import IMPLIED_BY, OPERATIONS, Operation, ResourceType

Rights = frozenset[tuple[ResourceType, Operation]]
"""Operations with those that they imply."""
RestrictedSuperUsers = Mapping[str, Rights]
"""By the principal as text, such as `User:operator`."""

ALLOWED: Final = "PRINCIPAL=TYPE:OPERATION,… entries separated by semicolons, such as User:operator=Cluster:Alter"
_TYPES: Final = {it.name.replace("_", ""): it for it in ResourceType}
_OPERATIONS: Final = {it.name.replace("_", ""): it for it in Operation}


def parse_restricted_super_users(text: str) -> dict[str, Rights]:
    """`User:operator=Cluster:Alter,Topic:Create;…`. Types and operations may be in upper or lower
    case. Raises ValueError.
    """
    found: dict[str, Rights] = {}
    for entry in filter(None, map(str.strip, text.split(";"))):
        principal, _, rights = entry.rpartition("=")  # names of certificates have equals signs
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{entry!r} has no principal before its last equals sign")
        found[principal] = found.get(principal, frozenset()) | with_implied(map(_parse_right, rights.split(",")))
    return found


def _parse_right(text: str) -> tuple[ResourceType, Operation]:
    type_name, _, operation_name = text.strip().lower().partition(":")
    kind, operation = _TYPES.get(type_name), _OPERATIONS.get(operation_name)
    if kind is None or operation is None or operation not in OPERATIONS[kind]:
        raise ValueError(f"{text.strip()!r} is not an operation of a type of resources")
    return kind, operation


def with_implied(rights: Iterable[tuple[ResourceType, Operation]]) -> Rights:
    """The rights, and those that they imply in access control entries."""
    given = frozenset(rights)
    return given | {
        (kind, implied)
        for kind, operation in given
        for implied, by in IMPLIED_BY.items()
        if operation in by and implied in OPERATIONS[kind]
    }


def format_restricted_super_users(value: object) -> str:
    assert isinstance(value, dict)
    entries: Iterable[tuple[str, Rights]] = value.items()
    return ";".join(f"{principal}={','.join(map(_format_right, sorted(rights)))}" for principal, rights in entries)


def _format_right(right: tuple[ResourceType, Operation]) -> str:
    return ":".join("".join(part.capitalize() for part in it.name.split("_")) for it in right)
