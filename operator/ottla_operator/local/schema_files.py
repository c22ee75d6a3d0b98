"""The files that Schemas refer to by `schemaFrom.file`, read as part of the resources."""

from pathlib import Path
from typing import Final

from ottla_operator.resources.model import Json
from ottla_operator.resources.rules import FieldPath, Problem

SUFFIXES: Final = (".avsc", ".proto")
"""Suffixes of files that hold only schemas. JSON Schemas are in .json files."""
FILE: Final[FieldPath] = ("spec", "schemaFrom", "file")
TEXT: Final[FieldPath] = ("spec", "schema")


def schema_path(resource: Json, folder: Path) -> Path | None:
    """The file with a Schema's text; None if the text is elsewhere. `folder`: the folder of the
    resource's file."""
    source = resource["spec"].get("schemaFrom") if resource["kind"] == "Schema" else None
    return None if source is None or "file" not in source else folder / source["file"]


def find_unsupported_source(resource: Json) -> Problem | None:
    """The reason why `ottla up` cannot read the text of a Schema; None if it can."""
    source = resource["spec"].get("schemaFrom") if resource["kind"] == "Schema" else None
    if source is None or "configMapKeyRef" not in source:
        return None
    return Problem((*FILE[:-1], "configMapKeyRef"), "`ottla up` has no ConfigMaps; use schemaFrom.file or schema")


def read_schema_text(path: Path) -> str | Problem:
    """The file's text, or why it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        return Problem(FILE, f"cannot read {path}: {error.strerror}")
    except UnicodeDecodeError as error:
        return Problem(FILE, f"{path}: byte {error.object[error.start]:#04x} is not UTF-8")
    return text if text.strip() else Problem(FILE, f"{path} is empty")


def with_text(resource: Json, text: str) -> Json:
    """The resource with the text as `spec.schema` instead of `spec.schemaFrom`."""
    spec = {key: value for key, value in resource["spec"].items() if key != "schemaFrom"}
    return {**resource, "spec": {**spec, "schema": text}}
