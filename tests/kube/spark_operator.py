"""Kubeflow's Spark operator: its controller, built from its Go module, as a process beside the API
server.

Its webhook is not run: it changes only pods that have no pod template, and those of a Pipeline
have one. `python -m tests.kube.spark_operator` builds the controller once; tests only look it up.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests import go_programs
from tests.daemons import Daemon
from tests.jars import skip_or_fail_in_ci
from tests.kube.api_client import Json
from tests.kube.control_plane import ControlPlane
from tests.kube.custom_resource_definitions import install_crd
from tests.kube.programs import BUILD_COMMAND

SOURCE = Path(__file__).parent / "go_spark_operator"
MODULE = "github.com/kubeflow/spark-operator/v2"
NAME = "spark-operator"
PROBES = "127.0.0.1:18081"


def cache_folder() -> Path:
    """The folder with the controller built from this source, and its CRDs."""
    return go_programs.cache_folder(SOURCE, NAME, go_programs.required_version(SOURCE, MODULE))


def build() -> Path:
    """Builds the controller and copies its CRDs if they are not there yet. Raises
    ProgramUnavailable.
    """
    program = go_programs.build_program(SOURCE, cache_folder(), NAME, "minutes")
    if not crd_files():
        listed = subprocess.run(
            ["go", "list", "-m", "-f", "{{.Dir}}", MODULE], cwd=SOURCE, capture_output=True, text=True, check=True
        )
        for path in (Path(listed.stdout.strip()) / "config" / "crd" / "bases").glob("*.yaml"):
            shutil.copyfile(path, cache_folder() / path.name)
    return program


def crd_files() -> list[Path]:
    return sorted(cache_folder().glob("*.yaml"))


@contextmanager
def run_spark_operator(folder: Path, plane: ControlPlane, namespace: str) -> Iterator[Daemon]:
    """Runs the controller for a namespace during the block, with its CRDs installed."""
    program = cache_folder() / NAME
    if not program.exists() or not crd_files():
        skip_or_fail_in_ci(f"Kubeflow's Spark operator is not built: `{BUILD_COMMAND}` builds it once, in minutes")
    for path in crd_files():
        crd: Json = yaml.safe_load(path.read_text(encoding="utf-8"))
        install_crd(plane.admin, crd)
    pyspark = find_spec("pyspark")
    assert pyspark is not None and pyspark.origin is not None
    address = urlsplit(plane.admin.url)
    environment = {
        "SPARK_HOME": str(Path(pyspark.origin).parent),  # has the spark-submit that the controller runs
        "KUBECONFIG": str(plane.kubeconfig()),
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
    }
    options = ["--namespaces", namespace, "--zap-log-level", "info", "--health-probe-bind-address", PROBES]
    operator = Daemon([program, "start", *options], folder / "spark-operator.log", environment)
    operator.start()
    try:
        yield operator
    finally:
        operator.stop()


if __name__ == "__main__":
    sys.exit(go_programs.run_builds([build]))
