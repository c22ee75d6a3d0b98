"""Reads a pipeline's progress log."""

import json
from pathlib import Path
from typing import Any


def read_progress_log(path: Path) -> list[dict[str, Any]]:
    """Lines of a progress log, without a last one that is still being written; none if there is no
    file.
    """
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
