"""Programs that tests build from Go modules, once, and keep outside the checkout.

They lie in `$XDG_CACHE_HOME/ottla/<kind>/<label>-<digest of the source>` (`~/.cache/…` without it). Modules come from wherever
`go` is set up to fetch them.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.locks import locked


class ProgramMissing(Exception):
    """A program is not in the cache and cannot be built. The text says why."""


def home(source: Path, kind: str, label: str) -> Path:
    """Where the programs of this source lie."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(source)}\0".encode() + path.read_bytes() + b"\0")
    return cache / "ottla" / kind / f"{label}-{digest.hexdigest()[:12]}"


def built(source: Path, place: Path, name: str, takes: str, linker: Sequence[str] = ()) -> Path:
    """The program of `source`'s folder `name`, built when it does not lie in `place` yet; `takes`: what that takes, for whoever
    waits. ProgramMissing when it fails."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / name
    with locked(place / f"{name}.lock"):
        if not path.exists():
            print(f"building {name}: {takes}, once …", file=sys.stderr, flush=True)
            _build(source, path, linker)
    return path


def _build(source: Path, path: Path, linker: Sequence[str]) -> None:
    go = shutil.which("go")
    if go is None:
        raise ProgramMissing(f"no `go` on PATH, which builds {path.name} from its modules")
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
            raise ProgramMissing(f"building {path.name} failed: exit code {done.returncode}")
        made.rename(path)
