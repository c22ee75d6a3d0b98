"""Cluster: brokers that store topics together."""

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from ottla_operator.resources.cluster_console import Console
from ottla_operator.resources.cluster_listener import Listener, Port
from ottla_operator.resources.cluster_status import ClusterStatus
from ottla_operator.resources.cluster_tls import Tls
from ottla_operator.resources.common import (
    TIME,
    ConfigValues,
    Duration,
    IntOrString,
    PodTemplate,
    Quantity,
    Resource,
    format_setting,
    is_time,
    parse_quantity,
)
from ottla_operator.resources.model import Json, Model, Rule, Transition, at_most_one, doc, listed

DEFAULT_REGISTRY_PORT: Final = 8081
MAX_BROKERS: Final = 1000
NODE_LABEL: Final = "kubernetes.io/hostname"


class Storage(Model, frozen=True):
    """Disk of each broker."""

    size: Annotated[
        Quantity,
        doc("Size of each broker's disk, such as 10Gi. It can be increased, not decreased. Ignored by `ottla up`."),
    ]
    class_: Annotated[
        Annotated[str, Meta(max_length=253)] | None,
        doc("StorageClass of the PersistentVolumeClaims. Immutable. Defaults to the cluster's default class."),
    ] = field(default=None, name="class")
    delete_claim: Annotated[
        bool | None,
        doc(
            "Whether PersistentVolumeClaims, and with them all records, are deleted: all with the Cluster, and that of "
            "a broker when the broker is removed. Defaults to false."
        ),
    ] = None

    rules = (
        Transition(
            "quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
            "storage size cannot be decreased",
            lambda new, old: parse_quantity(new["size"]) >= parse_quantity(old["size"]),
            "size",
        ),
        Transition(
            "has(self.class) == has(oldSelf.class) && (!has(self.class) || self.class == oldSelf.class)",
            "the storage class is immutable",
            lambda new, old: new.get("class") == old.get("class"),
            "class",
        ),
    )


class Resources(Model, frozen=True):
    """CPU and memory of each broker, as in a Pod."""

    requests: Annotated[dict[str, IntOrString] | None, doc("Resources that the scheduler reserves.")] = None
    limits: Annotated[dict[str, IntOrString] | None, doc("Resources that the container must not exceed.")] = None


class Rack(Model, frozen=True):
    """Source of the brokers' rack, by which replicas are spread."""

    topology_key: Annotated[
        str, Meta(max_length=317, description="Node label that names the rack, such as topology.kubernetes.io/zone.")
    ]


class Roll(Model, frozen=True):
    """Rolling restarts after changes of image or settings."""

    max_unavailable: Annotated[
        Annotated[int, Meta(ge=1, le=100)] | None,
        doc("Number of brokers that may be unavailable at once. Partitions stay writable regardless. Defaults to 1."),
    ] = None
    timeout: Annotated[
        Duration | None,
        doc(
            "Time for a broker to become ready after its start. Then the Cluster is Stalled, and no ready broker is "
            "restarted while maxUnavailable brokers are not ready. Defaults to 10m, with `ottla up` to 30s."
        ),
    ] = None


class Rebalance(Model, frozen=True):
    """Reassignment of partitions between brokers."""

    on_scale: Annotated[
        bool | None,
        doc(
            "Whether partitions are spread to brokers that are added. Partitions are always moved off brokers before "
            "they are removed. Defaults to true."
        ),
    ] = None
    throttle: Annotated[
        Quantity | None,
        doc("Bytes per second that each broker may use for reassignment, such as 50M. Defaults to no limit."),
    ] = None


class Authorization(Model, frozen=True):
    """Authorization of requests."""

    type: Annotated[Literal["None", "ACL"], doc("None: every request is allowed. ACL: access control lists decide.")]
    super_users: Annotated[
        Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=100)] | None,
        doc("Principals that are allowed everything, such as User:admin.", listed("set")),
    ] = None


class SchemaRegistry(Model, frozen=True):
    """The schema registry, which every broker serves with the TLS and logins of one listener."""

    enabled: Annotated[bool | None, doc("Whether brokers serve it. Defaults to true.")] = None

    port: Annotated[Port | None, doc("Port of the REST interface. Defaults to 8081.")] = None
    listener: Annotated[
        Annotated[str, Meta(max_length=25)] | None,
        doc("Name of the listener whose TLS and authentication hold for the registry. Defaults to the first."),
    ] = None


class ClusterSpec(Model, frozen=True):
    """Desired state of the cluster."""

    replicas: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_BROKERS,
            description="Number of brokers. `kubectl scale` changes it. "
            "Partitions are moved off brokers before they are removed.",
        ),
    ]
    version: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        doc("Ottla release, which is the tag of the image. Ignored by `ottla up`. Defaults to the operator's release."),
    ] = None
    image: Annotated[
        Annotated[str, Meta(max_length=512)] | None,
        doc("Image of the brokers. Excludes version. Ignored by `ottla up`."),
    ] = None
    listeners: Annotated[
        Annotated[list[Listener], Meta(min_length=1, max_length=8)] | None,
        doc(
            "Addresses that clients connect to. Defaults to one listener of type Internal on port 9092, without TLS "
            "and authentication.",
            listed("map", "name"),
        ),
    ] = None
    storage: Annotated[Storage | None, doc("Disk of each broker. Required on Kubernetes, ignored by `ottla up`.")] = (
        None
    )
    config: Annotated[
        ConfigValues | None,
        doc(
            "Broker configuration by Kafka name, such as num.partitions or log.retention.ms. Dynamic settings are "
            "altered in place; other changes cause a rolling restart. A setting that brokers would not start with, "
            "or that follows from the rest of the spec, is refused before any broker is restarted."
        ),
    ] = None
    resources: Annotated[
        Resources | None,
        doc(
            "CPU and memory of each broker. Ignored by `ottla up`. Defaults to requests of 100m CPU and 256Mi memory, "
            "without limits."
        ),
    ] = None
    log_format: Annotated[
        Literal["text", "json"] | None,
        doc(
            "Format of the brokers' log lines: text, or json for one JSON object per line, with the fields of the "
            "request. Defaults to text. Ignored by `ottla up`."
        ),
    ] = None
    pod_template: Annotated[PodTemplate | None, doc("Additions to the brokers' pods. Ignored by `ottla up`.")] = None
    rack: Annotated[Rack | None, doc("Spreads brokers and replicas over failure domains. Ignored by `ottla up`.")] = (
        None
    )
    brokers_per_node: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_BROKERS)] | None,
        doc(
            "Number of brokers that may share one node. The pod of a further broker stays pending until there is "
            "another node. A change restarts brokers one after the other. Ignored by `ottla up`. Defaults to no limit: "
            "pods are spread evenly over nodes as far as possible."
        ),
    ] = None
    roll: Annotated[Roll | None, doc("Rolling restarts.")] = None
    restart_at: Annotated[
        Annotated[str, Meta(max_length=64, pattern=TIME)] | None,
        doc(
            "Restarts every broker once, one after the other, when this time has come (RFC 3339), such as "
            "2026-01-31T12:00:00Z. Another time restarts them again.",
            {"format": "date-time"},
        ),
    ] = None
    rotate_passwords_at: Annotated[
        Annotated[str, Meta(max_length=64, pattern=TIME)] | None,
        doc(
            "Replaces the passwords that brokers and the operator log in with among themselves, without a restart, "
            "when this time has come (RFC 3339), such as 2026-01-31T12:00:00Z. Another time replaces them again.",
            {"format": "date-time"},
        ),
    ] = None
    paused: Annotated[
        bool | None,
        doc(
            "While true, the operator changes nothing of this Cluster and reports that in its conditions. "
            "Brokers keep running. Defaults to false."
        ),
    ] = None
    rebalance: Annotated[Rebalance | None, doc("Reassignment of partitions when brokers are added or removed.")] = None
    tls: Annotated[Tls | None, doc("Certificates. Required if a listener has tls: true.")] = None
    authorization: Annotated[Authorization | None, doc("Authorization of requests. Defaults to type None.")] = None

    schema_registry: Annotated[
        SchemaRegistry | None,
        doc(
            "Serves a schema registry at every broker; {} for the defaults. Defaults to none on Kubernetes, and to {} "
            "with `ottla up`, if the extra ottla[registry] is installed."
        ),
    ] = None

    console: Annotated[
        Console | None,
        doc(
            "Serves the console at every broker; {} for the defaults. Defaults to console.enable in config; without "
            "that, brokers serve it with `ottla up` and not on Kubernetes."
        ),
    ] = None

    rules = (
        at_most_one("version", "image", message="version and image exclude each other: an image has its own version"),
        Rule(
            "!has(self.listeners) || has(self.tls) || self.listeners.all(l, !has(l.tls) || !l.tls)",
            "a listener with tls: true needs spec.tls, which names the certificates",
            lambda spec: "tls" in spec or not any(it.get("tls") for it in _objects(spec.get("listeners"))),
            "tls",
        ),
        Rule(
            "!has(self.listeners) || self.listeners.all(l, self.listeners.exists_one(m, m.port == l.port))",
            "two listeners have the same port",
            lambda spec: (
                len({it.get("port") for it in _objects(spec.get("listeners"))}) == len(_objects(spec.get("listeners")))
            ),
            "listeners",
        ),
        Rule(
            "!has(self.authorization) || self.authorization.type != 'ACL' || (has(self.listeners) && "
            "self.listeners.all(l, has(l.authentication) && l.authentication != 'None'))",
            "authorization type ACL needs authentication SCRAM or TLS on every listener: clients without a login would "
            "have the rights of brokers",
            lambda spec: (
                spec.get("authorization", {}).get("type") != "ACL"
                or (
                    ("listeners" in spec)
                    and all(it.get("authentication", "None") != "None" for it in _objects(spec["listeners"]))
                )
            ),
            "authorization",
        ),
        Rule(
            "!has(self.console) || !has(self.console.oidc) || (has(self.listeners) && "
            "self.listeners.exists(l, has(l.authentication) && l.authentication != 'None'))",
            "console.oidc needs a listener with authentication SCRAM or TLS: the console of an open cluster has no "
            "logins",
            lambda spec: (
                "oidc" not in spec.get("console", {})
                or any(it.get("authentication", "None") != "None" for it in _objects(spec.get("listeners")))
            ),
            "console",
        ),
        Rule(
            None,
            f"brokersPerNode excludes a constraint for {NODE_LABEL} in topologySpreadConstraints of podTemplate: both "
            "say how brokers are spread over nodes",
            lambda spec: "brokersPerNode" not in spec or NODE_LABEL not in _spread_keys(spec),
            "brokersPerNode",
        ),
        Rule(
            None,
            "restartAt is not a valid date and time",
            lambda spec: "restartAt" not in spec or is_time(spec["restartAt"]),
            "restartAt",
        ),
        Rule(
            None,
            "rotatePasswordsAt is not a valid date and time",
            lambda spec: "rotatePasswordsAt" not in spec or is_time(spec["rotatePasswordsAt"]),
            "rotatePasswordsAt",
        ),
    )


def _objects(value: Json) -> list[dict[str, Json]]:
    return [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []


def _spread_keys(spec: Json) -> set[Json]:
    """The topology keys of podTemplate's constraints."""
    pod_spec = spec.get("podTemplate", {}).get("spec", {})
    return {it.get("topologyKey") for it in _objects(pod_spec.get("topologySpreadConstraints"))}


class Cluster(Resource, frozen=True):
    """Brokers that store topics together and serve Kafka clients."""

    kind: Literal["Cluster"]
    spec: ClusterSpec
    status: ClusterStatus | None = None

    @property
    def listeners(self) -> tuple[Listener, ...]:
        return tuple(self.spec.listeners or (Listener(name="plain", port=9092),))

    @property
    def schema_registry_port(self) -> int | None:
        """None without a registry."""
        registry = self.spec.schema_registry
        return None if registry is None or registry.enabled is False else registry.port or DEFAULT_REGISTRY_PORT

    @property
    def schema_registry_listener(self) -> str:
        """Name of the listener whose TLS and logins the registry has, in capitals as brokers name
        it.
        """
        registry = self.spec.schema_registry
        return (registry.listener if registry is not None and registry.listener else self.listeners[0].name).upper()

    @property
    def registry_has_tls(self) -> bool:
        return any(it.tls for it in self.listeners if it.name.upper() == self.schema_registry_listener)

    @property
    def config(self) -> dict[str, str]:
        """`spec.config` with values as properties files carry them."""
        return {name: format_setting(value) for name, value in (self.spec.config or {}).items()}
