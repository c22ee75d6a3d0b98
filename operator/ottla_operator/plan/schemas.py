"""Plans the changes that bring a subject of the schema registry to the spec of its Schema resource,
and evaluates the resource's conditions. Pure.

Invariants: after the changes are applied, planning again yields nothing. The level is set before
the schema is registered, so the schema is checked against it. No version is ever deleted to
satisfy a spec, and a level that the spec leaves out is not changed.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, TypeAlias

from ottla_operator.plan.conditions import Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.owners import oldest_owners
from ottla_operator.plan.schema_readers import SubjectReader, describe_readers
from ottla_operator.plan.stored_resource import StoredResource
from ottla_operator.resources.model import Json
from ottla_operator.resources.schema_resource import Schema

FINALIZER: Final = "ottla.dev/subject"
"""Finalizer of resources with deletionPolicy Delete."""
INCOMPATIBLE, UNPROCESSABLE = 409, 422
NOT_PERMITTED: Final = 42205
"""Error code of the registry: the subject's mode does not allow the change."""
TRANSIENT_STATUS: Final = frozenset({404, 408, 429})
"""HTTP statuses of refusals that are retried, besides 5xx. 404: others have deleted the subject in
the meantime.
"""


@dataclass(frozen=True, slots=True)
class DesiredSchema:
    """`references`: as the registry's REST interface takes them."""

    subject: str
    type: str
    text: str
    references: tuple[Mapping[str, str | int], ...] = ()

    def to_request(self) -> dict[str, Json]:
        return {"schema": self.text, "schemaType": self.type, "references": [dict(it) for it in self.references]}


@dataclass(frozen=True, slots=True)
class ObservedSubject:
    """`version`, `id`: of the desired schema; `latest`: the subject's latest version. All are None
    if the subject does not have the schema. `level`: compatibility level that applies.
    """

    level: str
    version: int | None = None
    id: int | None = None
    latest: int | None = None


@dataclass(frozen=True, slots=True)
class SetCompatibility:
    event: ClassVar[str] = "CompatibilityChanged"

    subject: str
    level: str


@dataclass(frozen=True, slots=True)
class RegisterSchema:
    event: ClassVar[str] = "SchemaRegistered"

    schema: DesiredSchema


SchemaChange: TypeAlias = SetCompatibility | RegisterSchema


def plan_schema_changes(
    desired: DesiredSchema, level: str | None, observed: ObservedSubject
) -> tuple[SchemaChange, ...]:
    """The changes that bring the subject to the spec, in this order; empty if none is needed.
    `level`: that of the spec.
    """
    changes: list[SchemaChange] = []
    if level is not None and level != observed.level:
        changes.append(SetCompatibility(desired.subject, level))
    if observed.version is None:
        changes.append(RegisterSchema(desired))
    return tuple(changes)


SchemaResource: TypeAlias = StoredResource[Schema]


def referenced_names(resource: SchemaResource) -> frozenset[str]:
    """Names of Schemas that it refers to."""
    references = resource.parsed.spec.references or () if resource.parsed is not None else ()
    return frozenset(it.schema_ref.name for it in references if it.schema_ref is not None)


def subject_owners(resources: Iterable[SchemaResource]) -> dict[str, SchemaResource]:
    """Subject → the resource that owns it, the oldest of several. Invalid resources own none."""
    return oldest_owners(resources, lambda it: it.parsed.subject if it.parsed is not None else None)


def order_by_references(resources: Iterable[SchemaResource]) -> tuple[list[SchemaResource], frozenset[str]]:
    """The resources, each after those that it refers to; and the names of those for which there is
    no order, which are last.
    """
    waiting = {it.name: it for it in resources}
    ordered: list[SchemaResource] = []
    while ready := [it for it in waiting.values() if not referenced_names(it) & waiting.keys()]:
        ordered += ready
        for resource in ready:
            del waiting[resource.name]
    return [*ordered, *waiting.values()], frozenset(waiting)


class RegisteredVersion(NamedTuple):
    subject: str
    version: int


def find_obstacle(
    resource: SchemaResource,
    owners: Mapping[str, SchemaResource],
    cyclic: Collection[str],
    registered: Mapping[str, RegisteredVersion],
) -> Readiness | None:
    """The reason why the resource cannot be registered; None if it can. `cyclic`: names of Schemas
    that are in a cycle of references, or refer to one. `registered`: versions by the name of their
    Schema.
    """
    subject = resource.parsed.subject if resource.parsed is not None else ""
    if (conflict := resource.find_conflict(owners.get(subject), f"subject {subject}")) is not None:
        return conflict
    if resource.name in cyclic:
        message = (
            f"spec.references: these Schemas are in a cycle of references, or refer to one: {', '.join(sorted(cyclic))}"
        )
        return Stalled("InvalidSpec", message)
    if missing := sorted(referenced_names(resource) - registered.keys()):
        message = f"it refers to Schemas that are not registered: {', '.join(missing)}"
        return Reconciling("WaitingForReference", message)
    return None


def desired_schema(schema: Schema, text: str, registered: Mapping[str, RegisteredVersion]) -> DesiredSchema:
    """`registered`: versions of the Schemas that it refers to, by name."""
    references: list[Mapping[str, str | int]] = []
    for reference in schema.spec.references or ():
        found = registered[reference.schema_ref.name] if reference.schema_ref is not None else None
        subject, version = found if found is not None else (reference.subject or "", reference.version or 0)
        references.append({"name": reference.name, "subject": subject, "version": version})
    return DesiredSchema(schema.subject, schema.spec.type, text, tuple(references))


def evaluate_schema(subject: str, observed: ObservedSubject, remaining: Sequence[SchemaChange]) -> Readiness:
    """`remaining`: planned changes that are not applied yet."""
    if remaining or observed.version is None:
        return Reconciling("RegisteringSchema", f"registering the schema of {subject}")
    message = f"subject {subject} has the schema as version {observed.version} with id {observed.id}."
    if observed.latest != observed.version:
        message += f" The latest version is {observed.latest}: an earlier schema does not become a new version."
    return Ready(message)


def evaluate_refusal(code: int, message: str, subject: str, readers: Sequence[SubjectReader]) -> Readiness:
    """`code`, `message`: the registry's error. `readers`: Pipelines that run and read the
    subject.
    """
    status = int(str(code)[:3])
    if status == INCOMPATIBLE:
        affected = f"running Pipelines read {subject}: {describe_readers(readers)}. " if readers else ""
        return Stalled("IncompatibleSchema", f"{affected}{message}")
    if status == UNPROCESSABLE and code != NOT_PERMITTED:
        return Stalled("InvalidSchema", message)
    if status >= 500 or status in TRANSIENT_STATUS:
        return Reconciling("RetryingAfterError", f"the schema registry: {message}")
    return Stalled("RejectedByRegistry", message)


def describe_change(change: SchemaChange, observed: ObservedSubject, readers: Sequence[SubjectReader]) -> str:
    """Text of the change's event. `observed`: after the change."""
    match change:
        case SetCompatibility():
            return f"subject {change.subject}: compatibility {change.level}"
        case RegisterSchema():
            message = f"subject {change.schema.subject}: version {observed.version} has id {observed.id}"
            if not readers or observed.version == 1:
                return message
            return (
                f"{message}; running Pipelines read earlier versions (those listed without a version, until they "
                f"restart): {describe_readers(readers)}"
            )
