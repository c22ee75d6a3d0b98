"""The chart as rendered by a real helm."""

import json
from typing import Any

import pytest

from ottla_operator.crd_files import build_crd
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
    USER,
)
from ottla_operator.monitoring.dashboards import DASHBOARDS
from ottla_operator.monitoring.panels import render_dashboard
from ottla_operator.plan.objects.names import OPERATOR
from ottla_operator.plan.pipeline.desired import DRIVER_RULES
from ottla_operator.resources import crds
from ottla_operator.resources.validation import validate_resource
from tests.kube import helm


def objects_of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [it for it in objects if it["kind"] == kind]


def test_the_chart_passes_lint_and_renders_deterministically() -> None:
    done = helm.run("lint", "--strict", helm.CHART)
    assert done.returncode == 0, done.stdout + done.stderr
    assert helm.render() == helm.render()


def test_crds_are_upgraded_with_the_chart_and_never_deleted_with_it() -> None:
    rendered = objects_of_kind(helm.render(), "CustomResourceDefinition")
    assert {it["metadata"]["name"] for it in rendered} == {f"{it.plural}.{crds.GROUP}" for it in crds.KINDS}
    for it in rendered:
        assert it["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        (kind,) = (kind for kind in crds.KINDS if kind.plural == it["spec"]["names"]["plural"])
        assert it["spec"] == build_crd(kind)["spec"]
    assert not objects_of_kind(helm.render("crds.install=false"), "CustomResourceDefinition")


LEASE_PERMISSIONS = {(LEASE.api.rpartition("/")[0], "leases", it) for it in ("get", "create", "patch")}


def permissions(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """(API group, resource, verb) that RBAC rules grant."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_permissions_are_for_all_namespaces_or_for_listed_ones() -> None:
    for_all = helm.render()
    assert [it["metadata"]["name"] for it in objects_of_kind(for_all, "Role")] == ["demo-ottla-lease"]
    (role,) = (it for it in objects_of_kind(for_all, "ClusterRole") if it["metadata"]["name"] == "demo-ottla")
    for_listed = helm.render("namespaces={a,b}")
    roles = objects_of_kind(for_listed, "Role")
    permissions_in = {it["metadata"]["namespace"]: permissions(it["rules"]) for it in roles}
    assert permissions_in.keys() == {"a", "b", "ottla"}
    assert permissions_in["a"] == permissions_in["b"] == permissions(role["rules"])
    assert permissions_in["ottla"] == LEASE_PERMISSIONS, "in its own namespace, only the Lease"
    roles = objects_of_kind(helm.render("namespaces={ottla}"), "Role")
    by_name = {it["metadata"]["name"]: permissions(it["rules"]) for it in roles}
    assert by_name == {"demo-ottla": permissions(role["rules"]), "demo-ottla-lease": LEASE_PERMISSIONS}
    names = [it["metadata"]["name"] for it in objects_of_kind(for_listed, "ClusterRole")]
    assert "demo-ottla" not in names and "demo-ottla-nodes" in names
    assert "demo-ottla-nodes" not in [
        it["metadata"]["name"] for it in objects_of_kind(helm.render("rbac.nodes=false"), "ClusterRole")
    ]
    (container,) = objects_of_kind(for_listed, "Deployment")[0]["spec"]["template"]["spec"]["containers"]
    assert {"name": "OTTLA_NAMESPACES", "value": "a,b"} in container["env"]


def test_the_operator_has_the_permissions_that_it_needs() -> None:
    objects = helm.render()
    granted = {
        permission
        for it in objects_of_kind(objects, "ClusterRole")
        for permission in permissions(it["rules"])
        if "aggregate" not in str(it["metadata"])
    }
    for kind in (CLUSTER, TOPIC, USER, PIPELINE, POD, SERVICE, STATEFUL_SET):
        assert {(kind.api.rpartition("/")[0], kind.plural, verb) for verb in ("get", "list", "watch")} <= granted
    for kind in (CONFIG_MAP, SERVICE, STATEFUL_SET, DEPLOYMENT, SPARK_APPLICATION, CLAIM):
        assert {(kind.api.rpartition("/")[0], kind.plural, verb) for verb in ("get", "create", "patch")} <= granted
    assert {("", NODE.plural, "get"), ("", CLAIM.plural, "patch"), ("", POD.plural, "delete")} <= granted
    assert permissions(list(DRIVER_RULES)) <= granted, "an account can grant only permissions that it has"
    assert {("ottla.dev", f"{kind.plural}/status", "patch") for kind in (CLUSTER, TOPIC, USER, PIPELINE)} <= granted
    assert {("ottla.dev", USER.plural, verb) for verb in ("create", "patch", "delete")} <= granted
    assert not any(resource in ("secrets", "leases") for _, resource, _ in granted)
    (with_secrets,) = [
        it
        for it in objects_of_kind(helm.render("rbac.secrets=true"), "ClusterRole")
        if ("", "secrets", "get") in permissions(it["rules"])
    ]
    verbs = {verb for _, resource, verb in permissions(with_secrets["rules"]) if resource == "secrets"}
    assert verbs == {"get", "create", "patch"}, "Secrets can be read and written by name only"


def test_pods_meet_the_restricted_pod_security_level_and_have_the_operators_labels() -> None:
    (deployment,) = objects_of_kind(helm.render(), "Deployment")
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


def lease_name(**options: str) -> str:
    (deployment,) = objects_of_kind(helm.render(**options), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (name,) = [it["value"] for it in container["env"] if it["name"] == "OTTLA_OPERATOR_LEASE"]
    return str(name)


def test_each_of_two_releases_in_one_namespace_has_its_own_lease() -> None:
    assert lease_name(release="ottla") == "ottla-operator"
    assert lease_name(release="west") == "west-ottla-operator" != lease_name(release="east")
    assert len(lease_name(release="a" * 53)) <= 63


def test_monitoring_objects_are_optional() -> None:
    kinds = {"PodMonitor", "PrometheusRule"}
    assert not kinds & {it["kind"] for it in helm.render()}
    objects = helm.render("podMonitor.enabled=true", "prometheusRule.enabled=true", "dashboard.enabled=true")
    assert kinds <= {it["kind"] for it in objects}
    (rule,) = objects_of_kind(objects, "PrometheusRule")
    alerts = {it["alert"]: it for group in rule["spec"]["groups"] for it in group["rules"] if "alert" in it}
    offline, no_operator = alerts["OttlaPartitionsOffline"], alerts["OttlaNoActiveOperator"]
    assert "{{ $value }}" in offline["annotations"]["summary"]
    assert offline["annotations"]["runbook_url"] == "docs/troubleshooting.md#ottlapartitionsoffline"
    assert no_operator["expr"].startswith("absent("), "without an operator, a sum over its metrics has no result"
    found = {
        it["metadata"]["name"]: it
        for it in objects_of_kind(objects, "ConfigMap")
        if it["metadata"]["labels"].get("grafana_dashboard") == "1"
    }
    assert found.keys() == {f"demo-ottla-dashboard-{one.file.removeprefix('ottla-')}" for one in DASHBOARDS}
    for dashboard in DASHBOARDS:
        data = found[f"demo-ottla-dashboard-{dashboard.file.removeprefix('ottla-')}"]["data"]
        assert json.loads(data[f"{dashboard.file}.json"]) == render_dashboard(dashboard)


@pytest.mark.parametrize(
    "value", ["replicas=0", "namespaces={Events}", "image.tagg=1", "logLevel=loud", "nameOverride=other"]
)
def test_invalid_values_are_rejected(value: str) -> None:
    done = helm.run("template", "demo", helm.CHART, "--set", value)
    assert done.returncode != 0 and value.partition("=")[0].split(".")[0] in done.stderr


def test_helm_test_uses_a_reconciled_namespace_and_deletes_its_objects() -> None:
    for values, namespace in (((), "ottla"), (("namespaces={a,b}",), "a")):
        hooks = helm.render_tests(*values)
        assert [it["kind"] for it in hooks] == ["Cluster", "Topic", "Pod"]
        assert {it["metadata"]["namespace"] for it in hooks} == {namespace}
        for it in hooks:
            assert it["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
            assert it["kind"] == "Pod" or not validate_resource({**it, "metadata": {"name": it["metadata"]["name"]}})
