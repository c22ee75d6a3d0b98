"""`ottla doctor` on a real API server."""

import json
import subprocess

from tests.e2e.up_process import COMMAND, command_environment
from tests.kube.control_plane import ControlPlane
from tests.kube.custom_resource_definitions import install_crds


def examine_kubernetes(plane: ControlPlane) -> dict[str, str]:
    """The findings of `ottla doctor` about Kubernetes, by subject."""
    done = subprocess.run(
        [*COMMAND, "doctor", "--output", "json"],
        env=command_environment() | {"KUBECONFIG": str(plane.kubeconfig())},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, "")  # no operator is installed
    return {it["subject"]: it["observed"] for it in json.loads(done.stdout) if it["area"] == "kubernetes"}


def test_definitions_and_the_operator_are_examined(plane: ControlPlane) -> None:
    before = examine_kubernetes(plane)
    assert (before["CRD of Cluster"], before["operator"]) == ("not installed", "not installed")
    install_crds(plane.admin)
    after = examine_kubernetes(plane)
    assert {observed for subject, observed in after.items() if subject.startswith("CRD of")} == {"installed"}, after
