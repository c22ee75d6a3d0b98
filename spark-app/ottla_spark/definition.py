"""The runner's input: a Pipeline resource from a file, validated by the same rules as in the API
server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ottla_operator.resources.pipeline import Pipeline, PipelineSpec
from ottla_operator.resources.validation import validate_resource
from ottla_spark.errors import PipelineError
from ottla_spark.record_schema import RecordSchema
from ottla_spark.schema_registry import NO_REGISTRY, SchemaRegistry


@dataclass(frozen=True, slots=True)
class PipelineDefinition:
    """A valid Pipeline. `folder`: base of its relative paths. `registry`: the schema registry that
    has the writers' schemas. `readers`, `key_readers`: by source, the readers' schemas of values
    and keys in the registry's framing. `resolve_schemas` sets the last three.
    """

    resource: Pipeline
    folder: Path
    registry: SchemaRegistry = NO_REGISTRY
    readers: Mapping[str, RecordSchema] = field(default_factory=dict)
    key_readers: Mapping[str, RecordSchema] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def spec(self) -> PipelineSpec:
        return self.resource.spec


def load_pipeline(path: Path, name: str | None = None) -> PipelineDefinition:
    """The Pipeline in a file of YAML or JSON documents; `name` selects one of several. Raises
    PipelineError.
    """
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text()) if isinstance(document, dict)]
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise PipelineError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    found = [document for document in documents if document.get("kind") == "Pipeline"]
    if name is not None:
        found = [document for document in found if document.get("metadata", {}).get("name") == name]
    if not found:
        raise PipelineError(f"{path}: no resource of kind Pipeline{f' named {name}' if name else ''}")
    if len(found) > 1:
        names = ", ".join(str(document.get("metadata", {}).get("name")) for document in found)
        raise PipelineError(f"{path}: several Pipelines ({names}); select one with --name")
    try:
        return parse_pipeline(found[0], path.parent)
    except PipelineError as error:
        raise PipelineError(f"{path}: {error}") from error


def parse_pipeline(document: dict[str, Any], folder: Path) -> PipelineDefinition:
    """A Pipeline from its document. `folder`: base of its relative paths. Raises PipelineError that
    names the field if the document is invalid or needs what this runner lacks.
    """
    for problem in validate_resource(document):
        raise PipelineError(str(problem))
    resource = Pipeline.parse({key: document[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    for message in find_unsupported(resource.spec):
        raise PipelineError(message)
    return PipelineDefinition(resource, folder.absolute())


def find_unsupported(spec: PipelineSpec) -> Iterator[str]:
    """A message for each feature of a valid spec that the runner does not support."""
    if not spec.streams:
        yield "spec.sources: at least one source must be a stream; tables are only joined with streams"
    for name in spec.sources:
        if name.startswith("_"):
            yield f"spec.sources.{name}: the name of a source cannot start with _"
    steps: set[str] = set()
    for index, step in enumerate(spec.transforms):
        if step.name in steps:
            yield f"spec.transforms[{index}].name: {step.name!r} is the name of an earlier transform"
        steps.add(step.name)
        read = {"union": step.union or ()}
        if step.transform_with_state is not None:
            read["transformWithState.from"] = (step.transform_with_state.source,)
        for field_, names in read.items():
            if tables := ", ".join(name for name in names if name in spec.tables):
                yield f"spec.transforms[{index}].{field_}: {tables} is a table; only streams and steps are allowed"
    query_names: set[str] = set()
    for index, sink in enumerate(spec.sinks):
        where = f"spec.sinks[{index}]"
        if sink.source in spec.tables:
            yield f"{where}.from: {sink.source!r} is a table; only streams and steps can be written"
        if sink.parquet is not None and sink.output_mode == "update":
            yield f"{where}.outputMode: parquet does not support update; use append or complete"
        if sink.query_name in query_names:
            yield f"{where}.name: two sinks are named {sink.query_name!r}; each needs a unique name"
        query_names.add(sink.query_name)
