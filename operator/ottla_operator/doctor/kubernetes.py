"""Checks that the operator can work in the cluster of the kubeconfig's current context."""

from typing import Final

import yaml

from ottla_operator.crd_files import build_crd
from ottla_operator.doctor.finding import Finding, Severity
from ottla_operator.doctor.operator_rights import examine_rights
from ottla_operator.formatting import format_count
from ottla_operator.kube.api import FORBIDDEN, ApiClient, ApiError
from ottla_operator.kube.kinds import DEPLOYMENT, ObjectKind
from ottla_operator.kube.operator import LoginError, log_in
from ottla_operator.plan.objects.names import OPERATOR
from ottla_operator.resources import crds
from ottla_operator.resources.model import Json

AREA: Final = "kubernetes"
CRD: Final = ObjectKind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")
SELECTOR: Final = ",".join(f"{name}={value}" for name, value in OPERATOR.items())
INSTALL: Final = "helm upgrade --install ottla charts/ottla"


async def examine_kubernetes() -> list[Finding]:
    try:
        log_in()
    except LoginError:
        return [Finding(AREA, "access", Severity.skipped, "no kubeconfig, and not in a pod")]
    except (OSError, yaml.YAMLError) as reason:
        observed = f"{reason.filename}: {reason.strerror}" if isinstance(reason, OSError) else f"kubeconfig: {reason}"
        impact = "kubectl does not work with it either"
        return [Finding(AREA, "access", Severity.problem, observed, impact, "kubectl config view")]
    client = ApiClient(log_in)
    try:
        findings = []
        for kind in crds.KINDS:
            own = build_crd(kind)
            findings.append(evaluate_crd(kind.name, own, await client.get(CRD, None, own["metadata"]["name"])))
        deployments = await client.list(DEPLOYMENT, None, SELECTOR)
        return [*findings, evaluate_operator(deployments), *[await examine_rights(client, it) for it in deployments]]
    except ApiError as reason:
        impact = "neither the resources nor the operator can be examined"
        next_step = "kubectl auth can-i list deployments -A" if reason.status == FORBIDDEN else "kubectl cluster-info"
        return [Finding(AREA, "access", Severity.problem, str(reason), impact, next_step)]
    finally:
        await client.close()


def evaluate_crd(kind: str, own: Json, installed: Json | None) -> Finding:
    """`own`: the definition of this version of Ottla."""
    subject, impact = f"CRD of {kind}", "the API server refuses or prunes what it does not know"
    if installed is None:
        return Finding(AREA, subject, Severity.problem, "not installed", impact, INSTALL)
    missing = sorted(_fields(own) - _fields(installed))
    if missing:
        observed = f"of another version: it lacks {missing[0]}"
        observed += f" and {format_count(len(missing) - 1, 'other field')}" if len(missing) > 1 else ""
        return Finding(AREA, subject, Severity.warning, observed, impact, INSTALL)
    return Finding(AREA, subject, Severity.good, "installed")


def evaluate_operator(deployments: list[Json]) -> Finding:
    subject, impact = "operator", "without it resources are stored, and nothing is done"
    if not deployments:
        return Finding(AREA, subject, Severity.problem, "not installed", impact, INSTALL)
    available = [it for it in deployments if (it.get("status") or {}).get("availableReplicas")]
    names = ", ".join(f"{it['metadata']['namespace']}/{it['metadata']['name']}" for it in available or deployments)
    if available:
        return Finding(AREA, subject, Severity.good, f"available: {names}")
    namespace = deployments[0]["metadata"]["namespace"]
    next_step = f"kubectl describe pods --namespace {namespace} --selector {SELECTOR}"
    return Finding(AREA, subject, Severity.problem, f"no pod of {names} is available", impact, next_step)


def _fields(definition: Json) -> set[str]:
    """Paths of all fields that the schema has, such as spec.listeners.tls."""
    (version,) = (it for it in definition["spec"]["versions"] if it["storage"])
    return set(_paths(version["schema"]["openAPIV3Schema"], ""))


def _paths(schema: Json, prefix: str) -> list[str]:
    paths = []
    for name, field in (schema.get("properties") or {}).items():
        path = f"{prefix}{name}"
        paths += [path, *_paths(field.get("items") or field, f"{path}.")]
    return paths
