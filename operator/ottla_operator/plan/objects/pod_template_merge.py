"""Merges a resource's podTemplate into the operator's pods."""

from collections.abc import Mapping
from typing import Final

from ottla_operator.resources.common import PodTemplate
from ottla_operator.resources.model import Json

# The key that tells the members of a list apart, as in Kubernetes' strategic merge; `name` for the
# others.
_MERGE_KEYS: Final = {
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "hostAliases": "ip",
}
_MERGED_LISTS: Final = frozenset({"containers", "initContainers", "volumes", "env", "imagePullSecrets", *_MERGE_KEYS})


def apply_pod_template(
    pod: Json, template: PodTemplate | None, container_names: Mapping[str, str] | None = None
) -> Json:
    """`pod`: metadata and spec. `container_names`: name of a container in the template → the
    operator's. The operator's labels, which selectors need, and its annotations override the
    template's."""
    if template is None:
        return pod
    spec = strategic_merge(pod["spec"], _with_container_names(template.spec or {}, container_names or {}))
    metadata = dict(pod["metadata"])
    if template.metadata and template.metadata.labels:
        metadata["labels"] = {**template.metadata.labels, **(metadata.get("labels") or {})}
    if template.metadata and template.metadata.annotations:
        metadata["annotations"] = {**template.metadata.annotations, **(metadata.get("annotations") or {})}
    return {**pod, "metadata": metadata, "spec": spec}


def _with_container_names(spec: Json, container_names: Mapping[str, str]) -> Json:
    if not container_names or "containers" not in spec:
        return spec
    renamed = [{**it, "name": container_names.get(it.get("name"), it.get("name"))} for it in spec["containers"]]
    return {**spec, "containers": renamed}


def strategic_merge(ours: Json, theirs: Json, field: str = "") -> Json:
    """Merges a resource's podTemplate into the operator's: objects field by field, lists of named
    items by their names; other lists are replaced, and null removes a field."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        merged = {key: strategic_merge(ours.get(key), it, key) for key, it in theirs.items() if it is not None}
        return {**{key: it for key, it in ours.items() if key not in theirs}, **merged}
    if isinstance(ours, list) and isinstance(theirs, list) and field in _MERGED_LISTS:
        key = _MERGE_KEYS.get(field, "name")
        over = {it.get(key): it for it in theirs}
        kept = [strategic_merge(it, over.pop(it.get(key))) if it.get(key) in over else it for it in ours]
        return [*kept, *over.values()]
    return theirs
