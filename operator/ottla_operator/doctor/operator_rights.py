"""Checks that the operator's service account has the main rights that its chart gives it, and the
right to write Secrets, which `rbac.secrets` gives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ottla_operator.doctor.finding import Finding, Severity
from ottla_operator.formatting import format_count
from ottla_operator.kube.api import FORBIDDEN, ApiClient, ApiError
from ottla_operator.kube.kinds import SUBJECT_ACCESS_REVIEW
from ottla_operator.resources.crds import GROUP, KINDS
from ottla_operator.resources.model import Json

AREA: Final = "kubernetes"
NAMESPACES: Final = "OTTLA_NAMESPACES"


@dataclass(frozen=True, slots=True)
class Right:
    """`resource`: perhaps with a subresource, such as clusters/status."""

    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


RIGHTS: Final = (
    *(Right("watch", GROUP, it.plural) for it in KINDS),
    *(Right("patch", GROUP, f"{it.plural}/status") for it in KINDS),
    Right("patch", "apps", "statefulsets"),
    *(Right("patch", "", it) for it in ("services", "configmaps", "persistentvolumeclaims", "serviceaccounts")),
    *(Right(verb, "", "pods") for verb in ("watch", "create", "delete")),
    Right("create", "", "events"),
    *(Right("patch", "rbac.authorization.k8s.io", it) for it in ("roles", "rolebindings")),
)
SECRETS: Final = Right("patch", "", "secrets")


@dataclass(frozen=True, slots=True)
class MissingRight:
    """`namespace`: None for all namespaces."""

    right: Right
    namespace: str | None

    def __str__(self) -> str:
        return f"{self.right} in " + (f"namespace {self.namespace}" if self.namespace else "all namespaces")


async def examine_rights(client: ApiClient, deployment: Json) -> Finding:
    """`deployment`: of the operator. Raises ApiError, except for a refused access review, which is
    a skipped finding.
    """
    subject = f"rights of {service_account(deployment)}"
    try:
        missing = [
            MissingRight(right, namespace)
            for namespace in watched_namespaces(deployment)
            for right in (*RIGHTS, SECRETS)
            if not (await client.create(access_review(deployment, namespace, right)))["status"]["allowed"]
        ]
    except ApiError as reason:
        if reason.status != FORBIDDEN:
            raise
        return Finding(AREA, subject, Severity.skipped, "you may not create subjectaccessreviews")
    return evaluate_rights(subject, missing)


def evaluate_rights(subject: str, missing: Sequence[MissingRight]) -> Finding:
    if not missing:
        return Finding(AREA, subject, Severity.good, "it may do what it has to")
    reported = [it for it in missing if it.right != SECRETS] or missing
    observed = f"it may not {reported[0]}"
    observed += f", and lacks {format_count(len(reported) - 1, 'other right')}" if len(reported) > 1 else ""
    if reported[0].right == SECRETS:
        impact = "passwords, certificates and logins between brokers are in Secrets; clusters without them need none"
        next_step = "helm upgrade ottla charts/ottla --reuse-values --set rbac.secrets=true"
        return Finding(AREA, subject, Severity.warning, observed, impact, next_step)
    impact = "the API server accepts resources, but the operator cannot reconcile them"
    return Finding(AREA, subject, Severity.problem, observed, impact, "helm upgrade ottla charts/ottla --reuse-values")


def service_account(deployment: Json) -> str:
    """namespace/name."""
    name = deployment["spec"]["template"]["spec"].get("serviceAccountName", "default")
    return f"{deployment['metadata']['namespace']}/{name}"


def watched_namespaces(deployment: Json) -> list[str | None]:
    """None for all namespaces."""
    named = next((value for name, value in _environment(deployment) if name == NAMESPACES), "")
    return [*filter(None, named.split(","))] or [None]


def access_review(deployment: Json, namespace: str | None, right: Right) -> Json:
    """A SubjectAccessReview for the operator's service account."""
    home, _, account = service_account(deployment).partition("/")
    resource, _, subresource = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
    return {
        "apiVersion": SUBJECT_ACCESS_REVIEW.api,
        "kind": SUBJECT_ACCESS_REVIEW.name,
        "metadata": {},
        "spec": {
            "user": f"system:serviceaccount:{home}:{account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{home}", "system:authenticated"],
            "resourceAttributes": attributes | ({"namespace": namespace} if namespace else {}),
        },
    }


def _environment(deployment: Json) -> Iterator[tuple[str, str]]:
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env") or ():
            yield variable["name"], variable.get("value", "")
