"""Secrets that a resource speaks of, read one by one by name: the operator keeps none, and watches none."""

from collections.abc import Iterable
from typing import Final

from ottla_operator.kube.api import Api, ApiError
from ottla_operator.kube.kinds import SECRET
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable, secret_values

FORBIDDEN: Final = 403


async def secrets_in(api: Api, namespace: str, names: Iterable[str]) -> dict[str, ObservedSecret]:
    """By name, those that are there. Unusable where they may not be read."""
    found: dict[str, ObservedSecret] = {}
    for name in names:
        try:
            secret = await api.get(SECRET, namespace, name)
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            raise SecretUnusable(
                f"the operator may not read Secret {name}: install its chart with rbac.secrets=true, or give it the right to get this one"
            ) from error
        if secret is not None:
            metadata = secret["metadata"]
            found[name] = ObservedSecret(secret_values(secret), f"{metadata['uid']}/{metadata['resourceVersion']}")
    return found
