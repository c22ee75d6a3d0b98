"""Functions and classes in the Python files of a pipeline."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from ottla_spark.errors import PipelineError


def load_from_file(reference: str, folder: Path) -> Any:
    """Loads the function or class that a reference `file.py:name` names. `folder`: base of the
    file's path. Raises PipelineError.
    """
    file, _, name = reference.rpartition(":")
    path = folder / file
    if not path.exists():
        raise PipelineError(f"{reference}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{reference}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the pipeline's own code can raise anything
        raise PipelineError(f"{path} raised {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise PipelineError(f"{reference}: {path} has no function or class {name}")
    return found
