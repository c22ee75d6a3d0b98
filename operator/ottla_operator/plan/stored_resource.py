"""A resource as it is stored, whose spec may be invalid. Pure."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla_operator.plan.conditions import Readiness, Stalled
from ottla_operator.resources.common import Resource
from ottla_operator.resources.model import Json
from ottla_operator.resources.validation import find_spec_problems

R = TypeVar("R", bound=Resource)


@dataclass(slots=True)
class StoredResource(Generic[R]):
    """`body`: the cached object. `parsed`: None if the spec is invalid, for `invalid_reason`."""

    body: Json
    parsed: R | None
    invalid_reason: str

    @classmethod
    def parse(cls, kind: type[R], body: Json) -> "StoredResource[R]":
        problems = find_spec_problems(body)
        return cls(body, None if problems else kind.parse_stored(body), problems)

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def has_delete_policy(self) -> bool:
        """True if deletionPolicy is Delete, whether or not the rest of the spec is valid."""
        return (self.body["spec"] or {}).get("deletionPolicy") == "Delete"

    def unless_invalid(self, readiness: Readiness) -> Readiness:
        """The readiness of a resource with an invalid spec, or else this one."""
        return readiness if self.parsed is not None else Stalled("InvalidSpec", self.invalid_reason)

    def find_conflict(self, owner: "StoredResource[R] | None", described: str) -> Stalled | None:
        """Why the resource does not own what it describes (`described`, such as "topic orders");
        None if it does.

        `owner`: the owner among the resources that describe it.
        """
        if self.parsed is None:
            return Stalled("InvalidSpec", self.invalid_reason)
        if owner is not None and owner is not self:
            return Stalled("NameConflict", f"{described} belongs to the older {self.body['kind']} {owner.name}")
        return None
