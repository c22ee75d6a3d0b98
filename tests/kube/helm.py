"""A real `helm`: the one on PATH, or built from its Go module once and kept outside the checkout."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.jars import unavailable

VERSION = "v3.22.0"
CHART = Path(__file__).parents[2] / "charts" / "ottla"


def helm() -> Path:
    if found := shutil.which("helm"):
        return Path(found)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "ottla" / f"helm-{VERSION}" / "helm"
    if not path.exists():
        unavailable(
            f"no `helm` on PATH; to build one: GOBIN={path.parent} CGO_ENABLED=0 go install helm.sh/helm/v3/cmd/helm@{VERSION}"
        )
    return path


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm(), *arguments], capture_output=True, text=True, check=False, timeout=120)


def rendered(*values: str, namespace: str = "ottla", release: str = "demo") -> list[dict[str, Any]]:
    """The chart's objects without those of `helm test`. `values`: as --set takes them."""
    options = [part for it in values for part in ("--set", it)]
    done = run(
        "template", release, CHART, "--skip-tests", "--namespace", namespace, "--kube-version", "1.36.0", *options
    )
    assert done.returncode == 0, done.stderr
    return [it for it in yaml.safe_load_all(done.stdout) if it]
