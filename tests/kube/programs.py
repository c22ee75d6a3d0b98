"""Kubernetes' programs, built from their Go modules and stored outside the checkout.

`python -m tests.kube.programs [NAME…]` builds them once, which takes minutes. Tests only look them
up.
"""

import sys
from functools import partial
from pathlib import Path

from tests import go_programs
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
    return go_programs.required_version(GO_SOURCE, "k8s.io/kubernetes")


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


if __name__ == "__main__":
    sys.exit(go_programs.run_builds([partial(build, name) for name in sys.argv[1:] or PROGRAMS]))
