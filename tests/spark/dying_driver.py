"""`python -m tests.spark.dying_driver STEPS QUERIES ARGUMENTS…`: runs `python -m ottla_spark
ARGUMENTS…`, and kills the process when QUERIES of its queries have each reached one of STEPS, a
JSON list. A query that has reached a step waits there for the others. The environment variable
OTTLA_TEST_CONSTANTS may have other values for constants of modules.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.spark.death import Death, Step
from tests.spark.spark_jvm import add_all_sinks, own_jvm_environment

ROOT: Final = Path(__file__).parents[2]
_CONSTANTS: Final = "OTTLA_TEST_CONSTANTS"
NO_CONSTANTS: Final[Mapping[str, object]] = {}


def run_driver(
    steps: Sequence[Step], *arguments: str, queries: int = 1, constants: Mapping[str, object] = NO_CONSTANTS
) -> int:
    """Runs this module in a process of its own; without steps it is not killed. Returns its exit
    code, negative if it was killed. `constants`: values by MODULE:NAME.
    """
    command = [sys.executable, "-m", "tests.spark.dying_driver", json.dumps(steps), str(queries), *arguments]
    path = os.pathsep.join([str(ROOT), *(str(ROOT / it) for it in ("operator", "spark-app"))])
    values = {_CONSTANTS: json.dumps(dict(constants))}
    environment = {**os.environ, "PYTHONPATH": path, **own_jvm_environment(), **values}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _patch(step: str, when: str, death: Death) -> None:
    module_name, _, name = step.partition(":")
    owner: Any = import_module(module_name)
    *parts, name = name.split(".")
    for part in parts:
        owner = getattr(owner, part)
    original = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if when != "after":
            death.await_others(when)
        result = original(*arguments, **options)
        death.await_others("after")
        return result

    setattr(owner, name, call)


def main(arguments: Sequence[str]) -> int:
    steps, queries, *rest = arguments
    add_all_sinks(setattr)
    death = Death(int(queries), Path(rest[rest.index("--pipeline") + 1]).parent)
    for constant, value in json.loads(os.environ.get(_CONSTANTS, "{}")).items():
        module_name, _, name = constant.partition(":")
        setattr(import_module(module_name), name, value)
    for step, when in json.loads(steps):
        _patch(step, when, death)
    from ottla_spark.__main__ import main as run

    return run(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
