"""Decides which resource owns a topic, subject or user that several resources describe. Pure."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar


class Ranked(Protocol):
    """`rank`: the older resource comes first."""

    @property
    def rank(self) -> tuple[str, str]: ...


R = TypeVar("R", bound=Ranked)


def oldest_owners(resources: Iterable[R], owned: Callable[[R], str | None]) -> dict[str, R]:
    """Name → the oldest resource that describes it. `owned`: the name that a resource describes;
    None if its spec is invalid.
    """
    owners: dict[str, R] = {}
    for it in sorted(resources, key=lambda it: it.rank):
        if (name := owned(it)) is not None:
            owners.setdefault(name, it)
    return owners
