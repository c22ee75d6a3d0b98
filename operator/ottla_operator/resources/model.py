"""Base of the custom resources' types: strict structs, and rules declared for the API server and
for Python.

A rule is written twice, side by side: in CEL, which the API server evaluates, and as a Python
predicate, which the operator, `ottla up` and the pipeline runner evaluate. A test compares the two
on examples.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import msgspec
from msgspec import Meta

Json: TypeAlias = Any
"""A JSON or YAML value: null, boolean, number, string, list, or object with string keys."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on one object. `cel` refers to `self`; `holds` takes the same object as plain
    JSON.

    `cel` is None where the API server cannot evaluate it (values of unknown type, keys of unbounded
    length). Then `ottla up` refuses the object and the operator reports `Stalled`.
    """

    cel: str | None
    message: str
    holds: Callable[[dict[str, Json]], bool]
    field: str = ""
    """Field that the message is about, such as `partitions`. Empty: the object itself."""
    detail: Callable[[dict[str, Json]], str] = lambda _: ""
    """The offending value and the allowed values, appended to the message."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A condition on an update. `cel` refers to `self` and `oldSelf`; `holds` takes (new, old)."""

    cel: str
    message: str
    holds: Callable[[dict[str, Json], dict[str, Json]], bool]
    field: str = ""
    detail: Callable[[dict[str, Json], dict[str, Json]], str] = lambda new, old: ""


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """An object in a resource: camelCase in YAML, snake_case in Python. Unknown fields are errors.

    Optional fields hold the default that applies when the resource leaves them out. The CRDs
    declare no defaults for them, so the API server stores what was applied.
    """

    rules: ClassVar[tuple[Rule | Transition, ...]] = ()

    @classmethod
    def parse(cls, data: Json) -> Self:
        """Raises msgspec.ValidationError if the shape or a value is invalid. Rules are not
        evaluated.
        """
        return msgspec.convert(data, cls)

    def to_json(self) -> dict[str, Json]:
        """Inverse of `parse`, without fields that hold their default."""
        fields: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(self))  # to_builtins would keep tuples
        return fields


def doc(description: str, schema: dict[str, Json] | None = None) -> Meta:
    """Description of a field in the CRD, and further keywords of its schema.

    The description of an optional field ends with "Defaults to …." where the default is not simply
    "not set".
    """
    return Meta(description=description, extra_json_schema=schema)


def listed(kind: str, *keys: str) -> dict[str, Json]:
    """Kubernetes' list semantics for server-side apply: `atomic`, `set`, or `map` with its keys."""
    keywords: dict[str, Json] = {"x-kubernetes-list-type": kind}
    return keywords | {"x-kubernetes-list-map-keys": list(keys)} if keys else keywords


def exactly_one(*fields: str, message: str) -> Rule:
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in fields)
    return Rule(f"{count} == 1", message, lambda value: sum(name in value for name in fields) == 1)


def at_most_one(*fields: str, message: str) -> Rule:
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in fields)
    return Rule(f"{count} <= 1", message, lambda value: sum(name in value for name in fields) <= 1)


def immutable(field: str, message: str) -> Transition:
    """An optional field that cannot be changed, added or removed after creation."""
    return Transition(
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        message,
        lambda new, old: new.get(field) == old.get(field),
        field,
    )


def immutable_cluster_ref(message: str) -> Transition:
    """The Cluster of an object, which cannot be changed after creation."""
    return Transition(
        "self.clusterRef.name == oldSelf.clusterRef.name",
        message,
        lambda new, old: bool(new["clusterRef"]["name"] == old["clusterRef"]["name"]),
        "clusterRef",
    )
