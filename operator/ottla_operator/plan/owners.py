"""Decides which resource owns a topic, group, subject or user that several resources describe.
Pure.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ottla_operator.plan.stored_resource import StoredResource

R = TypeVar("R", bound=StoredResource[Any])


def oldest_owners(resources: Iterable[R], owned: Callable[[R], str | None]) -> dict[str, R]:
    """Name → the oldest resource that describes it. `owned`: the name that a resource describes;
    None if its spec is invalid.
    """
    owners: dict[str, R] = {}
    for resource in sorted(resources, key=_age):
        if (name := owned(resource)) is not None:
            owners.setdefault(name, resource)
    return owners


def _age(resource: StoredResource[Any]) -> tuple[str, str]:
    """The older resource comes first."""
    metadata = resource.body["metadata"]
    return metadata.get("creationTimestamp", ""), metadata["name"]
