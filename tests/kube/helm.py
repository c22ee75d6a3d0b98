"""A real `helm`: from PATH, or built from its Go module and stored outside the checkout."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.jars import skip_or_fail_in_ci

VERSION = "v3.22.0"
CHART = Path(__file__).parents[2] / "charts" / "ottla"


def find_helm() -> Path:
    if found := shutil.which("helm"):
        return Path(found)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "ottla" / f"helm-{VERSION}" / "helm"
    if not path.exists():
        skip_or_fail_in_ci(
            f"no `helm` on PATH; to build it: "
            f"GOBIN={path.parent} CGO_ENABLED=0 go install helm.sh/helm/v3/cmd/helm@{VERSION}"
        )
    return path


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
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
