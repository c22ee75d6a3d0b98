"""What the operator was installed with and passes on to every pod that it starts."""

from dataclasses import dataclass

from ottla_operator.resources.model import Json


@dataclass(frozen=True, slots=True)
class PodDefaults:
    """`pull_secrets`: names of Secrets with which images are pulled; each namespace with a Cluster
    or Pipeline needs its own. `assigns_uid`: whether the platform assigns a user id to every
    namespace, as OpenShift does, and refuses another."""

    pull_secrets: tuple[str, ...] = ()
    assigns_uid: bool = False


def pull_secrets(defaults: PodDefaults) -> Json:
    """Fields of a pod's spec."""
    return {"imagePullSecrets": [{"name": it} for it in defaults.pull_secrets]} if defaults.pull_secrets else {}
