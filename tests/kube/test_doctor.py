"""`ottla doctor` on a real API server."""

import json

from ottla_operator.doctor.operator_rights import RIGHTS
from ottla_operator.plan.objects.names import OPERATOR
from tests.kube.control_plane import ControlPlane
from tests.kube.custom_resource_definitions import install_crds
from tests.ottla_command import run_ottla

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def examine_kubernetes(plane: ControlPlane) -> dict[str, str]:
    """The findings of `ottla doctor` about Kubernetes, by subject."""
    done = run_ottla("doctor", "--output", "json", variables={"KUBECONFIG": str(plane.kubeconfig())})
    assert (done.returncode, done.stderr) == (1, "")  # no operator runs
    return {it["subject"]: it["observed"] for it in json.loads(done.stdout) if it["area"] == "kubernetes"}


def test_crds_and_the_operator_are_reported_as_installed_or_not(plane: ControlPlane) -> None:
    before = examine_kubernetes(plane)
    assert (before["CRD of Cluster"], before["operator"]) == ("not installed", "not installed")
    install_crds(plane.admin)
    after = examine_kubernetes(plane)
    assert {observed for subject, observed in after.items() if subject.startswith("CRD of")} == {"installed"}, after


def test_missing_rights_of_the_operators_account_are_reported(plane: ControlPlane) -> None:
    install_crds(plane.admin)
    path, labels = "/apis/apps/v1/namespaces/default/deployments", {**OPERATOR}
    pod = {"serviceAccountName": "powerless", "containers": [{"name": "operator", "image": "none"}]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "powerless", "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    plane.admin.request("POST", path, deployment)
    try:
        found = examine_kubernetes(plane)["rights of default/powerless"]
        assert found == f"it may not watch clusters in all namespaces, and lacks {len(RIGHTS) - 1} other rights"
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "powerless"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "powerless", "namespace": "default"}],
        }
        plane.admin.request("POST", BINDINGS, binding)
        assert examine_kubernetes(plane)["rights of default/powerless"] == "it may do what it has to"
    finally:
        plane.admin.request("DELETE", f"{path}/powerless")
        plane.admin.request("DELETE", f"{BINDINGS}/powerless")
