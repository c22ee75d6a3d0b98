"""The Secret with the passwords of a Cluster's brokers and of the operator, which belongs to the
Cluster and is deleted with it. The operator creates it before the first broker needs it, and
changes it only to rotate the passwords.
"""

from typing import Final

from ottla_operator.kube.api import FORBIDDEN, ApiClient, ApiError
from ottla_operator.kube.kinds import POD, SECRET
from ottla_operator.kube.owned_objects import ClusterObjects, is_managed
from ottla_operator.kube.secrets import encode_data, get_secret, secret_object
from ottla_operator.plan.conditions import Reconciling, Stalled
from ottla_operator.plan.objects import names
from ottla_operator.plan.password_rotation import LoginSecret, RotationStep, UnusableLogin
from ottla_operator.plan.source_credentials import SecretUnusable, secret_values
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json

LOGIN_UNUSABLE: Final = "LoginUnusable"
RETRY_S: Final = 5.0


async def read_login(api: ApiClient, cluster: Cluster) -> LoginSecret | None:
    """None if there is no Secret. Raises Blocked if it cannot be used."""
    secret = await _get_secret(api, cluster)
    return None if secret is None else _parse(secret)


async def ensure_login(api: ApiClient, cluster: Cluster, observed: ClusterObjects, due_rotation: str) -> LoginSecret:
    """Creates the Secret if there is none. Raises Blocked if it cannot be created or used, or was
    deleted or changed while brokers run: a broker that restarts with other passwords than the rest
    could not rejoin them. `due_rotation`: the `spec.rotatePasswordsAt` that is due, for which a new
    Secret needs no rotation.
    """
    name = names.login_secret(cluster)
    found = await read_login(api, cluster)
    using = [it.name for it in observed.pods.values() if it.login and it.is_ready]
    if using and (found is None or passwords_in_use(observed) not in found.digests):
        change = "deleted" if found is None else "changed"
        message = (
            f"Secret {name} was {change}: restore it, or delete all pods of the brokers at once, which then start with "
            f"other passwords ({', '.join(using)} still have the previous ones)"
        )
        raise Blocked(Stalled(LOGIN_UNUSABLE, message), RETRY_S)
    return await _create(api, cluster, LoginSecret.generate(due_rotation)) if found is None else found


async def update_login(
    api: ApiClient, cluster: Cluster, observed: ClusterObjects, before: LoginSecret, after: LoginSecret
) -> None:
    """Writes the next step of a rotation. Before it removes the previous passwords, it annotates
    the pods with the digest of the passwords that they have received since they were created.
    Raises Blocked if the Secret is gone, or no longer is as it was read.
    """
    secret = await _get_secret(api, cluster)
    if secret is None or _parse(secret) != before:
        message = f"Secret {names.login_secret(cluster)} has changed since it was read"
        raise Blocked(Reconciling("RotatingPasswords", message), RETRY_S)
    if after.step is RotationStep.REMOVE:
        change: Json = {"metadata": {"annotations": {names.PASSWORDS: after.current.digest}}}
        for pod in observed.pods.values():
            if pod.login and pod.passwords != after.current.digest and not pod.is_terminating:
                await api.merge(POD, cluster.metadata.namespace, pod.name, change)
    metadata, data = secret["metadata"], encode_data(after.to_values())
    removed = dict.fromkeys(secret["data"].keys() - data.keys())
    change = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "data": {**removed, **data}}
    await api.merge(SECRET, metadata["namespace"], metadata["name"], change)


def passwords_in_use(observed: ClusterObjects) -> str:
    """The digest of the passwords that pods are created with, or that they have while there is no
    StatefulSet because disks are expanded; empty if they have none.
    """
    if observed.stateful_set is None:
        return next((it.passwords for it in observed.pods.values() if it.login), "")
    template = observed.stateful_set["spec"]["template"]["metadata"]
    return str((template.get("annotations") or {}).get(names.PASSWORDS, ""))


async def _get_secret(api: ApiClient, cluster: Cluster) -> Json | None:
    """Raises Blocked if it is not the operator's."""
    name = names.login_secret(cluster)
    try:
        secret = await get_secret(api, cluster.metadata.namespace, name)
    except SecretUnusable as error:
        raise Blocked(Stalled(LOGIN_UNUSABLE, str(error)), RETRY_S) from error
    if secret is not None and not is_managed(secret):
        raise Blocked(Stalled("NameConflict", f"Secret {name} exists and is not the operator's"), RETRY_S)
    return secret


def _parse(secret: Json) -> LoginSecret:
    """Raises Blocked if passwords are missing."""
    try:
        return LoginSecret.parse(secret_values(secret))
    except SecretUnusable as error:
        raise Blocked(Stalled(LOGIN_UNUSABLE, str(error)), RETRY_S) from error
    except UnusableLogin as error:
        name = secret["metadata"]["name"]
        message = (
            f"Secret {name} has been changed: restore its passwords, or delete it and all brokers' pods at once "
            f"({error})"
        )
        raise Blocked(Stalled(LOGIN_UNUSABLE, message), RETRY_S) from error


async def _create(api: ApiClient, cluster: Cluster, login: LoginSecret) -> LoginSecret:
    secret = secret_object(names.metadata(cluster, names.login_secret(cluster)), login.to_values())
    try:
        await api.create(secret)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        message = (
            f"brokers need passwords of their own, and the operator is not allowed to create Secret "
            f"{secret['metadata']['name']}: install its chart with rbac.secrets=true"
        )
        raise Blocked(Stalled(LOGIN_UNUSABLE, message), RETRY_S) from error
    return login
