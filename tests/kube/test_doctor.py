"""`ottla doctor` on a real API server."""

import json
import subprocess

from tests.e2e.up_process import COMMAND, command_environment
from tests.kube.control_plane import ControlPlane
from tests.kube.custom_resource_definitions import install_crds


def verdicts(plane: ControlPlane) -> dict[str, str]:
    """What was seen of Kubernetes, by what was examined."""
    done = subprocess.run(
        [*COMMAND, "doctor", "--output", "json"],
        env=command_environment() | {"KUBECONFIG": str(plane.kubeconfig())},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, "")  # no operator is installed
    return {it["what"]: it["seen"] for it in json.loads(done.stdout) if it["area"] == "kubernetes"}


def test_definitions_and_the_operator_are_examined(plane: ControlPlane) -> None:
    before = verdicts(plane)
    assert (before["CRD of Cluster"], before["operator"]) == ("not installed", "not installed")
    install_crds(plane.admin)
    after = verdicts(plane)
    assert {seen for what, seen in after.items() if what.startswith("CRD of")} == {"installed"}, after
