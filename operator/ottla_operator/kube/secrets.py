"""Secrets that a resource refers to, read one by one by name: the operator stores none and watches
none.
"""

from collections.abc import Iterable

from ottla_operator.kube.api import FORBIDDEN, ApiClient, ApiError
from ottla_operator.kube.kinds import SECRET
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable, secret_values


async def read_secrets(api: ApiClient, namespace: str, names: Iterable[str]) -> dict[str, ObservedSecret]:
    """The Secrets that exist, by name. Raises SecretUnusable where the operator may not read
    one.
    """
    found: dict[str, ObservedSecret] = {}
    for name in names:
        try:
            secret = await api.get(SECRET, namespace, name)
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            raise SecretUnusable(
                f"the operator may not read Secret {name}: install its chart with rbac.secrets=true, "
                "or grant it get on this "
                "Secret"
            ) from error
        if secret is not None:
            metadata = secret["metadata"]
            found[name] = ObservedSecret(secret_values(secret), f"{metadata['uid']}/{metadata['resourceVersion']}")
    return found
