"""Secrets that a resource refers to, read one by one by name: the operator watches none."""

import base64
from collections.abc import Iterable

from ottla_operator.kube.api import FORBIDDEN, ApiClient, ApiError
from ottla_operator.kube.kinds import SECRET
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable, secret_values
from ottla_operator.plan.user_secret import Contents
from ottla_operator.resources.model import Json


async def read_secrets(api: ApiClient, namespace: str, names: Iterable[str]) -> dict[str, ObservedSecret]:
    """The Secrets that exist, by name. Raises SecretUnusable where the operator may not read
    one.
    """
    found: dict[str, ObservedSecret] = {}
    for name in names:
        if (secret := await get_secret(api, namespace, name)) is not None:
            metadata = secret["metadata"]
            found[name] = ObservedSecret(secret_values(secret), f"{metadata['uid']}/{metadata['resourceVersion']}")
    return found


async def get_secret(api: ApiClient, namespace: str, name: str) -> Json | None:
    """None if it does not exist. Raises SecretUnusable if the operator may not read it."""
    try:
        return await api.get(SECRET, namespace, name)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        raise SecretUnusable(
            f"the operator is not allowed to read Secret {name}: install its chart with rbac.secrets=true, "
            "or grant it get on this Secret"
        ) from error


def secret_object(metadata: Json, data: Contents, type_: str = "Opaque") -> Json:
    return {
        "apiVersion": SECRET.api,
        "kind": SECRET.name,
        "type": type_,
        "metadata": metadata,
        "data": encode_data(data),
    }


def encode_data(data: Contents) -> dict[str, str]:
    """The values as the `data` of a Secret: in base64."""
    encoded = ((key, value.encode() if isinstance(value, str) else value) for key, value in data.items())
    return {key: base64.b64encode(value).decode() for key, value in encoded}
