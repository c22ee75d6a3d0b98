"""How a Cluster's podTemplate goes over the operator's own: objects field by field; lists of named things by name; other lists are replaced."""

from typing import Final

from ottla_operator.resources.model import Json

# What tells the members of a list apart, as in Kubernetes' own strategic merge.
_KEYS: Final = {
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "hostAliases": "ip",
}
_NAMED: Final = frozenset({"containers", "initContainers", "volumes", "env", "imagePullSecrets", *_KEYS})


def strategic_merge(ours: Json, theirs: Json, field: str = "") -> Json:
    """`theirs` over `ours`; null takes a field away."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        made = {key: strategic_merge(ours.get(key), value, key) for key, value in theirs.items() if value is not None}
        return {**{key: value for key, value in ours.items() if key not in theirs}, **made}
    if isinstance(ours, list) and isinstance(theirs, list) and field in _NAMED:
        return _by_key(ours, theirs, _KEYS.get(field, "name"))
    return theirs


def _by_key(ours: list[Json], theirs: list[Json], key: str) -> list[Json]:
    over = {it.get(key): it for it in theirs}
    kept = [strategic_merge(it, over.pop(it.get(key))) if it.get(key) in over else it for it in ours]
    return [*kept, *over.values()]
