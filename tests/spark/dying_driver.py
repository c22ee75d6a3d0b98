"""`python -m tests.spark.dying_driver MODULE:FUNCTION before|after ARGUMENTS…`: runs `python -m
ottla_spark ARGUMENTS…`, and kills the process when it calls the function, or when that returns.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
NEVER: Final = "never"


def run_driver(point: str, when: str, *arguments: str) -> int:
    """Runs such a process. Returns its exit code, negative if it was killed."""
    command = [sys.executable, "-m", "tests.spark.dying_driver", point, when, *arguments]
    path = os.pathsep.join([str(ROOT), *(str(ROOT / it) for it in ("operator", "spark-app"))])
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False)
    return done.returncode


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _patch(point: str, when: str) -> None:
    module_name, _, name = point.partition(":")
    owner: Any = import_module(module_name)
    *parts, name = name.split(".")
    for part in parts:
        owner = getattr(owner, part)
    original = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if when == "before":
            _die()
        result = original(*arguments, **options)
        _die()
        return result

    setattr(owner, name, call)


def main(arguments: Sequence[str]) -> int:
    point, when, *rest = arguments
    if when != NEVER:
        _patch(point, when)
    from ottla_spark.__main__ import main as run

    return run(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
