"""Security contexts that meet Kubernetes' restricted profile; in addition the root file system is
read-only.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from typing import Final

from ottla_operator.plan.objects.pod_defaults import PodDefaults
from ottla_operator.resources.model import Json

USER: Final = 10001  # in our images


def pod_security(defaults: PodDefaults) -> Json:
    ids = {} if defaults.assigns_uid else {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    return {
        "runAsNonRoot": True,
        **ids,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Json:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
