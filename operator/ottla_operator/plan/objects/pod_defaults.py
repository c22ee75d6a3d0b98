"""Options of the operator that apply to every pod that it creates."""

from dataclasses import dataclass

from ottla_operator.resources.model import Json


@dataclass(frozen=True, slots=True)
class PodDefaults:
    """`pull_secrets`: names of image pull secrets, which each namespace with a Cluster or Pipeline
    needs. `assigns_uid`: the platform assigns a user id to every namespace, as OpenShift does, and
    refuses others.
    """

    pull_secrets: tuple[str, ...] = ()
    assigns_uid: bool = False


def pull_secrets(defaults: PodDefaults) -> Json:
    """Fields of a pod's spec."""
    return {"imagePullSecrets": [{"name": it} for it in defaults.pull_secrets]} if defaults.pull_secrets else {}
