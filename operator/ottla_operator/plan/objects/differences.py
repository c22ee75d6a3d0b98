"""Finds differences between a live object and the desired one in fields that the operator sets.
Fields that other managers or Kubernetes' defaults add are ignored.

Invariant: after the desired object was applied nothing differs, so a converged object is never
written again.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Final

from ottla_operator.resources.common import parse_quantity
from ottla_operator.resources.model import Json

APPLIED_HASH: Final = "ottla.dev/applied"
"""Annotation with the hash of what was applied last, so that a field that the operator no longer
sets counts as a difference."""

_QUANTITIES: Final = frozenset({"requests", "limits"})


def with_applied_hash(desired: Json) -> Json:
    """The object to apply, with its hash."""
    metadata = desired["metadata"]
    annotations = {**metadata.get("annotations", {}), APPLIED_HASH: _digest(desired)}
    return {**desired, "metadata": {**metadata, "annotations": annotations}}


def find_difference(desired: Json, live: Json | None) -> str | None:
    """Path of the first field that differs; None if none does, "" if there is no live object.
    `desired`: with its hash.
    """
    if live is None:
        return ""
    return next(_differences(desired, live, ()), None)


def _digest(desired: Json) -> str:
    return hashlib.sha256(json.dumps(desired, sort_keys=True).encode()).hexdigest()[:12]


def _differences(desired: Json, live: Json, path: tuple[str, ...]) -> Iterator[str]:
    match desired, live:
        case dict(), dict():
            for key, value in desired.items():
                if key in live or value not in ({}, [], None):
                    yield from _differences(value, live.get(key), (*path, key))
        case list(), list() if path[-1:] == ("ownerReferences",):  # others may own it too
            by_uid = {it.get("uid"): it for it in live}
            for owner in desired:
                yield from _differences(owner, by_uid.get(owner.get("uid")), (*path, str(owner.get("uid"))))
        case list(), list():
            if len(desired) != len(live):
                yield ".".join(path)
            for index, (one, other) in enumerate(zip(desired, live, strict=False)):
                yield from _differences(one, other, (*path, str(index)))
        case _ if desired != live and not _is_same_amount(desired, live, path):
            yield ".".join(path)


def _is_same_amount(desired: Json, live: Json, path: tuple[str, ...]) -> bool:
    """True for equal quantities: Kubernetes stores them in its own form, such as 1000m as 1."""
    if len(path) < 2 or path[-2] not in _QUANTITIES:
        return False
    try:
        return parse_quantity(str(desired)) == parse_quantity(str(live))
    except ValueError:
        return False
