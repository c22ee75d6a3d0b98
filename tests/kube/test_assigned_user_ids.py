"""A platform that assigns user ids to pods, as OpenShift's security context constraints do:
operator and brokers run as the id of their namespace, which no image knows, in group 0.

A MutatingAdmissionPolicy of the API server assigns the ids, a ValidatingAdmissionPolicy refuses
workloads that choose their own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import librdkafka as rd
from tests.kube.api_client import ApiError, Json
from tests.kube.installed_operator import OPERATOR_NAMESPACE, InstalledOperator, describe_pods, find_process
from tests.kube.managed_cluster import READY_WITHIN_S, external_bootstrap
from tests.kube.namespace_client import NamespaceClient
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built

NAMESPACE, CLUSTER = "assigned", "demo"
LABEL = "ottla.test/assigns-uid"
USER = 1000650000
POLICIES = "/apis/admissionregistration.k8s.io/v1"
IN_LABELLED_NAMESPACES = {"matchLabels": {LABEL: "true"}}
ASSIGN_IDS: Json = {
    "failurePolicy": "Fail",
    "reinvocationPolicy": "Never",
    "matchConstraints": {
        "namespaceSelector": IN_LABELLED_NAMESPACES,
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    },
    "mutations": [
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {
                "expression": "Object{spec: Object.spec{securityContext: Object.spec.securityContext{"
                f"runAsUser: {USER}, fsGroup: {USER}}}}}}}"
            },
        }
    ],
}
REFUSE_OWN_IDS: Json = {
    "failurePolicy": "Fail",
    "matchConstraints": {
        "namespaceSelector": IN_LABELLED_NAMESPACES,
        "resourceRules": [
            {
                "apiGroups": ["apps"],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["deployments", "statefulsets"],
            }
        ],
    },
    "variables": [
        {
            "name": "contexts",
            "expression": "[object.spec.template.spec.?securityContext.orValue({})] + "
            "object.spec.template.spec.containers.map(it, it.?securityContext.orValue({}))",
        }
    ],
    "validations": [
        {
            "expression": "variables.contexts.all(it, !has(it.runAsUser) && !has(it.runAsGroup) && !has(it.fsGroup))",
            "message": "user and group ids are those of the namespace",
        }
    ],
}


@pytest.fixture
def assigned(installed_operator: InstalledOperator) -> Iterator[NamespaceClient]:
    """A new namespace. Its pods and those of the operator's namespace get the id that the platform
    assigns. Namespace and policies are deleted afterwards.
    """
    api = installed_operator.kube.plane.admin
    resources = NamespaceClient(api, NAMESPACE)
    resources.create_namespace()
    for plural, spec, binding in (
        ("mutatingadmissionpolicies", ASSIGN_IDS, {}),
        ("validatingadmissionpolicies", REFUSE_OWN_IDS, {"validationActions": ["Deny"]}),
    ):
        api.request("POST", f"{POLICIES}/{plural}", {"metadata": {"name": "user-ids"}, "spec": spec})
        bindings = plural.replace("policies", "policybindings")
        body = {"metadata": {"name": "user-ids"}, "spec": {"policyName": "user-ids", **binding}}
        api.request("POST", f"{POLICIES}/{bindings}", body)
    for namespace in (NAMESPACE, OPERATOR_NAMESPACE):
        label(resources, namespace, "true")
    try:
        eventually(
            lambda: are_policies_enforced(resources), within_s=60, message="the API server enforces the policies"
        )
        installed_operator.upgrade("platformAssignsUid=true")
        yield resources
    finally:
        for namespace in (NAMESPACE, OPERATOR_NAMESPACE):
            label(resources, namespace, None)
        for plural in ("mutatingadmissionpolicies", "validatingadmissionpolicies"):
            for kind in (plural.replace("policies", "policybindings"), plural):
                api.request("DELETE", f"{POLICIES}/{kind}/user-ids")
        api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        installed_operator.upgrade()


def label(resources: NamespaceClient, namespace: str, value: str | None) -> None:
    resources.api.request("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {LABEL: value}}})


def are_policies_enforced(resources: NamespaceClient) -> bool:
    """True if a new pod would get the id: a policy is enforced only a moment after its creation."""
    body = {"metadata": {"name": "trial"}, "spec": {"containers": [{"name": "trial", "image": "trial"}]}}
    pods = f"/api/v1/namespaces/{resources.namespace}/pods?dryRun=All"
    try:
        pod = resources.api.request("POST", pods, body)
    except ApiError:  # the namespace has no service account yet
        return False
    return (pod["spec"].get("securityContext") or {}).get("runAsUser") == USER


def ids_of(operator: InstalledOperator, pod: str) -> tuple[int, int]:
    """The user and the group that a pod's process runs as."""
    status = Path(f"/proc/{find_process(operator.kube, pod)}/status").read_text().splitlines()
    values = {name: numbers.split() for name, _, numbers in (line.partition(":") for line in status)}
    return int(values["Uid"][0]), int(values["Gid"][0])


def operator_ids(operator: InstalledOperator) -> tuple[int, int] | None:
    """The user and the group of the active pod; None if its process is gone. After an upgrade, a
    former pod may hold the Lease until its process has ended.
    """
    try:
        return ids_of(operator, operator.active_pod())
    except (AssertionError, FileNotFoundError):
        return None


def test_operator_and_brokers_run_as_the_user_that_the_platform_assigns(
    installed_operator: InstalledOperator, assigned: NamespaceClient
) -> None:
    eventually(
        lambda: operator_ids(installed_operator) == (USER, 0),
        within_s=120,
        message=lambda: f"{operator_ids(installed_operator)}\n{installed_operator.describe_pods()}",
    )
    spec: Json = {"replicas": 1, "storage": {"size": "1Gi"}, "resources": {"requests": {"cpu": "100m"}}}
    spec["listeners"] = [{"name": "out", "port": 9094, "type": "NodePort"}]
    assigned.create("Cluster", CLUSTER, spec)
    try:
        assigned.wait_for_status("Cluster", CLUSTER, within_s=READY_WITHIN_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{describe_pods(installed_operator.kube, NAMESPACE, '')}") from error
    assert ids_of(installed_operator, f"{CLUSTER}-1") == (USER, 0)
    bootstrap = external_bootstrap(installed_operator.kube, assigned, CLUSTER)
    rd.create_topic(bootstrap, "owned")
    assert rd.produce(bootstrap, "owned", rd.numbered_messages(0, 10)) == list(range(10))
    assigned.delete("Cluster", CLUSTER)
