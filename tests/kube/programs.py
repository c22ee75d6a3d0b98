"""Kubernetes' programs, built from their Go modules and stored outside the checkout.

`python -m tests.kube.programs [NAME…]` builds them once, which takes minutes. Tests only look them
up.
"""

import os
import re
import sys
from pathlib import Path

from tests import go_programs
from tests.go_programs import ProgramUnavailable
from tests.jars import skip_or_fail_in_ci

GO_SOURCE = Path(__file__).parent / "go"
PROGRAMS = ("control-plane", "node", "coredns", "pause")
BUILD_COMMAND = "make kube-programs"


def find_program(name: str) -> Path:
    """The path of a built program. Skips the test, or fails it in continuous integration, if it is
    not built.
    """
    path = cache_folder() / name
    if not path.exists():
        skip_or_fail_in_ci(f"Kubernetes' {name} is not built: `{BUILD_COMMAND}` builds it once, in minutes")
    return path


def kubernetes_version() -> str:
    """Version of Kubernetes in `go.mod`, such as v1.2.3."""
    match = re.search(r"k8s\.io/kubernetes (v[0-9.]+)", (GO_SOURCE / "go.mod").read_text())
    assert match is not None
    return match[1]


def cache_folder() -> Path:
    """The folder with the programs built from this source."""
    return go_programs.cache_folder(GO_SOURCE, "kube", kubernetes_version())


def build(name: str) -> Path:
    """Builds a program if it is not built yet, and returns its path. Raises ProgramUnavailable."""
    major, minor, _ = kubernetes_version()[1:].split(".")
    version_info = {
        "gitVersion": kubernetes_version(),
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "unknown",
        "buildDate": "2026-01-01T00:00:00Z",
    }
    linker_flags = [
        f"-X {module}.{key}={value}"
        for module in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for key, value in version_info.items()
    ]
    return go_programs.build_program(GO_SOURCE, cache_folder(), name, "minutes", linker_flags)


def main(names: list[str]) -> int:
    try:
        for name in names or PROGRAMS:
            print(build(name))
    except ProgramUnavailable as error:
        # A missing program skips the tests that need it. In continuous integration it is a failure.
        print(error, file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
