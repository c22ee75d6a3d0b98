"""Programs that tests build once from Go modules and store outside the checkout.

They lie in `$XDG_CACHE_HOME/ottla/<kind>/<label>-<digest of the source>` (default `~/.cache`). `go`
fetches modules as it is configured on the machine.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.locks import file_lock


class ProgramUnavailable(Exception):
    """A program is not in the cache and cannot be built; the message says why."""


def cache_folder(source: Path, kind: str, label: str) -> Path:
    """The folder with the programs built from this source."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(source)}\0".encode() + path.read_bytes() + b"\0")
    return cache / "ottla" / kind / f"{label}-{digest.hexdigest()[:12]}"


def required_version(source: Path, module: str) -> str:
    """Version of a module that `source`'s go.mod requires, such as v1.2.3."""
    match = re.search(rf"{re.escape(module)} (v[0-9.]+)", (source / "go.mod").read_text())
    assert match is not None, f"{source}/go.mod does not require {module}"
    return match[1]


def build_program(source: Path, place: Path, name: str, duration: str, linker: Sequence[str] = ()) -> Path:
    """The program of `source`'s folder `name`, built if it is not in `place` yet.

    `duration` is printed before a build, so that a person knows how long it takes. Raises
    ProgramUnavailable.
    """
    place.mkdir(parents=True, exist_ok=True)
    path = place / name
    with file_lock(place / f"{name}.lock"):
        if not path.exists():
            print(f"building {name}, once; this takes {duration} …", file=sys.stderr, flush=True)
            _run_go_build(source, path, linker)
    return path


def _run_go_build(source: Path, path: Path, linker: Sequence[str]) -> None:
    go = shutil.which("go")
    if go is None:
        raise ProgramUnavailable(f"no `go` on PATH to build {path.name} with")
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch) / path.name
        command = [
            go,
            "build",
            "-buildvcs=false",
            "-trimpath",
            "-ldflags",
            " ".join(["-s", "-w", *linker]),
            "-o",
            str(made),
        ]
        done = subprocess.run(
            [*command, f"./{path.name}"], cwd=source, env=os.environ | {"CGO_ENABLED": "0"}, check=False
        )
        if done.returncode:
            raise ProgramUnavailable(f"building {path.name} failed: exit code {done.returncode}")
        made.rename(path)


def run_builds(builds: Iterable[Callable[[], Path]]) -> int:
    """Runs functions that each build a program, prints the programs' paths, and returns an exit
    code.

    ProgramUnavailable is a failure in continuous integration alone: elsewhere the tests that need
    the program are skipped.
    """
    try:
        for build in builds:
            print(build())
    except ProgramUnavailable as error:
        print(error, file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    return 0
