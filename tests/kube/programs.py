"""Kubernetes' own programs, built from their Go modules and kept outside the checkout; `python -m tests.kube.programs [NAME…]` builds.

They lie in `$XDG_CACHE_HOME/ottla/kube/<version>-<digest of tests/kube/go>` (`~/.cache/…` without it): building takes minutes, once, and
a test only looks for them. Modules come from wherever `go` is set up to fetch them.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.jars import unavailable

SOURCE = Path(__file__).parent / "go"
NAMES = ("control-plane", "node", "coredns", "pause")
BUILD = "make kube-programs"


class ProgramMissing(Exception):
    """A program is not in the cache and cannot be built. The text says why."""


def program(name: str) -> Path:
    """For tests: where a built program lies; what is not built is `unavailable`."""
    path = home() / name
    if not path.exists():
        unavailable(f"Kubernetes' {name} is not built: `{BUILD}` does it, in minutes, once")
    return path


def version() -> str:
    """Of Kubernetes, as `go.mod` requires it: v1.2.3."""
    found = re.search(r"k8s\.io/kubernetes (v[0-9.]+)", (SOURCE / "go.mod").read_text())
    assert found is not None
    return found[1]


def home() -> Path:
    """Where the programs of this source lie."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256()
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(SOURCE)}\0".encode() + path.read_bytes() + b"\0")
    return cache / "ottla" / "kube" / f"{version()}-{digest.hexdigest()[:12]}"


def build(name: str) -> Path:
    """Builds what is not built yet. ProgramMissing when that fails."""
    place = home()
    place.mkdir(parents=True, exist_ok=True)
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = place / name
        if not path.exists():
            _built(name, path)
    return path


def _built(name: str, path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ProgramMissing(f"no `go` on PATH, which builds Kubernetes' {name} from its modules")
    print(f"building Kubernetes {version()}'s {name}: minutes, once …", file=sys.stderr, flush=True)
    major, minor, _ = version()[1:].split(".")
    told = {
        "gitVersion": version(),
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "unknown",
        "buildDate": "2026-01-01T00:00:00Z",
    }
    says_version = (
        f"-X {module}.{key}={value}"
        for module in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for key, value in told.items()
    )
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch) / name
        command = [go, "build", "-buildvcs=false", "-trimpath", "-ldflags", f"-s -w {' '.join(says_version)}"]
        done = subprocess.run(
            [*command, "-o", str(made), f"./{name}"],
            cwd=SOURCE,
            env=os.environ | {"CGO_ENABLED": "0"},
            check=False,
        )
        if done.returncode:
            raise ProgramMissing(f"building Kubernetes' {name} failed: exit code {done.returncode}")
        made.rename(path)


def main(names: list[str]) -> int:
    try:
        for name in names or NAMES:
            print(build(name))
    except ProgramMissing as reason:
        # As everything that a machine should bring: what needs it skips and says why, and in continuous integration that is a failure.
        print(reason, file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
