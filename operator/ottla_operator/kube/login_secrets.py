"""The Secret with the passwords of a Cluster's brokers and of the operator, which belongs to the
Cluster and is deleted with it. The operator creates it once, before the first broker needs it.
"""

import base64
from typing import Final

from ottla_operator.kube.api import FORBIDDEN, ApiClient, ApiError
from ottla_operator.kube.kinds import SECRET
from ottla_operator.kube.owned_objects import ClusterObjects, is_managed
from ottla_operator.kube.secrets import get_secret
from ottla_operator.plan.conditions import Stalled
from ottla_operator.plan.inter_broker_login import LoginPasswords
from ottla_operator.plan.objects import names
from ottla_operator.plan.source_credentials import SecretUnusable, secret_values
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json

LOGIN_UNUSABLE: Final = "LoginUnusable"
RETRY_S: Final = 5.0


async def read_passwords(api: ApiClient, cluster: Cluster) -> LoginPasswords | None:
    """None without the Secret. Raises Blocked if it cannot be used."""
    name = names.login_secret(cluster)
    try:
        secret = await get_secret(api, cluster.metadata.namespace, name)
        if secret is None:
            return None
        if not is_managed(secret):
            raise Blocked(Stalled("NameConflict", f"Secret {name} exists and is not the operator's"), RETRY_S)
        found = LoginPasswords.parse(secret_values(secret))
    except SecretUnusable as error:
        raise Blocked(Stalled(LOGIN_UNUSABLE, str(error)), RETRY_S) from error
    if found is None:
        message = f"Secret {name} has been changed: restore its passwords, or delete it and all brokers' pods at once"
        raise Blocked(Stalled(LOGIN_UNUSABLE, message), RETRY_S)
    return found


async def ensure_passwords(api: ApiClient, cluster: Cluster, observed: ClusterObjects) -> LoginPasswords:
    """Creates the Secret if there is none. Raises Blocked if it was lost or changed while brokers
    run: one that is restarted with other passwords than the rest would not come back.
    """
    name = names.login_secret(cluster)
    found = await read_passwords(api, cluster)
    using = [it.name for it in observed.pods.values() if it.login and it.is_ready]
    if using and (found is None or found.digest != passwords_in_use(observed)):
        done = "deleted" if found is None else "changed"
        message = (
            f"Secret {name} was {done}: restore it, or delete all pods of the brokers at once, which then start with "
            f"other passwords ({', '.join(using)} still have the previous ones)"
        )
        raise Blocked(Stalled(LOGIN_UNUSABLE, message), RETRY_S)
    return await _create_passwords(api, cluster) if found is None else found


def passwords_in_use(observed: ClusterObjects) -> str:
    """The digest of the passwords that pods are created with, or that they have while there is no
    StatefulSet because disks are expanded; empty if they have none.
    """
    if observed.stateful_set is None:
        return next((it.passwords for it in observed.pods.values() if it.login), "")
    template = observed.stateful_set["spec"]["template"]["metadata"]
    return str((template.get("annotations") or {}).get(names.PASSWORDS, ""))


async def _create_passwords(api: ApiClient, cluster: Cluster) -> LoginPasswords:
    made = LoginPasswords.generate()
    secret: Json = {
        "apiVersion": SECRET.api,
        "kind": SECRET.name,
        "type": "Opaque",
        "metadata": names.metadata(cluster, names.login_secret(cluster)),
        "data": {key: base64.b64encode(it.encode()).decode() for key, it in made.to_values().items()},
    }
    try:
        await api.create(secret)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        message = (
            f"brokers need passwords of their own, and the operator may not create Secret "
            f"{secret['metadata']['name']}: install its chart with rbac.secrets=true"
        )
        raise Blocked(Stalled(LOGIN_UNUSABLE, message), RETRY_S) from error
    return made
