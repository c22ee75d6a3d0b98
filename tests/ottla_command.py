"""The `ottla` command as a process, with the environment in which tests run it."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests import brokers

COMMAND = (sys.executable, "-m", "ottla_operator.cli")
ENDS_WITHIN_S = 60.0


def command_environment(**more: str) -> dict[str, str]:
    """The environment of the command; output is 200 columns wide."""
    return {**brokers.broker_environment(), "PYTHONPATH": ":".join(sys.path), "COLUMNS": "200", **more}


def run_ottla(
    *arguments: str,
    stdin: str = "",
    folder: Path | None = None,
    within_s: float = ENDS_WITHIN_S,
    variables: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Runs `ottla` in `folder`, or in the current one. `variables`: environment variables.

    Neither its input nor its output is a terminal. It may fail: the caller checks `returncode`.
    """
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
        env=command_environment(**variables or {}),
    )
