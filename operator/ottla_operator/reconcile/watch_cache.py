"""The resources that watches have shown, reduced to what reconcilers read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from ottla_operator.resources.model import Json

MAX_DELETED_TOPICS: Final = 10_000
"""Of one Cluster. It bounds the memory of a standby operator, which sees Topics deleted and does
not reconcile them.
"""

GROUPED_KINDS: Final = ("Topic", "Group", "Schema", "User")
"""Kinds whose resources are reconciled together, all of one Cluster."""

K = TypeVar("K")


class Key(NamedTuple):
    """Names what is reconciled as a unit: a Cluster, Pipeline, Mirror or AccessPolicy. The Topics,
    Groups, Schemas or Users of a Cluster have its key."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(slots=True)
class WatchCache:
    """`topics`, `groups`, `schemas`, `users`: by their Cluster's key and their own name.
    `deleted_topics`: by their Cluster's key, the uids of Topics whose deletion a watch has shown,
    and whether their last deletionPolicy was Delete; entries stay until the TopicReconciler has
    recorded them.
    """

    clusters: dict[Key, Json] = field(default_factory=dict)
    topics: dict[Key, dict[str, Json]] = field(default_factory=dict)
    deleted_topics: dict[Key, dict[str, bool]] = field(default_factory=dict)
    groups: dict[Key, dict[str, Json]] = field(default_factory=dict)
    schemas: dict[Key, dict[str, Json]] = field(default_factory=dict)
    users: dict[Key, dict[str, Json]] = field(default_factory=dict)
    pipelines: dict[Key, Json] = field(default_factory=dict)
    mirrors: dict[Key, Json] = field(default_factory=dict)
    policies: dict[Key, Json] = field(default_factory=dict)

    def all(self) -> list[Json]:
        by_key = (self.clusters, self.pipelines, self.mirrors, self.policies)
        grouped = [
            it
            for by_cluster in self.grouped().values()
            for of_cluster in by_cluster.values()
            for it in of_cluster.values()
        ]
        return [*(it for resources in by_key for it in resources.values()), *grouped]

    def grouped(self) -> dict[str, dict[Key, dict[str, Json]]]:
        """Resources of GROUPED_KINDS by kind, by their Cluster's key and by name."""
        return {"Topic": self.topics, "Group": self.groups, "Schema": self.schemas, "User": self.users}

    def count(self) -> dict[str, int]:
        """Number of resources by kind."""
        return {
            "Cluster": len(self.clusters),
            **{kind: sum(map(len, by_cluster.values())) for kind, by_cluster in self.grouped().items()},
            "Pipeline": len(self.pipelines),
            "Mirror": len(self.mirrors),
            "AccessPolicy": len(self.policies),
        }

    def update(self, body: Mapping[str, Json], *, is_deleted: bool) -> Key | None:
        """Updates the cache with an object from a watch. Returns the key to reconcile; None if
        nothing changed that reconcilers read.
        """
        resource = reduce_resource(body)
        key = reconcile_key(resource)
        if resource["kind"] == "Topic" and is_deleted:
            deleted = self.deleted_topics.setdefault(key, {})
            deleted[resource["metadata"]["uid"]] = (resource["spec"] or {}).get("deletionPolicy") == "Delete"
            if len(deleted) > MAX_DELETED_TOPICS:
                del deleted[next(iter(deleted))]
        return key if self._replace(key, resource, is_deleted) else None

    def forget(self, resource: Json) -> Key:
        """Drops a resource whose deletion no watch has shown, so that its last deletionPolicy is
        unknown. Returns the key to reconcile."""
        key = reconcile_key(resource)
        self._replace(key, resource, is_deleted=True)
        return key

    def _replace(self, key: Key, resource: Json, is_deleted: bool) -> bool:
        kind = resource["kind"]
        if kind not in GROUPED_KINDS:
            by_key = {
                "Cluster": self.clusters,
                "Pipeline": self.pipelines,
                "Mirror": self.mirrors,
                "AccessPolicy": self.policies,
            }[kind]
            return _replace_in(by_key, key, resource, is_deleted)
        by_cluster = self.grouped()[kind]
        of_cluster = by_cluster.setdefault(key, {})
        changed = _replace_in(of_cluster, resource["metadata"]["name"], resource, is_deleted)
        if not of_cluster:
            del by_cluster[key]
        return changed


def is_terminating(resource: Json) -> bool:
    return "deletionTimestamp" in resource["metadata"]


def resource_key(resource: Json) -> Key:
    return Key(resource["metadata"]["namespace"], resource["metadata"]["name"])


def reconcile_key(resource: Json) -> Key:
    """The key under which a resource is reconciled. For GROUPED_KINDS it is that of their
    Cluster."""
    if resource["kind"] not in GROUPED_KINDS:
        return resource_key(resource)
    cluster = ((resource["spec"] or {}).get("clusterRef") or {}).get("name")
    return Key(resource["metadata"]["namespace"], str(cluster))


def _replace_in(cached: dict[K, Json], key: K, resource: Json, is_deleted: bool) -> bool:
    """True if a reconcile is needed. The deletion of a resource does not drop a newer one with its
    name.
    """
    if is_deleted:
        if key in cached and cached[key]["metadata"]["uid"] == resource["metadata"]["uid"]:
            del cached[key]
        return True
    before, cached[key] = cached.get(key), resource
    return before is None or _without_version(before) != _without_version(resource)


def _without_version(resource: Json) -> Json:
    return {**resource, "metadata": {k: v for k, v in resource["metadata"].items() if k != "resourceVersion"}}


def reduce_resource(body: Mapping[str, Json]) -> Json:
    """A resource without fields that no reconciler reads, such as managedFields. Owner references
    are kept only for Pipelines, which a Topic can own.
    """
    metadata = body["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
    lists = [
        key
        for key in ("finalizers", *(("ownerReferences",) if body["kind"] == "Pipeline" else ()))
        if metadata.get(key)
    ]
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "metadata": {key: metadata[key] for key in kept if key in metadata}
        | {key: _plain(metadata[key]) for key in lists},
        "spec": _plain(body.get("spec")),
        "status": _plain(body.get("status")) or {},
    }


def _plain(value: Json) -> Json:
    """kopf's views as dicts and lists."""
    if isinstance(value, Mapping):
        return {key: _plain(it) for key, it in value.items()}
    return [_plain(it) for it in value] if isinstance(value, list | tuple) else value
