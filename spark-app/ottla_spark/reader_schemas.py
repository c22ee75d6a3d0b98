"""Readers' schemas of the Avro sources of a pipeline, from its YAML or from the schema registry."""

from __future__ import annotations

from dataclasses import replace

from ottla_operator.resources.pipeline import Source
from ottla_spark.definition import PipelineDefinition
from ottla_spark.errors import PipelineError
from ottla_spark.schema_registry import SchemaRegistry, UnknownSchema


def resolve_schemas(pipeline: PipelineDefinition, registry: SchemaRegistry) -> PipelineDefinition:
    """The pipeline with the readers' schemas of its sources. Raises PipelineError."""
    needs_registry = [f"spec.sources.{name}" for name, it in pipeline.spec.sources.items() if it.format.schema_ref]
    schemas = {name: it.format.schema or "" for name, it in pipeline.spec.sources.items() if it.format.type == "avro"}
    check_registry(registry, needs_registry)
    for name, source in pipeline.spec.sources.items():
        if source.format.schema_ref is not None:
            schemas[name] = _fetch(source, name, registry)
    return replace(pipeline, registry=registry, readers=schemas)


def check_registry(registry: SchemaRegistry, needed_by: list[str]) -> None:
    """Raises PipelineError if the registry's address is unknown and a field needs it."""
    if needed_by and not registry.url:
        raise PipelineError(
            f"{needed_by[0]}: avro needs a schema registry: set spec.schemaRegistry of the Cluster, or --registry URL"
        )


def registry_users(pipeline: PipelineDefinition) -> list[str]:
    """Fields that need the registry when the pipeline runs."""
    sources = [f"spec.sources.{name}" for name, it in pipeline.spec.sources.items() if it.format.type == "avro"]
    return sources + [
        f"spec.sinks[{index}]"
        for index, it in enumerate(pipeline.spec.sinks)
        if it.format is not None and it.format.type == "avro"
    ]


def _fetch(source: Source, name: str, registry: SchemaRegistry) -> str:
    ref = source.format.schema_ref
    assert ref is not None
    subject = ref.subject or f"{source.topic}-value"
    try:
        if ref.id is not None:
            return registry.schema_by_id(ref.id)
        return registry.schema_of_version(subject, "latest" if ref.version is None else str(ref.version))
    except UnknownSchema as error:
        wanted = f"schema {ref.id}" if ref.id is not None else f"version {ref.version or 'latest'} of {subject}"
        raise PipelineError(f"spec.sources.{name}.format.schemaRef: no {wanted}: {error}") from error
