"""The chart as rendered by a real helm."""

from typing import Any

import pytest

from ottla_operator.kube.kinds import (
    CLAIM,
    CLUSTER,
    CONFIG_MAP,
    DEPLOYMENT,
    LEASE,
    NODE,
    PIPELINE,
    POD,
    SERVICE,
    SPARK_APPLICATION,
    STATEFUL_SET,
    TOPIC,
)
from ottla_operator.plan.objects.names import OPERATOR
from ottla_operator.plan.pipeline.desired import DRIVER_RULES
from ottla_operator.resources import crds
from ottla_operator.resources.validation import validate_resource
from tests.kube import helm


def of(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [it for it in objects if it["kind"] == kind]


def test_it_is_clean_and_deterministic() -> None:
    done = helm.run("lint", "--strict", helm.CHART)
    assert done.returncode == 0, done.stdout + done.stderr
    assert helm.render() == helm.render()


def test_crds_are_upgraded_with_the_chart_and_never_deleted_with_it() -> None:
    found = of(helm.render(), "CustomResourceDefinition")
    assert {it["metadata"]["name"] for it in found} == {f"{it.plural}.{crds.GROUP}" for it in crds.KINDS}
    for it in found:
        assert it["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        (kind,) = (kind for kind in crds.KINDS if kind.plural == it["spec"]["names"]["plural"])
        assert it["spec"] == crds.build_crd(kind)["spec"]
    assert not of(helm.render("crds.install=false"), "CustomResourceDefinition")


def rights(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_rights_over_all_namespaces_or_over_a_list_of_them() -> None:
    everywhere = helm.render()
    assert not of(everywhere, "Role")
    (role,) = (it for it in of(everywhere, "ClusterRole") if it["metadata"]["name"] == "demo-ottla")
    some = helm.render("namespaces={a,b}")
    roles = of(some, "Role")
    rights_in = {it["metadata"]["namespace"]: rights(it["rules"]) for it in roles}
    assert rights_in.keys() == {"a", "b", "ottla"}
    assert rights_in["a"] == rights_in["b"] == rights(role["rules"])
    assert rights_in["ottla"] == {(LEASE.api.rpartition("/")[0], "leases", it) for it in ("get", "create", "patch")}, (
        "its own Lease, and nothing of what others keep there"
    )
    for it in of(helm.render("namespaces={a,ottla}"), "Role"):
        assert rights(it["rules"]) == rights(role["rules"])
    names = [it["metadata"]["name"] for it in of(some, "ClusterRole")]
    assert "demo-ottla" not in names and "demo-ottla-nodes" in names
    assert "demo-ottla-nodes" not in [
        it["metadata"]["name"] for it in of(helm.render("rbac.nodes=false"), "ClusterRole")
    ]
    (container,) = of(some, "Deployment")[0]["spec"]["template"]["spec"]["containers"]
    assert {"name": "OTTLA_NAMESPACES", "value": "a,b"} in container["env"]


def test_the_operator_may_what_it_does() -> None:
    objects = helm.render()
    may = {
        right
        for it in of(objects, "ClusterRole")
        for right in rights(it["rules"])
        if "aggregate" not in str(it["metadata"])
    }
    for kind in (CLUSTER, TOPIC, PIPELINE, POD, SERVICE, STATEFUL_SET):
        assert {(kind.api.rpartition("/")[0], kind.plural, verb) for verb in ("get", "list", "watch")} <= may
    for kind in (CONFIG_MAP, SERVICE, STATEFUL_SET, LEASE, DEPLOYMENT, SPARK_APPLICATION, CLAIM):
        assert {(kind.api.rpartition("/")[0], kind.plural, verb) for verb in ("get", "create", "patch")} <= may
    assert {("", NODE.plural, "get"), ("", CLAIM.plural, "patch"), ("", POD.plural, "delete")} <= may
    assert rights(list(DRIVER_RULES)) <= may, "who gives drivers their rights has to have them"
    assert {("ottla.dev", f"{kind.plural}/status", "patch") for kind in (CLUSTER, TOPIC, PIPELINE)} <= may
    assert not any(resource == "secrets" for _, resource, _ in may)
    (more,) = [
        it
        for it in of(helm.render("rbac.secrets=true"), "ClusterRole")
        if ("", "secrets", "get") in rights(it["rules"])
    ]
    assert {verb for _, resource, verb in rights(more["rules"]) if resource == "secrets"} == {"get"}, (
        "by name, and no others"
    )


def test_pods_hold_to_the_restricted_profile_and_are_known_to_brokers() -> None:
    (deployment,) = of(helm.render(), "Deployment")
    template = deployment["spec"]["template"]
    assert OPERATOR.items() <= template["metadata"]["labels"].items()
    pod = template["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"] == {
        "type": "RuntimeDefault"
    }
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def lease_of(**rendered: str) -> str:
    (deployment,) = of(helm.render(**rendered), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (found,) = [it["value"] for it in container["env"] if it["name"] == "OTTLA_OPERATOR_LEASE"]
    return str(found)


def test_two_releases_in_one_namespace_have_leases_of_their_own() -> None:
    assert lease_of(release="ottla") == "ottla-operator"
    assert lease_of(release="west") == "west-ottla-operator" != lease_of(release="east")
    assert len(lease_of(release="a" * 53)) <= 63


def test_what_watches_is_behind_switches() -> None:
    kinds = {"PodMonitor", "PrometheusRule"}
    assert not kinds & {it["kind"] for it in helm.render()}
    switched = helm.render("podMonitor.enabled=true", "prometheusRule.enabled=true", "dashboard.enabled=true")
    assert kinds <= {it["kind"] for it in switched}
    (rule,) = of(switched, "PrometheusRule")
    assert "{{ $value }}" in rule["spec"]["groups"][0]["rules"][0]["annotations"]["summary"]
    (nobody,) = (it for it in rule["spec"]["groups"][0]["rules"] if it["alert"] == "OttlaNoActiveOperator")
    assert nobody["expr"].startswith("absent("), "where there is no operator there are no figures to add up"
    (dashboard,) = (it for it in of(switched, "ConfigMap") if it["metadata"]["name"].endswith("-dashboard"))
    assert '"title": "Ottla"' in dashboard["data"]["ottla.json"]


@pytest.mark.parametrize(
    "value", ["replicas=0", "namespaces={Events}", "image.tagg=1", "logLevel=loud", "nameOverride=other"]
)
def test_values_that_are_wrong_are_refused(value: str) -> None:
    done = helm.run("template", "demo", helm.CHART, "--set", value)
    assert done.returncode != 0 and value.partition("=")[0].split(".")[0] in done.stderr


def test_helm_test_is_in_a_namespace_that_the_operator_keeps_and_leaves_nothing() -> None:
    for values, namespace in (((), "ottla"), (("namespaces={a,b}",), "a")):
        hooks = helm.render_tests(*values)
        assert [it["kind"] for it in hooks] == ["Cluster", "Topic", "Pod"]
        assert {it["metadata"]["namespace"] for it in hooks} == {namespace}
        for it in hooks:
            assert it["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
            assert it["kind"] == "Pod" or not validate_resource({**it, "metadata": {"name": it["metadata"]["name"]}})
