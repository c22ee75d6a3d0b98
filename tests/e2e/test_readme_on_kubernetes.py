"""README's commands for Kubernetes, run as written on a new Kubernetes with a real kubelet.

The images are tagged with the names in README's files, as if a user had pushed them to a registry.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.jars import skip_or_fail_in_ci
from tests.kube import helm
from tests.kube.cluster import Kubernetes, missing_requirement, run_kubernetes
from tests.kube.images import build
from tests.kube.installed_operator import OPERATOR_NAMESPACE, describe_pods
from tests.kube.programs import find_program
from tests.kube.readme_commands import ROOT, readme_commands

pytestmark = pytest.mark.timeout(3600)  # the images may have to be built, and README waits up to 25 minutes
VALUES = yaml.safe_load((ROOT / "examples" / "values.yaml").read_text(encoding="utf-8"))
VERSION = yaml.safe_load((helm.CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
NAMES = {
    "operator": VALUES["image"]["repository"],
    "broker": VALUES["broker"]["repository"],
    "spark": VALUES["pipelines"]["repository"],
    "client": "docker.io/library/ottla-client",
}


@pytest.fixture
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    if missing := missing_requirement() or build.missing_requirement():
        skip_or_fail_in_ci(missing)
    archives = {name: build.build_archive(name) for name in NAMES}
    with run_kubernetes(tmp_path_factory.mktemp("kube")) as kubernetes:
        for name, repository in NAMES.items():
            kubernetes.load_image(archives[name])
            kubernetes.tag_image(build.image_reference(name), f"{repository}:{VERSION}")
        yield kubernetes


def test_the_commands_end_with_rows_of_the_pipeline(kubernetes: Kubernetes, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(find_program("control-plane"))
    (programs / "helm").symlink_to(helm.find_helm())
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "KUBECONFIG": str(kubernetes.plane.kubeconfig()),
    }
    printed: dict[str, str] = {}
    for command in readme_commands():
        done = subprocess.run(
            ["sh", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}\n{describe_all_pods(kubernetes)}"
        printed[command] = done.stdout
    (consume,) = (it for it in printed if "ottla consume" in it)
    assert printed[consume].count("mean_delay") == 3, printed[consume]
    assert "cluster.ottla.dev/demo" in printed["kubectl get ottla"], printed["kubectl get ottla"]


def describe_all_pods(kubernetes: Kubernetes) -> str:
    """States and logs of all pods that the commands made, for assertion messages."""
    return "\n".join(describe_pods(kubernetes, namespace, "") for namespace in ("default", OPERATOR_NAMESPACE))
