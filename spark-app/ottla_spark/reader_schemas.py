"""Readers' schemas of a pipeline's sources, from its YAML or from the schema registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

from ottla_operator.resources.formats import Format
from ottla_spark.definition import PipelineDefinition
from ottla_spark.errors import PipelineError
from ottla_spark.record_schema import FORMS, RecordSchema, SchemaType, UnusableSchema, gather_schema
from ottla_spark.schema_registry import NO_REGISTRY, SchemaRegistry, UnknownSchema, registry_of


def resolve_schemas(pipeline: PipelineDefinition, registry: SchemaRegistry) -> PipelineDefinition:
    """The pipeline with the readers' schemas of its sources. Raises PipelineError."""
    _check_registry(registry, [where for where, it in _source_formats(pipeline) if it.schema_ref is not None])
    values, keys = {}, {}
    for name, source in pipeline.spec.sources.items():
        where = f"spec.sources.{name}"
        if source.format.is_framed:
            values[name] = _resolve(source.format, f"{source.topic}-value", f"{where}.format", registry)
        if source.key_format is not None and source.key_format.is_framed:
            keys[name] = _resolve(source.key_format, f"{source.topic}-key", f"{where}.keyFormat", registry)
    return replace(pipeline, registry=registry, readers=values, key_readers=keys)


def connect_registry(pipeline: PipelineDefinition, url: str, kafka: Mapping[str, str]) -> SchemaRegistry:
    """The registry that the pipeline needs when it runs. NO_REGISTRY if it needs none: client
    properties that a registry cannot use are no error then. `kafka`: client properties. Raises
    PipelineError.
    """
    fields = _fields_needing_registry(pipeline)
    registry = registry_of(url, kafka) if fields else NO_REGISTRY
    _check_registry(registry, fields)
    return registry


def _check_registry(registry: SchemaRegistry, needed_by: list[str]) -> None:
    """Raises PipelineError if the registry's address is unknown and a field needs it."""
    if needed_by and not registry.url:
        raise PipelineError(
            f"{needed_by[0]} needs a schema registry: set spec.schemaRegistry of the Cluster, or --registry URL"
        )


def _fields_needing_registry(pipeline: PipelineDefinition) -> list[str]:
    """Fields that need the registry when the pipeline runs."""
    found = [where for where, it in _source_formats(pipeline) if it.is_framed]
    for index, sink in enumerate(pipeline.spec.sinks):
        formats = (("format", sink.format), ("keyFormat", sink.key_format))
        found += [f"spec.sinks[{index}].{field}" for field, it in formats if it is not None and it.is_framed]
    return found


def _source_formats(pipeline: PipelineDefinition) -> Iterator[tuple[str, Format]]:
    for name, source in pipeline.spec.sources.items():
        yield f"spec.sources.{name}.format", source.format
        if source.key_format is not None:
            yield f"spec.sources.{name}.keyFormat", source.key_format


def _resolve(format_: Format, subject: str, where: str, registry: SchemaRegistry) -> RecordSchema:
    type_ = cast(SchemaType, format_.type)
    if format_.schema_ref is None:
        return RecordSchema(type_, format_.schema or "", format_.message or "")
    ref = format_.schema_ref
    subject = ref.subject or subject
    try:
        if ref.id is not None:
            found = registry.schema_by_id(ref.id, FORMS[type_])
        else:
            version = "latest" if ref.version is None else str(ref.version)
            found = registry.schema_of_version(subject, version, FORMS[type_])
        return gather_schema(registry, found, type_, format_.message or "")
    except UnknownSchema as error:
        wanted = f"schema {ref.id}" if ref.id is not None else f"version {ref.version or 'latest'} of {subject}"
        raise PipelineError(f"{where}.schemaRef: no {wanted}: {error}") from error
    except UnusableSchema as error:
        raise PipelineError(f"{where}.schemaRef: {error}") from error
