"""The resources that kopf's watches have shown: the index that loops look into. Just what is needed of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from ottla_operator.resources.model import Json

MOST_GONE: Final = 10_000  # of a Cluster: who stands by sees Topics go, and never looks

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
    gone: dict[Key, dict[str, bool]] = field(default_factory=dict)
    """By their Cluster's key: uids of Topics that were seen to go, and whether each said last that its topic goes with it. Until it is noted down (`Topics`)."""
    pipelines: dict[Key, Json] = field(default_factory=dict)
    mirrors: dict[Key, Json] = field(default_factory=dict)

    def every(self) -> list[Json]:
        by_key = (self.clusters, self.pipelines, self.mirrors)
        topics = [it for of_cluster in self.topics.values() for it in of_cluster.values()]
        return [*(it for bodies in by_key for it in bodies.values()), *topics]

    def see(self, body: Mapping[str, Json], *, gone: bool) -> Key | None:
        """As a watch shows it. Whose loop has to look, if any."""
        it = slim(body)
        key = _key(it)
        if it["kind"] == "Topic" and gone:
            seen = self.gone.setdefault(key, {})
            seen[it["metadata"]["uid"]] = (it["spec"] or {}).get("deletionPolicy") == "Delete"
            if len(seen) > MOST_GONE:
                del seen[next(iter(seen))]
        return key if self._change(key, it, gone) else None

    def forget(self, it: Json) -> Key:
        """One that is known is not there any more, and nobody saw it go: what it said last is not known. Whose loop has to look."""
        key = _key(it)
        self._change(key, it, gone=True)
        return key

    def _change(self, key: Key, it: Json, gone: bool) -> bool:
        if it["kind"] != "Topic":
            by_key = {"Cluster": self.clusters, "Pipeline": self.pipelines, "Mirror": self.mirrors}[it["kind"]]
            return _change(by_key, key, it, gone)
        of_cluster = self.topics.setdefault(key, {})
        changed = _change(of_cluster, it["metadata"]["name"], it, gone)
        if not of_cluster:
            del self.topics[key]
        return changed


def _key(it: Json) -> Key:
    """Of the loop that has to do with it."""
    namespace = it["metadata"]["namespace"]
    if it["kind"] == "Topic":
        return Key(namespace, str(((it["spec"] or {}).get("clusterRef") or {}).get("name")))
    return Key(namespace, it["metadata"]["name"])


def _change(known: dict[K, Json], key: K, it: Json, gone: bool) -> bool:
    """Whether somebody has to look. What goes takes nothing of the same name with it that has come in its place."""
    if gone:
        if key in known and known[key]["metadata"]["uid"] == it["metadata"]["uid"]:
            del known[key]
        return True
    before, known[key] = known.get(key), it
    return before is None or _without_version(before) != _without_version(it)


def _without_version(it: Json) -> Json:
    """What is looked at; who else wrote what does not matter."""
    return {**it, "metadata": {key: value for key, value in it["metadata"].items() if key != "resourceVersion"}}


def slim(body: Mapping[str, Json]) -> Json:
    metadata = body["metadata"]
    wanted = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
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
