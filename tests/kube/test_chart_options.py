"""Values of the chart for the platform that it is installed on, rendered by a real helm: image pull
secrets and policies, OpenShift, network policies.
"""

import pytest

from tests.kube import helm
from tests.kube.api_client import Json
from tests.kube.test_chart import objects_of_kind


def operator_pod(*values: str) -> Json:
    (deployment,) = objects_of_kind(helm.render(*values), "Deployment")
    spec: Json = deployment["spec"]["template"]["spec"]
    return spec


def operator_environment(*values: str) -> dict[str, str]:
    (container,) = operator_pod(*values)["containers"]
    return {it["name"]: it["value"] for it in container["env"] if "value" in it}


def test_image_pull_secrets_and_policies_reach_all_pods_of_the_chart_and_the_operator() -> None:
    values = ("imagePullSecrets[0].name=a", "imagePullSecrets[1].name=b", "broker.pullPolicy=Always")
    assert operator_pod(*values)["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    found = operator_environment(*values, "pipelines.pullPolicy=Never")
    assert found["OTTLA_PULL_SECRETS"] == "a,b" and found["OTTLA_BROKER_PULL_POLICY"] == "Always"
    assert found["OTTLA_SPARK_PULL_POLICY"] == "Never"
    assert "OTTLA_PULL_SECRETS" not in operator_environment()
    for it in helm.render_tests(*values, "image.pullPolicy=Always"):
        if it["kind"] == "Pod":
            assert it["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
            assert {container["imagePullPolicy"] for container in it["spec"]["containers"]} == {"Always"}


@pytest.mark.parametrize(("value", "is_set"), [("auto", True), ("false", True), ("true", False)])
def test_user_ids_are_left_to_a_platform_that_assigns_them(value: str, is_set: bool) -> None:
    security = operator_pod(f"platformAssignsUid={value}")["securityContext"]
    assert ("runAsUser" in security) is is_set and security["runAsNonRoot"]
    assert ("OTTLA_PLATFORM_ASSIGNS_UID" not in operator_environment(f"platformAssignsUid={value}")) is is_set


def test_openshift_is_recognized_by_its_api() -> None:
    done = helm.run(
        "template", "demo", helm.CHART, "--kube-version", "1.33.0", "--api-versions", "security.openshift.io/v1"
    )
    assert done.returncode == 0 and "runAsUser: 10001" not in done.stdout
    assert "OTTLA_PLATFORM_ASSIGNS_UID" in done.stdout


def test_one_pod_of_the_operator_may_be_evicted_at_a_time() -> None:
    (budget,) = objects_of_kind(helm.render(), "PodDisruptionBudget")
    (deployment,) = objects_of_kind(helm.render(), "Deployment")
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]


def test_a_network_policy_lets_only_metrics_and_probes_in() -> None:
    assert objects_of_kind(helm.render(), "NetworkPolicy") == []
    (policy,) = objects_of_kind(helm.render("networkPolicy.enabled=true"), "NetworkPolicy")
    assert policy["spec"]["ingress"] == [{"ports": [{"port": "http-metrics", "protocol": "TCP"}]}]
