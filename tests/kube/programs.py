"""Kubernetes' own programs, built from their Go modules and kept outside the checkout; `python -m tests.kube.programs [NAME…]` builds.

Building takes minutes, once; a test only looks for them.
"""

import os
import re
import sys
from pathlib import Path

from tests import go_programs
from tests.go_programs import ProgramUnavailable
from tests.jars import skip_or_fail_in_ci

SOURCE = Path(__file__).parent / "go"
NAMES = ("control-plane", "node", "coredns", "pause")
BUILD = "make kube-programs"


def program(name: str) -> Path:
    """For tests: where a built program lies; what is not built is `unavailable`."""
    path = home() / name
    if not path.exists():
        skip_or_fail_in_ci(f"Kubernetes' {name} is not built: `{BUILD}` does it, in minutes, once")
    return path


def version() -> str:
    """Of Kubernetes, as `go.mod` requires it: v1.2.3."""
    found = re.search(r"k8s\.io/kubernetes (v[0-9.]+)", (SOURCE / "go.mod").read_text())
    assert found is not None
    return found[1]


def home() -> Path:
    """Where the programs of this source lie."""
    return go_programs.cache_folder(SOURCE, "kube", version())


def build(name: str) -> Path:
    """Builds what is not built yet. ProgramMissing when that fails."""
    major, minor, _ = version()[1:].split(".")
    told = {
        "gitVersion": version(),
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "unknown",
        "buildDate": "2026-01-01T00:00:00Z",
    }
    says_version = [
        f"-X {module}.{key}={value}"
        for module in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for key, value in told.items()
    ]
    return go_programs.build_program(SOURCE, home(), name, f"of Kubernetes {version()}, minutes", says_version)


def main(names: list[str]) -> int:
    try:
        for name in names or NAMES:
            print(build(name))
    except ProgramUnavailable as reason:
        # As everything that a machine should bring: what needs it skips and says why, and in continuous integration that is a failure.
        print(reason, file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
