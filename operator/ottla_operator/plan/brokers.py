"""The broker processes that a Cluster is on one machine: which there are, with which settings, on which ports.

Ids begin at 1. The first broker of a cluster gets the ports that the listeners name; every further one the next ports that nobody was
given before. The plan depends on nothing but the resources and their order, so that a second run finds every broker where it was.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from ottla_operator.resources.cluster import Cluster

HOST = "127.0.0.1"
MOST_BROKERS = 1  # of one cluster: brokers do not replicate to each other yet


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker process. `settings`: everything it is started with. `ports`: listener's name → port on 127.0.0.1."""

    cluster: str
    id: int
    folder: PurePath
    settings: Mapping[str, str]
    ports: Mapping[str, int]

    @property
    def label(self) -> str:
        return f"{self.cluster}-{self.id}"

    @property
    def address(self) -> str:
        """host:port of the first listener."""
        return f"{HOST}:{next(iter(self.ports.values()))}"

    @property
    def hash(self) -> str:
        """Names the settings: another hash means that the broker has to be started again."""
        return hashlib.sha256(json.dumps(dict(self.settings), sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Unserved:
    """A wish that brokers on one machine cannot fulfil. `field`: path in the Cluster."""

    cluster: str
    field: tuple[str | int, ...]
    why: str


def unserved(cluster: Cluster) -> tuple[Unserved, ...]:
    """What of a Cluster is passed over here, or in the way."""
    found = [
        Unserved(
            cluster.name,
            ("spec", "listeners", index),
            f"listener {it.name!r} is left out: TLS and authentication are not built yet",
        )
        for index, it in enumerate(cluster.listeners)
        if it.tls or it.authentication not in (None, "None")
    ]
    if cluster.spec.replicas > MOST_BROKERS:
        why = f"{MOST_BROKERS} broker of {cluster.spec.replicas} is started: brokers do not replicate to each other yet"
        found.append(Unserved(cluster.name, ("spec", "replicas"), why))
    if cluster.spec.authorization and cluster.spec.authorization.type != "None":
        found.append(
            Unserved(
                cluster.name,
                ("spec", "authorization"),
                "access control lists are not built yet: everybody may do everything",
            )
        )
    return tuple(found)


def plan(clusters: Iterable[Cluster], home: PurePath, most: int = MOST_BROKERS) -> tuple[BrokerPlan, ...]:
    """Every broker of every cluster. `home`: the folder that holds one folder for each cluster. `most`: brokers of one cluster."""
    taken: set[int] = set()
    return tuple(
        _broker(cluster, id_, home / cluster.name, taken, min(3, _count(cluster, most)))
        for cluster in clusters
        for id_ in range(1, _count(cluster, most) + 1)
    )


def _count(cluster: Cluster, most: int) -> int:
    return min(cluster.spec.replicas, most)


def _broker(cluster: Cluster, id_: int, home: PurePath, taken: set[int], copies: int) -> BrokerPlan:
    ports = {
        listener.name: _next_free(listener.port, taken)
        for listener in cluster.listeners
        if not listener.tls and listener.authentication in (None, "None")
    }
    folder = home / str(id_)
    settings = {
        # The brokers' own topic wants three of them unless told otherwise.
        "offsets.topic.replication.factor": str(copies),
        **cluster.config,
        "node.id": str(id_),
        "listeners": ",".join(f"{name.upper()}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name.upper()}:PLAINTEXT" for name in ports),
        "inter.broker.listener.name": next(iter(ports), "plain").upper(),
        "log.dirs": str(folder / "data"),
        "register": f"file:{home / 'register.json'}",
    }
    return BrokerPlan(cluster.name, id_, folder, settings, ports)


def _next_free(port: int, taken: set[int]) -> int:
    while port in taken:
        port += 1
    taken.add(port)
    return port
