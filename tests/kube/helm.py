"""A real `helm`: from PATH, or built from its Go module and stored outside the checkout.

`python -m tests.kube.helm` builds it once. Tests only look it up.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.go_programs import ProgramUnavailable, run_builds
from tests.jars import skip_or_fail_in_ci
from tests.kube.programs import BUILD_COMMAND

MODULE = "helm.sh/helm/v3/cmd/helm"
VERSION = "v3.22.0"
CHART = Path(__file__).parents[2] / "charts" / "ottla"


def find_helm() -> Path:
    """The path of helm. Skips the test, or fails it in continuous integration, if there is none."""
    if not (path := helm_path()).exists():
        skip_or_fail_in_ci(f"no `helm` on PATH and none is built: `{BUILD_COMMAND}` builds it once")
    return path


def helm_path() -> Path:
    """Path of helm: on PATH, or where `build` stores it."""
    if found := shutil.which("helm"):
        return Path(found)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ottla" / f"helm-{VERSION}" / "helm"


def build() -> Path:
    """Builds helm unless it exists, and returns its path. Raises ProgramUnavailable."""
    path = helm_path()
    if not path.exists():
        if (go := shutil.which("go")) is None:
            raise ProgramUnavailable("no `go` on PATH to build helm with")
        print(f"building helm {VERSION}, once; this takes a minute …", file=sys.stderr, flush=True)
        environment = os.environ | {"GOBIN": str(path.parent), "CGO_ENABLED": "0"}
        done = subprocess.run([go, "install", f"{MODULE}@{VERSION}"], env=environment, check=False)
        if done.returncode:
            raise ProgramUnavailable(f"building helm failed: exit code {done.returncode}")
    return path


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs helm and returns its result, also of a failure."""
    return subprocess.run([find_helm(), *arguments], capture_output=True, text=True, check=False, timeout=120)


def render(*values: str, namespace: str = "ottla", release: str = "demo") -> list[dict[str, Any]]:
    """The chart's objects without those of `helm test`. `values` are arguments of --set."""
    return [it for it in _render_all(*values, namespace=namespace, release=release) if not _is_hook(it)]


def render_tests(*values: str, namespace: str = "ottla", release: str = "demo") -> list[dict[str, Any]]:
    """The objects of `helm test` in the order of their hook weights; `helm template` orders them by
    kind.
    """
    hooks = [it for it in _render_all(*values, namespace=namespace, release=release) if _is_hook(it)]
    return sorted(hooks, key=lambda it: int(it["metadata"]["annotations"]["helm.sh/hook-weight"]))


def _render_all(*values: str, namespace: str, release: str) -> list[dict[str, Any]]:
    options = [part for it in values for part in ("--set", it)]
    done = run("template", release, CHART, "--namespace", namespace, "--kube-version", "1.36.0", *options)
    assert done.returncode == 0, done.stderr
    return [it for it in yaml.safe_load_all(done.stdout) if it]


def _is_hook(it: dict[str, Any]) -> bool:
    return "helm.sh/hook" in (it["metadata"].get("annotations") or {})


if __name__ == "__main__":
    sys.exit(run_builds([build]))
