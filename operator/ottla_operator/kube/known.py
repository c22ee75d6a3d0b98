"""The resources that kopf's watches have shown: the index that loops look into. Just what is needed of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ottla_operator.resources.model import Json

K = TypeVar("K")


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
    staying: dict[Key, set[str]] = field(default_factory=dict)
    """Names of Topics that are gone and said last that their topics stay. The ledger may still say what they said before (`Topics`)."""
    pipelines: dict[Key, Json] = field(default_factory=dict)
    mirrors: dict[Key, Json] = field(default_factory=dict)

    def every(self) -> list[Json]:
        by_key = (self.clusters, self.pipelines, self.mirrors)
        topics = [it for of_cluster in self.topics.values() for it in of_cluster.values()]
        return [*(it for bodies in by_key for it in bodies.values()), *topics]

    def see(self, body: Mapping[str, Json], *, gone: bool) -> Key | None:
        """Whose loop has to look, if any."""
        it = slim(body)
        name = it["metadata"]["name"]
        if it["kind"] == "Topic":
            cluster = ((it["spec"] or {}).get("clusterRef") or {}).get("name")
            return self._see_topic(Key(it["metadata"]["namespace"], str(cluster)), name, it, gone)
        known = {"Cluster": self.clusters, "Pipeline": self.pipelines, "Mirror": self.mirrors}[it["kind"]]
        key = Key(it["metadata"]["namespace"], name)
        return key if _change(known, key, it, gone) else None

    def _see_topic(self, key: Key, name: str, it: Json, gone: bool) -> Key | None:
        of_cluster = self.topics.setdefault(key, {})
        changed = _change(of_cluster, name, it, gone)
        if gone and (it["spec"] or {}).get("deletionPolicy") != "Delete":
            self.staying.setdefault(key, set()).add(name)
        elif not gone and key in self.staying:
            self.staying[key].discard(name)
        if not of_cluster:
            del self.topics[key]
        return key if changed else None


def _change(known: dict[K, Json], key: K, it: Json, gone: bool) -> bool:
    """Whether somebody has to look."""
    if gone:
        known.pop(key, None)
    elif known.get(key) == it:
        return False
    else:
        known[key] = it
    return True


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
