"""The brokers of Clusters as processes of one machine: their ids, settings and ports.

Ids begin at 1. The first broker of a cluster gets the ports that its listeners name, or the next
free ones where a cluster before it has them. Every further broker gets the next free ports, all
clusters' second brokers before any third. The plan depends only on the resources, their order and
the number of brokers that exist, so a second run finds every broker where it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from ottla_operator.plan import listener_certificates as tls
from ottla_operator.plan.console import ENABLE_SETTING, console_settings, find_oidc
from ottla_operator.plan.inter_broker_login import (
    OPTIONAL_SETTING,
    InterBrokerLogin,
    listener_protocol,
    login_settings,
    plan_login,
)
from ottla_operator.plan.listener_security import is_open, security_protocols, security_settings
from ottla_operator.plan.settings import (
    BOOTSTRAP_SERVERS,
    CLUSTER_FOUND,
    Settings,
    replication_defaults,
)
from ottla_operator.resources.cluster import DEFAULT_REGISTRY_PORT, Cluster

FIRST_BROKER = 1
HOST = "127.0.0.1"
KEYSTORE = "keystore.pem"
CONSOLE_FILES = "console"
CONSOLE_WRITE = "console.write"
CONSOLE_PORT_DISTANCE = 1000
"""Distance from the port of a broker's first listener to that of its console."""
KEYSTORE_LOCATION = "ssl.keystore.location"
REGISTRY_LISTENER = "schema.registry.listener"
INTER_BROKER = "inter_broker"  # no listener of a Cluster can have this name: theirs have no underscore


@dataclass(frozen=True, slots=True)
class BrokerProcessPlan:
    """One broker process. `settings`: everything it is started with, except the addresses of the
    console and of a registry whose port the spec does not name. `ports`: on 127.0.0.1 by listener.
    `inter_broker_listener`: the one that other brokers and `ottla up` connect to. `console_port`,
    `registry_port`: ports of its console and schema registry, unless another program has them. None
    if it serves none, or for a registry whose address is in the settings.
    """

    cluster: str
    id: int
    folder: PurePath
    settings: Settings
    ports: Mapping[str, int]
    inter_broker_listener: str
    console_port: int | None = None
    registry_port: int | None = None

    @property
    def label(self) -> str:
        return f"{self.cluster}-{self.id}"

    @property
    def address(self) -> str:
        """host:port of the inter-broker listener."""
        return f"{HOST}:{self.ports[self.inter_broker_listener]}"

    def address_with(self, protocol: str) -> str:
        """host:port of a listener with this security protocol; empty if there is none."""
        protocols = dict(it.split(":") for it in self.settings["listener.security.protocol.map"].split(","))
        return next((f"{HOST}:{port}" for name, port in self.ports.items() if protocols[name.upper()] == protocol), "")


def inter_broker_address(settings: Settings) -> str:
    """host:port of a broker's listener for other brokers; empty if the settings name none."""
    name = settings.get("inter.broker.listener.name", "")
    listeners = (it.split("://", 1) for it in settings.get("listeners", "").split(",") if "://" in it)
    return next((address for listener, address in listeners if listener == name), "")


def plan_broker_processes(
    clusters: Sequence[Cluster],
    home: PurePath,
    existing: Mapping[str, int] | None = None,
    certificates: Mapping[str, PurePath] | None = None,
    logins: Mapping[str, PurePath] | None = None,
    *,
    serves_registry: bool = False,
) -> tuple[BrokerProcessPlan, ...]:
    """Every broker of every cluster, in the order of clusters. `home`: holds one folder for each
    cluster. `existing`: cluster → how many brokers it has, which may be more than its spec asks
    for. `certificates`: cluster → the folder of its listeners' certificates, where they have
    TLS. `logins`: cluster → the folder of the inter-broker login, where brokers have one.
    `serves_registry`: whether clusters whose spec does not say so serve a schema registry."""
    used_ports: set[int] = set()
    counts = {it.name: max(it.spec.replicas, (existing or {}).get(it.name, 0)) for it in clusters}
    plans = [
        _plan_broker(
            cluster, id_, home / cluster.name, used_ports, _Files.of(cluster, certificates, logins), serves_registry
        )
        for id_ in range(FIRST_BROKER, max(counts.values(), default=0) + 1)
        for cluster in clusters
        if id_ <= counts[cluster.name]
    ]
    return tuple(
        plan
        for cluster in clusters
        for plan in _with_bootstrap_servers([it for it in plans if it.cluster == cluster.name])
    )


def with_replication_defaults(plan: BrokerProcessPlan, cluster: Cluster, broker_count: int) -> BrokerProcessPlan:
    """The plan with the replication defaults for this number of brokers."""
    defaults = {key: value for key, value in replication_defaults(broker_count).items() if key not in cluster.config}
    return replace(plan, settings={**plan.settings, **defaults})


def with_founding(plan: BrokerProcessPlan) -> BrokerProcessPlan:
    """The plan of a broker whose cluster does not exist yet: the first broker founds it."""
    return replace(plan, settings={**plan.settings, CLUSTER_FOUND: "true"}) if plan.id == FIRST_BROKER else plan


def with_optional_login(plan: BrokerProcessPlan, cluster: Cluster) -> BrokerProcessPlan:
    """The plan of a broker that accepts other brokers with and without a login, while some of them
    run without one."""
    optional = security_settings(cluster, InterBrokerLogin.OPTIONAL)
    return replace(plan, settings={**plan.settings, **optional, OPTIONAL_SETTING: "true"})


@dataclass(frozen=True, slots=True)
class _Files:
    """Folders of a cluster's certificates and of its inter-broker login; None where it has none."""

    certificates: PurePath | None
    login: PurePath | None

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        certificates: Mapping[str, PurePath] | None,
        logins: Mapping[str, PurePath] | None,
    ) -> "_Files":
        return cls((certificates or {}).get(cluster.name), (logins or {}).get(cluster.name))


def _with_bootstrap_servers(plans: Sequence[BrokerProcessPlan]) -> list[BrokerProcessPlan]:
    """`plans`: plans of all brokers of one cluster."""
    servers = ",".join(it.address for it in plans)
    return [replace(it, settings={**it.settings, BOOTSTRAP_SERVERS: servers}) for it in plans]


def _plan_broker(
    cluster: Cluster, id_: int, cluster_folder: PurePath, used_ports: set[int], files: _Files, serves_registry: bool
) -> BrokerProcessPlan:
    ports = {it.name: _next_free(it.port, used_ports) for it in cluster.listeners}
    protocols, login = security_protocols(cluster), plan_login(cluster, ())
    inter_broker_listener = next((it.name for it in cluster.listeners if is_open(it)), INTER_BROKER)
    if inter_broker_listener not in ports:
        ports[inter_broker_listener] = _next_free(cluster.listeners[0].port, used_ports)
        protocols[inter_broker_listener.upper()] = listener_protocol(login)
    folder = cluster_folder / str(id_)
    settings = {
        **replication_defaults(cluster.spec.replicas),
        **cluster.config,
        "node.id": str(id_),
        "listeners": ",".join(f"{name.upper()}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": inter_broker_listener.upper(),
        "log.dirs": str(folder / "data"),
        **security_settings(cluster, login),
        **login_settings(login, inter_broker_listener, str(files.login)),
        **console_settings(cluster, cluster_folder / CONSOLE_FILES),
    }
    registry, registry_port = cluster.spec.schema_registry, None
    if registry is not None and cluster.schema_registry_port is not None:
        port = _next_free(cluster.schema_registry_port, used_ports)
        settings["schema.registry.security.listener"] = cluster.schema_registry_listener
        if registry.port is None:
            registry_port = port
        else:
            settings[REGISTRY_LISTENER] = f"{HOST}:{port}"
    if files.certificates is not None:
        settings[KEYSTORE_LOCATION] = str(files.certificates / KEYSTORE)
        if tls.requires_client_certificates(cluster):
            settings["ssl.truststore.location"] = str(files.certificates / tls.AUTHORITIES)
    console_port = None
    if serves_console(cluster, settings):
        console_port = _next_free(ports[cluster.listeners[0].name] + CONSOLE_PORT_DISTANCE, used_ports)
    if serves_registry and registry is None:
        registry_port = _next_free(DEFAULT_REGISTRY_PORT, used_ports)
    return BrokerProcessPlan(
        cluster.name, id_, folder, settings, ports, inter_broker_listener, console_port, registry_port
    )


def serves_console(cluster: Cluster, settings: Settings) -> bool:
    """True unless it is disabled, or a listener requires a login and users of the console have
    none: they need a listener with SCRAM or an OpenID Connect provider.
    """
    has_passwords = any(it.authentication == "SCRAM" for it in cluster.listeners)
    needs_no_login = "authorizer.class.name" not in settings and all(
        it.authentication in (None, "None") for it in cluster.listeners
    )
    can_log_in = has_passwords or find_oidc(cluster) is not None
    return (can_log_in or needs_no_login) and settings.get(ENABLE_SETTING, "true") == "true"


def _next_free(port: int, used_ports: set[int]) -> int:
    while port in used_ports:
        port += 1
    used_ports.add(port)
    return port
