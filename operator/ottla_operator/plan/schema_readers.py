"""Finds the running Pipelines that read records of a subject. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ottla_operator.resources.formats import FRAMED
from ottla_operator.resources.model import Json

RUNNING_STATES: Final = ("Starting", "Running", "Failing")


class SubjectReader(NamedTuple):
    """A source of a Pipeline. `version`: that of the reader's schema; None for the one that was the
    latest when the Pipeline started.
    """

    pipeline: str
    source: str
    version: int | None = None

    def __str__(self) -> str:
        version = "" if self.version is None else f", version {self.version}"
        return f"{self.pipeline} (source {self.source}{version})"


def find_readers(subject: str, cluster: str, pipelines: Iterable[Json]) -> list[SubjectReader]:
    """`cluster`: name of the subject's Cluster. `pipelines`: resources of its namespace, in plain
    JSON."""
    return sorted(
        SubjectReader(it["metadata"]["name"], name, _reference(format_).get("version"))
        for it in pipelines
        if _is_running(it, cluster)
        for name, source in it["spec"].get("sources", {}).items()
        for format_, default in _formats(source)
        if _subject(format_, default) == subject
    )


def describe_readers(readers: Sequence[SubjectReader]) -> str:
    return ", ".join(map(str, readers))


def _is_running(pipeline: Json, cluster: str) -> bool:
    state = (pipeline.get("status") or {}).get("state")
    return state in RUNNING_STATES and pipeline["spec"]["clusterRef"]["name"] == cluster


def _formats(source: Json) -> Iterator[tuple[Json, str]]:
    """Formats of the source's values and keys, each with the subject that it has by default."""
    for field, part in (("format", "value"), ("keyFormat", "key")):
        if field in source:
            yield source[field], f"{source['topic']}-{part}"


def _subject(format_: Json, default: str) -> str | None:
    """Subject of the schema that records are read with; None for a format without schemas."""
    if format_.get("type") not in FRAMED and "schemaRef" not in format_:
        return None
    return _reference(format_).get("subject") or default


def _reference(format_: Json) -> Json:
    return format_.get("schemaRef") or {}
