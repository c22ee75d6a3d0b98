"""Secrets of a pipeline, as files: a folder for each Secret, with a file for each key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ottla_spark.errors import PipelineError


def read_secret(folder: Path | None, name: str, keys: Sequence[str]) -> dict[str, str]:
    """Values of a Secret by key, without trailing line ends. Raises PipelineError, whose message
    contains no value.

    Each call reads the files again. The JDBC sink calls it for each batch, so its next batch uses a
    renewed Secret. Catalogs and object stores keep the values that a run begins with.
    """
    if folder is None:
        raise PipelineError(f"Secret {name} is not known: set --secrets to a folder with {name}/{keys[0]}")
    found: dict[str, str] = {}
    for key in keys:
        file = folder / name / key
        try:
            found[key] = file.read_text().rstrip("\r\n")
        except OSError as error:
            raise PipelineError(f"Secret {name}: cannot read {file}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise PipelineError(f"Secret {name}: {key} is not text") from None
    return found
