"""The broker processes that a Cluster is on one machine: which there are, with which settings, on which ports.

Ids begin at 1. The first broker of a cluster gets the ports that the listeners name; every further one the next ports that nobody was
given before, all clusters' second brokers before any third. The plan depends on nothing but the resources, their order and how many brokers
there are, so that a second run finds every broker where it was.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from ottla_operator.plan import listener_certificates as tls
from ottla_operator.resources.cluster import Cluster

HOST = "127.0.0.1"
KEYSTORE = "keystore.pem"
MOST_COPIES = 3  # of what nobody has said how many copies it should have
OFFSETS_FACTOR = "offsets.topic.replication.factor"
NO_LOGINS = "logins by user and password (SCRAM) are not built yet; allowed: None, and TLS for certificates of clients"
BETWEEN_BROKERS = "inter_broker"  # no listener of a Cluster can be called so: theirs have no underscore


@dataclass(frozen=True, slots=True)
class BrokerProcessPlan:
    """One broker process. `settings`: everything it is started with. `ports`: listener's name → port on 127.0.0.1. `open_listener`: where brokers and `ottla
    up` itself speak to it, without TLS."""

    cluster: str
    id: int
    folder: PurePath
    settings: Mapping[str, str]
    ports: Mapping[str, int]
    plaintext_listener: str

    @property
    def label(self) -> str:
        return f"{self.cluster}-{self.id}"

    @property
    def address(self) -> str:
        """host:port of a listener without TLS."""
        return f"{HOST}:{self.ports[self.plaintext_listener]}"

    @property
    def tls_address(self) -> str:
        """host:port of a listener with TLS; empty when none has."""
        protocols = dict(it.split(":") for it in self.settings["listener.security.protocol.map"].split(","))
        return next((f"{HOST}:{port}" for name, port in self.ports.items() if protocols[name.upper()] == "SSL"), "")


@dataclass(frozen=True, slots=True)
class UnsupportedField:
    """A wish that brokers on one machine cannot fulfil. `field`: path in the Cluster."""

    cluster: str
    field: tuple[str | int, ...]
    reason: str


def unsupported_fields(cluster: Cluster) -> tuple[UnsupportedField, ...]:
    """What of a Cluster is passed over here, or in the way."""
    found = [
        UnsupportedField(
            cluster.name,
            ("spec", "listeners", index),
            f"listener {it.name!r} is left out: {NO_LOGINS}",
        )
        for index, it in enumerate(cluster.listeners)
        if it.authentication == "SCRAM"
    ]
    if cluster.spec.authorization and cluster.spec.authorization.type != "None":
        found.append(
            UnsupportedField(
                cluster.name,
                ("spec", "authorization"),
                "access control lists are not built yet: everybody may do everything",
            )
        )
    return tuple(found)


def plan_broker_processes(
    clusters: Sequence[Cluster],
    home: PurePath,
    at_least: Mapping[str, int] | None = None,
    certificates: Mapping[str, PurePath] | None = None,
) -> tuple[BrokerProcessPlan, ...]:
    """Every broker of every cluster, clusters in their order. `home`: the folder that holds one folder for each cluster. `at_least`: cluster → how
    many brokers are to be planned even where `replicas` is smaller, because they are still there. `certificates`: cluster → the folder of those of its
    listeners, where they have TLS."""
    taken: set[int] = set()
    counts = {it.name: max(it.spec.replicas, (at_least or {}).get(it.name, 0)) for it in clusters}
    made = [
        _broker(cluster, id_, home / cluster.name, taken, (certificates or {}).get(cluster.name))
        for id_ in range(1, max(counts.values(), default=0) + 1)
        for cluster in clusters
        if id_ <= counts[cluster.name]
    ]
    return tuple(plan for cluster in clusters for plan in made if plan.cluster == cluster.name)


def replication_defaults(replicas: int) -> dict[str, str]:
    """Settings that suit a cluster of so many brokers, for a resource that does not say otherwise: with three, one may be lost and all topics stay
    readable and writable. Nothing is defaulted into the resource itself."""
    copies = min(MOST_COPIES, replicas)
    return {
        "default.replication.factor": str(copies),
        OFFSETS_FACTOR: str(copies),
        "min.insync.replicas": str(max(1, copies - 1)),
    }


def broker_count_for_defaults(replicas: int, spread: Iterable[int]) -> int:
    """The number of brokers that settings suit. `spread`: brokers over which partitions were last spread. While there are more of them than are wished,
    partitions are still to be moved off some: what suits fewer brokers holds once they are gone, and never if they cannot go."""
    return max(replicas, *spread, 0)


def with_replication_defaults(plan: BrokerProcessPlan, cluster: Cluster, brokers: int) -> BrokerProcessPlan:
    """The same broker with settings that suit so many, where the resource does not say otherwise."""
    chosen = {key: value for key, value in replication_defaults(brokers).items() if key not in cluster.config}
    return replace(plan, settings={**plan.settings, **chosen})


def _broker(
    cluster: Cluster, id_: int, home: PurePath, taken: set[int], certificates: PurePath | None
) -> BrokerProcessPlan:
    served = [it for it in cluster.listeners if it.authentication != "SCRAM"]
    ports = {it.name: _next_free(it.port, taken) for it in served}
    protocols = {name: protocol for name, protocol in tls.security_protocols(cluster).items() if name.lower() in ports}
    open_listener = next((it.name for it in served if not it.tls), BETWEEN_BROKERS)
    if open_listener not in ports:
        ports[open_listener] = _next_free(cluster.listeners[0].port, taken)
        protocols[open_listener.upper()] = "PLAINTEXT"
    folder = home / str(id_)
    settings = {
        **replication_defaults(cluster.spec.replicas),
        **cluster.config,
        "node.id": str(id_),
        "listeners": ",".join(f"{name.upper()}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": open_listener.upper(),
        "log.dirs": str(folder / "data"),
        "register": f"file:{home / 'register.json'}",
    }
    if certificates is not None:
        settings["ssl.keystore.location"] = str(certificates / KEYSTORE)
        if tls.requires_client_certificates(cluster):
            settings |= {
                "ssl.truststore.location": str(certificates / tls.AUTHORITIES),
                **tls.client_auth_settings(cluster),
            }
    return BrokerProcessPlan(cluster.name, id_, folder, settings, ports, open_listener)


def _next_free(port: int, taken: set[int]) -> int:
    while port in taken:
        port += 1
    taken.add(port)
    return port
