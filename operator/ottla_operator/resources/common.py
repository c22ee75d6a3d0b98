"""Types that several resources share: references, names, quantities, durations, conditions."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from ottla_operator.resources.model import Json, Model

API_VERSION: Final = "ottla.dev/v1alpha1"

TOPIC_NAME: Final = r"^[a-zA-Z0-9._-]+$"
OBJECT_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
IDENTIFIER: Final = r"^[a-zA-Z_][a-zA-Z0-9_]*$"
QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?$"
DURATION: Final = r"^[0-9]+ ?(ms|s|m|h|d|milliseconds?|seconds?|minutes?|hours?|days?)$"

TopicName = Annotated[str, Field(min_length=1, max_length=249, pattern=TOPIC_NAME)]
"""Kafka's rule for topic names: letters, digits, `.`, `_` and `-`, at most 249 of them."""

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=OBJECT_NAME)]
"""Kubernetes' rule for names of objects."""

Identifier = Annotated[str, Field(min_length=1, max_length=63, pattern=IDENTIFIER)]
"""A name that SQL takes without quotes."""

Column = Annotated[str, Field(min_length=1, max_length=255)]
"""The name of a column of rows."""

Quantity = Annotated[str, Field(max_length=32, pattern=QUANTITY)]
"""An amount with Kubernetes' suffixes: 500m, 10Gi."""

Duration = Annotated[
    str,
    Field(
        max_length=32,
        pattern=DURATION,
    ),
]
"""A length of time: 500ms, 30s, 10 minutes."""

Settings = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"additionalProperties": {"x-kubernetes-preserve-unknown-fields": True}}),
]
"""Settings under Kafka's names. Values may be strings, numbers or booleans; quotes are not needed."""

PlainObject = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"additionalProperties": None, "x-kubernetes-preserve-unknown-fields": True}),
]
"""An object of somebody else's schema, taken as it is."""

Amount = Annotated[
    str | int,
    Field(
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
        }
    ),
]
"""Kubernetes' int-or-string, as in `cpu: 2` and `cpu: 500m`."""

_QUANTITY: Final = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?$")
_DURATION: Final = re.compile(r"^([0-9]+) ?(ms|millisecond|s|second|m|minute|h|hour|d|day)s?$")
_SCALE: Final = {"m": 0.001, "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_MILLISECONDS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORT: Final = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d"}


def parse_quantity(text: str) -> float:
    """The amount that a quantity names ("10Gi" → 10737418240). ValueError when it is none."""
    if not (found := _QUANTITY.match(text)):
        raise ValueError(f"{text!r} is no quantity, such as 500m or 10Gi")
    suffix = found[2] or ""
    return float(found[1]) * (_BINARY[suffix] if suffix in _BINARY else _SCALE[suffix])


def parse_duration_ms(text: str) -> int:
    """Milliseconds of a duration ("2 hours" → 7200000). ValueError when it is none."""
    if not (found := _DURATION.match(text)):
        raise ValueError(f"{text!r} is no duration, such as 500ms, 30s or 10 minutes")
    return int(found[1]) * _MILLISECONDS[_SHORT.get(found[2], found[2])]


def format_setting(value: Json) -> str:
    """A setting as Kafka's protocol carries it: text, booleans in small letters. TypeError for lists and objects."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            raise TypeError(f"a setting is a string, a number or a boolean, not {value!r}")


class ObjectRef(Model):
    """An object of the same namespace."""

    name: ObjectName = Field(description="Its name.")


class SecretKeyRef(Model):
    """One key of a Secret of the same namespace."""

    name: ObjectName = Field(description="Name of the Secret.")
    key: str = Field(max_length=253, description="Key within its data.")


class Condition(Model):
    """One aspect of the resource's state, as Kubernetes' tools read it."""

    type: str = Field(
        max_length=316,
        description="Ready, Reconciling or Stalled (kstatus), or an aspect of this kind. Ready is always present.",
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition holds.")
    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation that this condition was decided on."
    )
    last_transition_time: str = Field(
        description="When `status` last changed.", json_schema_extra={"format": "date-time"}
    )
    reason: str = Field(
        min_length=1,
        max_length=1024,
        description="One CamelCase word for programs.",
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    )
    message: str = Field(max_length=32768, description="A sentence for people.")


class Status(Model):
    """What every status carries."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation that the operator has last looked at."
    )
    conditions: list[Condition] | None = Field(
        default=None,
        description="Ready, Reconciling and Stalled, and aspects of this kind.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class Metadata(Model):
    """The part of a Kubernetes object's metadata that is of interest here; the rest is taken as it is."""

    model_config = ConfigDict(extra="allow")

    name: ObjectName
    namespace: str = "default"
    generation: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Resource(Model):
    """A whole resource: what `kubectl apply` takes."""

    api_version: Literal["ottla.dev/v1alpha1"]
    metadata: Metadata

    @property
    def name(self) -> str:
        return self.metadata.name
