"""The resources that kopf's watches have shown: the index that loops look into. Just what is needed of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_operator.resources.model import Json


class Key(NamedTuple):
    """Of a Cluster, a Pipeline or a Mirror."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(slots=True)
class Known:
    clusters: dict[Key, Json] = field(default_factory=dict)
    topics: dict[Key, dict[str, Json]] = field(default_factory=dict)
    """By their Cluster's key and their own name."""
    pipelines: dict[Key, Json] = field(default_factory=dict)
    mirrors: dict[Key, Json] = field(default_factory=dict)

    def every(self, kind: str) -> list[Json]:
        """All of a kind, by its name."""
        of_kind = {"Cluster": self.clusters, "Pipeline": self.pipelines, "Mirror": self.mirrors}
        if kind == "Topic":
            return [it for of_cluster in self.topics.values() for it in of_cluster.values()]
        return list(of_kind[kind].values())

    def see_cluster(self, body: Mapping[str, Json], *, gone: bool) -> Key | None:
        """Whose loop has to look, if any."""
        return _see(self.clusters, body, gone)

    def see_pipeline(self, body: Mapping[str, Json], *, gone: bool) -> Key | None:
        return _see(self.pipelines, body, gone)

    def see_mirror(self, body: Mapping[str, Json], *, gone: bool) -> Key | None:
        return _see(self.mirrors, body, gone)

    def see_topic(self, body: Mapping[str, Json], *, gone: bool) -> Key | None:
        it = slim(body)
        key = Key(it["metadata"]["namespace"], str(((it["spec"] or {}).get("clusterRef") or {}).get("name")))
        of_cluster = self.topics.setdefault(key, {})
        name = it["metadata"]["name"]
        if gone:
            of_cluster.pop(name, None)
        elif of_cluster.get(name) == it:
            return None
        else:
            of_cluster[name] = it
        if not of_cluster:
            del self.topics[key]
        return key


def _see(known: dict[Key, Json], body: Mapping[str, Json], gone: bool) -> Key | None:
    it = slim(body)
    key = Key(it["metadata"]["namespace"], it["metadata"]["name"])
    if gone:
        known.pop(key, None)
    elif known.get(key) == it:
        return None
    else:
        known[key] = it
    return key


def slim(body: Mapping[str, Json]) -> Json:
    metadata = body["metadata"]
    wanted = ("name", "namespace", "uid", "generation", "creationTimestamp", "deletionTimestamp")
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "metadata": {key: metadata[key] for key in wanted if key in metadata},
        "spec": _plain(body.get("spec")),
        "status": _plain(body.get("status")) or {},
    }


def _plain(it: Json) -> Json:
    if isinstance(it, Mapping):
        return {key: _plain(value) for key, value in it.items()}
    return [_plain(value) for value in it] if isinstance(it, list | tuple) else it
