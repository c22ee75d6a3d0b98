"""The Secrets of users, which belong to their User resources and are deleted with them.

A Secret that the operator did not create for this User is never read for a password, and never
written.
"""

from ottla_operator.kube.api import ApiClient, ApiError
from ottla_operator.kube.owned_objects import is_managed, owner_reference
from ottla_operator.kube.secrets import get_secret, secret_object
from ottla_operator.plan.conditions import Stalled
from ottla_operator.plan.objects import names
from ottla_operator.plan.source_credentials import secret_contents
from ottla_operator.plan.user_secret import Contents
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.resources.model import Json


async def read_user_secret(api: ApiClient, namespace: str, name: str, user_uid: str) -> Contents:
    """Empty if there is none, or only that of another User. Raises Blocked if it belongs to no
    User, SecretUnusable if the operator may not read it.
    """
    secret = await get_secret(api, namespace, name)
    if secret is None or not _check_owner(secret, user_uid):
        return {}
    return secret_contents(secret)


async def write_user_secret(api: ApiClient, user: Json, name: str, data: Contents) -> None:
    """`user`: the User resource. Raises Blocked if the present Secret belongs to no User, or the
    API server rejects the new one; SecretUnusable if the operator may not read it.
    """
    metadata = user["metadata"]
    live = await get_secret(api, metadata["namespace"], name)
    if live is not None:
        _check_owner(live, metadata["uid"])
    owned = {
        "name": name,
        "namespace": metadata["namespace"],
        "labels": names.resource_labels(user, "user"),
        "ownerReferences": [owner_reference(user) | {"controller": True}],
    }
    try:
        await api.apply(secret_object(owned, data))
    except ApiError as error:
        raise Blocked.by_rejection(error) from error


def _check_owner(secret: Json, user_uid: str) -> bool:
    """True if the Secret belongs to this User. False if it belongs to another User, which is taken
    for a deleted one of the same name: Kubernetes is about to delete its Secret too. Raises Blocked
    if it belongs to no User.
    """
    name, owners = secret["metadata"]["name"], secret["metadata"].get("ownerReferences") or []
    users = [it for it in owners if it["kind"] == "User"]
    if not is_managed(secret) or not users:
        message = (
            f"Secret {name} exists and was not created for a User: delete it, or create this User again with another "
            "secretName"
        )
        raise Blocked(Stalled("NameConflict", message))
    return any(it["uid"] == user_uid for it in users)
