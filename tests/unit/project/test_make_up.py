"""`make up` runs the compiled broker if it is up to date, and the source otherwise."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("is_up_to_date", [True, False])
def test_compiled_broker_is_run_if_it_is_up_to_date(tmp_path: Path, is_up_to_date: bool) -> None:
    programs, built = tmp_path / "bin", tmp_path / "compiled" / ".built"
    for folder in (programs, built.parent):
        folder.mkdir()
    for installed in (".installed-up", ".installed-compile"):
        (tmp_path / installed).touch()
    built.touch()
    if not is_up_to_date:
        os.utime(built, (0, 0))
    # This Python has no header files, so nothing is compiled.
    for name, line in (("python", "echo /nowhere"), ("ottla", 'echo "$1 on ${PYTHONPATH-the source}"')):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "MAKEFLAGS"}}
    done = subprocess.run(
        ["make", "--silent", "up", f"VENV={tmp_path}", f"COMPILED={built.parent}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"up on {built.parent if is_up_to_date else 'the source'}\n", done.stderr
