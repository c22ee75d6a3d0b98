"""Types that several kinds share: names, references, quantities, durations, status and
conditions.
"""

import datetime
import re
from typing import Annotated, Any, Final, Literal, Self

from msgspec import Meta, field

from ottla_operator.resources.model import Json, Model, doc, listed

API_VERSION: Final = "ottla.dev/v1alpha1"

TOPIC_NAME: Final = r"^[a-zA-Z0-9._-]+$"
OBJECT_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
IDENTIFIER: Final = r"^[a-zA-Z_][a-zA-Z0-9_]*$"
QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?$"
TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"
PYTHON_NAME: Final = r"^[^:]+\.py:[a-zA-Z_][a-zA-Z0-9_]*$"
STARTING_OFFSETS: Final = rf"^(earliest|latest|{TIME[1:-1]})$"
DURATION: Final = r"^[0-9]+ ?(ms|s|m|h|d|milliseconds?|seconds?|minutes?|hours?|days?)$"

TopicName = Annotated[str, Meta(min_length=1, max_length=249, pattern=TOPIC_NAME)]
"""A Kafka topic name: up to 249 letters, digits, `.`, `_` and `-`."""

ObjectName = Annotated[str, Meta(min_length=1, max_length=253, pattern=OBJECT_NAME)]
"""A Kubernetes object name."""

TENANT: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
Tenant = Annotated[str, Meta(min_length=1, max_length=63, pattern=TENANT)]
"""Name of a tenant. Without a dot, so that no tenant's prefix begins another's."""

Identifier = Annotated[str, Meta(min_length=1, max_length=63, pattern=IDENTIFIER)]
"""A name that SQL accepts without quotes."""

Column = Annotated[str, Meta(min_length=1, max_length=255)]
"""Name of a column of rows."""

Quantity = Annotated[str, Meta(max_length=32, pattern=QUANTITY)]
"""A Kubernetes quantity: 500m, 10Gi."""

Duration = Annotated[str, Meta(max_length=32, pattern=DURATION)]
"""A duration: 500ms, 30s, 10 minutes."""

ConfigValues = Annotated[
    dict[str, Any], Meta(extra_json_schema={"additionalProperties": {"x-kubernetes-preserve-unknown-fields": True}})
]
"""Configs by Kafka name, as people write them. Values are strings, numbers or booleans."""

PlainObject = Annotated[dict[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})]
"""An object with a schema defined elsewhere, passed through unchanged."""

IntOrString = Annotated[int | str, Meta(extra_json_schema={"x-kubernetes-int-or-string": True})]
"""Kubernetes' int-or-string, as in `cpu: 2` and `cpu: 500m`."""

Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]

_QUANTITY: Final = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?$")
_DURATION: Final = re.compile(r"^([0-9]+) ?(ms|millisecond|s|second|m|minute|h|hour|d|day)s?$")
_SUFFIXES: Final[dict[str, float]] = {"m": 0.001, "": 1} | {
    prefix + suffix: base**power
    for suffix, base in (("", 1000), ("i", 1024))
    for power, prefix in enumerate(("k" if base == 1000 else "K", "M", "G", "T", "P", "E"), 1)
}
_MILLISECONDS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_quantity(text: str) -> float:
    """Value of a quantity: "10Gi" is 10737418240. Raises ValueError."""
    if not (match := _QUANTITY.match(text)):
        raise ValueError(f"{text!r} is not a quantity, such as 500m or 10Gi")
    return float(match[1]) * _SUFFIXES[match[2] or ""]


def parse_duration_ms(text: str) -> int:
    """Milliseconds in a duration: "2 hours" is 7200000. Raises ValueError."""
    if not (match := _DURATION.match(text)):
        raise ValueError(f"{text!r} is not a duration, such as 500ms, 30s or 10 minutes")
    unit = "ms" if match[2] == "millisecond" else match[2] if match[2] == "ms" else match[2][0]
    return int(match[1]) * _MILLISECONDS[unit]


def parse_time(text: str) -> datetime.datetime:
    """A time in RFC 3339, as Kubernetes writes it. Raises ValueError."""
    return datetime.datetime.fromisoformat(text)


def format_time(seconds: float) -> str:
    """Inverse of `parse_time`, for seconds since 1970."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def tenant_prefix(tenant: str | None) -> str:
    """The prefix of the names of a tenant's topics, subjects, groups, transactional ids and users;
    empty without a tenant.
    """
    return "" if tenant is None else f"{tenant}."


def is_time(text: str) -> bool:
    try:
        parse_time(text)
    except ValueError:
        return False
    return True


def format_setting(value: Json) -> str:
    """A setting's value as Kafka's protocol and properties files carry it. Raises TypeError for
    lists and objects.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            raise TypeError(f"a setting is a string, a number or a boolean, not {value!r}")


class ObjectRef(Model, frozen=True):
    """Reference to an object in the same namespace."""

    name: Annotated[ObjectName, doc("Name of the object.")]


class SecretKeyRef(Model, frozen=True):
    """Reference to one key of a Secret in the same namespace."""

    name: Annotated[ObjectName, doc("Name of the Secret.")]
    key: Annotated[str, Meta(max_length=253, description="Key in the Secret's data.")]


class PodMetadata(Model, frozen=True):
    """Labels and annotations added to pods."""

    labels: Annotated[dict[str, str] | None, doc("Labels.")] = None
    annotations: Annotated[dict[str, str] | None, doc("Annotations.")] = None


class PodTemplate(Model, frozen=True):
    """Additions to pods."""

    metadata: Annotated[PodMetadata | None, doc("Labels and annotations.")] = None
    spec: Annotated[
        PlainObject | None,
        doc(
            "PodSpec fields that are merged over the operator's: tolerations, affinity, nodeSelector, "
            "priorityClassName, and so on."
        ),
    ] = None


class Condition(Model, frozen=True):
    """One aspect of the resource's current state."""

    type: Annotated[
        str,
        Meta(
            max_length=316,
            description="Type of the condition: Ready, Reconciling, Stalled, or a type specific to the kind. "
            "Ready is always present.",
        ),
    ]
    status: Annotated[Literal["True", "False", "Unknown"], doc("Status of the condition.")]
    last_transition_time: Annotated[Timestamp, doc("Time at which status last changed.")]
    reason: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            description="Machine-readable reason for the last transition, in CamelCase.",
        ),
    ]
    message: Annotated[str, Meta(max_length=32768, description="Human-readable explanation of the reason.")]
    observed_generation: Annotated[
        Annotated[int, Meta(ge=0)] | None, doc("metadata.generation that the condition was computed from.")
    ] = None


class Status(Model, frozen=True):
    """Observed state that every kind reports."""

    observed_generation: Annotated[
        Annotated[int, Meta(ge=0)] | None, doc("metadata.generation that the operator last reconciled.")
    ] = None
    conditions: Annotated[
        list[Condition] | None,
        doc("Ready, Reconciling, Stalled, and the conditions specific to the kind.", listed("map", "type")),
    ] = None


class Metadata(Model, frozen=True, forbid_unknown_fields=False):
    """The fields of Kubernetes' ObjectMeta that are read here; others are ignored."""

    name: ObjectName
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class Resource(Model, frozen=True):
    """A whole resource, as `kubectl apply` takes it."""

    api_version: Literal["ottla.dev/v1alpha1"]
    metadata: Metadata

    @classmethod
    def parse_stored(cls, data: Json) -> Self:
        """Parses a resource that an API server has stored, without its status. Raises
        msgspec.ValidationError if the shape or a value is invalid. Rules are not evaluated.
        """
        return cls.parse({key: data[key] for key in ("apiVersion", "kind", "metadata", "spec")})

    @property
    def name(self) -> str:
        return self.metadata.name
