"""Secrets of `ottla up`: manifests in the same files as the resources, as for `kubectl apply`."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import Final

from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable, secret_values
from ottla_operator.resources import validation
from ottla_operator.resources.model import Json

API_VERSION, KIND = "v1", "Secret"
_SALT: Final = os.urandom(16)  # so that the version does not reveal the values


def is_secret(data: Json) -> bool:
    return isinstance(data, dict) and (data.get("apiVersion"), data.get("kind")) == (API_VERSION, KIND)


def validate_secret(data: Json) -> Iterator[validation.Problem]:
    """Problems of a Secret; they contain nothing of its values."""
    metadata = data.get("metadata")
    if not (isinstance(metadata, dict) and isinstance(metadata.get("name"), str)):
        yield validation.Problem(("metadata",), "a Secret needs a name")
        return
    for part in ("data", "stringData"):
        if not isinstance(data.get(part, {}), dict):
            yield validation.Problem((part,), "must be an object of keys and values")
            return
    try:
        secret_values(data)
    except SecretUnusable as error:
        yield validation.Problem(("data",), str(error))


def read_secrets(secrets: Iterable[Json]) -> dict[str, ObservedSecret]:
    """The Secrets by name. Their versions change with their values, and reveal none of them."""
    found: dict[str, ObservedSecret] = {}
    for data in secrets:
        values = secret_values(data)
        text = json.dumps(values, sort_keys=True).encode()
        version = hashlib.blake2b(text, key=_SALT, digest_size=12).hexdigest()
        found[data["metadata"]["name"]] = ObservedSecret(values, version)
    return found
