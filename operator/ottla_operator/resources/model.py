"""What every resource is built of: a strict model, and rules that are declared once for the API server and for us.

A rule says the same thing twice, side by side: in CEL, which the API server evaluates, and as a Python predicate,
which `ottla up`
evaluates. Neither is derived from the other; a test compares them on examples.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

Json: TypeAlias = Any
"""What a JSON or YAML document holds: null, booleans, numbers, strings, lists, and objects with string keys."""

Holds = Callable[[dict[str, Json]], bool]
StillHolds = Callable[[dict[str, Json], dict[str, Json]], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that one object must fulfil. `cel` speaks of `self`; `holds` gets the same object as plain JSON.

    `cel` is None where the API server cannot say it (values of unknown type and names of unbounded length are out of its
    reach); then `ottla up` refuses the object and the operator reports `Stalled`.
    """

    cel: str | None
    message: str
    holds: Holds
    field: str = ""
    """Which field the message is about, for people's eyes (`partitions`); empty: the object itself."""
    found: Callable[[dict[str, Json]], str] = lambda _: ""
    """What of the object breaks it, and what would not, for people's eyes; after the message."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Something that a change must fulfil. `cel` speaks of `self` and `oldSelf`; `holds` gets (new, old)."""

    cel: str
    message: str
    holds: StillHolds
    field: str = ""
    found: Callable[[dict[str, Json], dict[str, Json]], str] = lambda new, old: ""


class Model(BaseModel):
    """One object of a resource. Fields are camelCase in YAML, snake_case in Python; unknown fields are errors."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    rules: ClassVar[tuple[Rule | Transition, ...]] = ()


def exactly_one(*fields: str, message: str) -> Rule:
    """Exactly one of the fields is set."""
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in fields)
    return Rule(f"{count} == 1", message, lambda it: sum(name in it for name in fields) == 1)


def at_most_one(*fields: str, message: str) -> Rule:
    """No two of the fields are set."""
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in fields)
    return Rule(f"{count} <= 1", message, lambda it: sum(name in it for name in fields) <= 1)


def immutable(field: str, message: str) -> Transition:
    """An optional field that is set when the object is created and never changed, added or taken away."""
    return Transition(
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        message,
        lambda new, old: new.get(field) == old.get(field),
        field,
    )
