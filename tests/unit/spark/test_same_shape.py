"""The operator's model of a Pipeline and the runner's are two programs' readings of one schema: their fields must be
the same."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec
from pydantic import BaseModel

from ottla_operator.resources.pipeline import PipelineSpec
from ottla_spark.spec import Part, Spec

# The runner does not look into these: they concern who starts it.
OPAQUE = {"pvc", "s3", "driver", "executor"}


def models_in(annotation: Any, kind: type) -> list[type]:
    """The models of this kind that a type mentions."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, kind) else []
    return [model for part in typing.get_args(annotation) for model in models_in(part, kind)]


def operator_fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def runner_fields(part: type[Part]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(part)}


def compare(model: type[BaseModel], part: type[Part], where: str) -> None:
    theirs, ours = operator_fields(model), runner_fields(part)
    assert set(theirs) == set(ours), where
    for name in theirs.keys() - OPAQUE:
        their_models, our_parts = models_in(theirs[name], BaseModel), models_in(ours[name], Part)
        assert bool(their_models) == bool(our_parts), f"{where}.{name}"
        for their_model, our_part in zip(their_models, our_parts, strict=True):
            compare(their_model, our_part, f"{where}.{name}")


def test_operator_and_runner_know_the_same_fields() -> None:
    compare(PipelineSpec, Spec, "spec")
