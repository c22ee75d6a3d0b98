"""Cluster: brokers that together keep topics."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ottla_operator.resources.common import (
    Amount,
    Duration,
    ObjectRef,
    PlainObject,
    Quantity,
    Resource,
    Settings,
    Status,
    format_setting,
    parse_quantity,
)
from ottla_operator.resources.model import Json, Model, Rule, Transition, at_most_one

# Settings that the operator derives from the rest of the spec; in `config` they could only contradict it.
DERIVED = (
    "node.id",
    "broker.id",
    "broker.rack",
    "listeners",
    "advertised.listeners",
    "log.dir",
    "log.dirs",
    "register",
    "cluster.id",
)
Port = Annotated[int, Field(ge=1, le=65535)]


class Listener(Model):
    """An address that clients connect to."""

    name: str = Field(
        min_length=1,
        max_length=11,
        pattern=r"^[a-z][a-z0-9]*$",
        description="Its name: small letters and digits. It appears in capitals in the brokers' listeners setting.",
    )
    port: Port = Field(description="The port that every broker listens on; with `ottla up`, the first broker's port.")
    type: Literal["Internal", "NodePort", "LoadBalancer"] | None = Field(
        default=None,
        description="Who reaches it. Internal (when not set): clients in the Kubernetes cluster. NodePort: "
        "clients outside, by the nodes' "
        "addresses. LoadBalancer: clients outside, by one load balancer for each broker.",
    )
    tls: bool | None = Field(
        default=None, description="Whether the connection is encrypted; needs spec.tls. Without it, it is not."
    )
    authentication: Literal["None", "SCRAM", "TLS"] | None = Field(
        default=None,
        description="How clients say who they are: not at all (when not set), by user and password, or by "
        "their certificate.",
    )
    node_port: Port | None = Field(default=None, description="NodePort only: the fixed port of the bootstrap service.")
    advertised_host: str | None = Field(
        default=None,
        max_length=253,
        description="The host name that clients are told instead of the one found; {id} stands for the broker's id.",
    )

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "!has(self.authentication) || self.authentication != 'TLS' || (has(self.tls) && self.tls)",
            "authentication TLS needs tls: true on the same listener",
            lambda it: it.get("authentication") != "TLS" or it.get("tls") is True,
            "authentication",
        ),
        Rule(
            "!has(self.nodePort) || (has(self.type) && self.type == 'NodePort')",
            "nodePort needs type: NodePort",
            lambda it: "nodePort" not in it or it.get("type") == "NodePort",
            "nodePort",
        ),
    )


class Storage(Model):
    """The disk of each broker."""

    size: Quantity = Field(
        description="Space for each broker, such as 10Gi. It may grow and never shrinks. `ottla up` takes the "
        "disk as it is."
    )
    class_: str | None = Field(
        default=None,
        alias="class",
        max_length=253,
        description="StorageClass of the volume claims; without it, the Kubernetes cluster's default. Never changes.",
    )
    delete_claim: bool | None = Field(
        default=None,
        description="Whether the volume claims, and so all records, are deleted with the Cluster. Without it, "
        "they are kept.",
    )

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Transition(
            "quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
            "storage can grow but never shrink",
            lambda new, old: parse_quantity(new["size"]) >= parse_quantity(old["size"]),
            "size",
        ),
        Transition(
            "has(self.class) == has(oldSelf.class) && (!has(self.class) || self.class == oldSelf.class)",
            "the storage class of existing volumes cannot be changed",
            lambda new, old: new.get("class") == old.get("class"),
            "class",
        ),
    )


class Resources(Model):
    """CPU and memory of each broker, as in a Pod."""

    requests: dict[str, Amount] | None = Field(default=None, description="What is set aside for it.")
    limits: dict[str, Amount] | None = Field(default=None, description="What it may not exceed.")


class PodMetadata(Model):
    """Labels and annotations that every broker's pod gets beside the operator's own."""

    labels: dict[str, str] | None = Field(default=None, description="Labels.")
    annotations: dict[str, str] | None = Field(default=None, description="Annotations.")


class PodTemplate(Model):
    """Things that every broker's pod gets beside what the operator sets."""

    metadata: PodMetadata | None = Field(default=None, description="Labels and annotations.")
    spec: PlainObject | None = Field(
        default=None,
        description="Fields of a PodSpec, merged over the operator's own: tolerations, affinity, nodeSelector, "
        "priorityClassName, and so on.",
    )


class Rack(Model):
    """How brokers learn where they stand, so that replicas are spread."""

    topology_key: str = Field(
        max_length=317, description="The node label that names the rack, such as topology.kubernetes.io/zone."
    )


class Roll(Model):
    """How brokers are restarted one after the other when image, settings or certificates change."""

    max_unavailable: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="How many brokers may be away at once; 1 when not set. Partitions are kept writable in any case.",
    )
    timeout: Duration | None = Field(
        default=None,
        description="How long one broker may take to come back before the roll stops and says so; 10m when not set.",
    )


class Rebalance(Model):
    """How partitions move between brokers."""

    on_scale: bool | None = Field(
        default=None,
        description="Whether partitions are spread to brokers that are added; true when not set. Before "
        "brokers are taken away, partitions always move off them.",
    )
    throttle: Quantity | None = Field(
        default=None,
        description="Bytes per second and broker that moving may take, such as 50M; not limited when not set.",
    )


class Tls(Model):
    """Certificates of the listeners with tls: true."""

    secret_ref: ObjectRef = Field(
        description="A Secret of type kubernetes.io/tls: tls.crt, tls.key and, for client certificates, "
        "ca.crt. Brokers take renewed certificates by a roll."
    )


class Authorization(Model):
    """Who may do what."""

    type: Literal["None", "ACL"] = Field(
        description="None: everybody may do everything. ACL: what the cluster's access control lists allow."
    )
    super_users: list[Annotated[str, Field(max_length=256)]] | None = Field(
        default=None,
        max_length=100,
        description="Principals that may do everything, such as User:admin.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


class ClusterSpec(Model):
    """What the cluster should be."""

    replicas: int = Field(
        ge=1,
        le=1000,
        description="How many brokers. `kubectl scale` changes it; partitions move before brokers are taken away.",
    )
    version: str | None = Field(
        default=None,
        max_length=64,
        description="Ottla's release, which picks the image; without it, the operator's own.",
    )
    image: str | None = Field(
        default=None, max_length=512, description="The brokers' image, instead of the one that `version` picks."
    )
    listeners: Annotated[list[Listener], Field(min_length=1, max_length=8)] | None = Field(
        default=None,
        description="Addresses that clients connect to. Without them, one: internal, port 9092, neither "
        "encrypted nor authenticated.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    storage: Storage | None = Field(
        default=None, description="The disk of each broker. Kubernetes needs it; `ottla up` does not."
    )
    config: Settings | None = Field(
        default=None,
        description="Broker settings under Kafka's names, such as num.partitions or log.retention.ms. Those "
        "that can change while running do; others cause a roll.",
    )
    resources: Resources | None = Field(default=None, description="CPU and memory of each broker.")
    pod_template: PodTemplate | None = Field(
        default=None, description="Things that every broker's pod gets beside what the operator sets."
    )
    rack: Rack | None = Field(default=None, description="Spreads brokers and replicas over failure zones.")
    roll: Roll | None = Field(default=None, description="How brokers are restarted.")
    rebalance: Rebalance | None = Field(
        default=None, description="How partitions move when brokers are added or taken away."
    )
    tls: Tls | None = Field(default=None, description="Certificates; needed when a listener has tls: true.")
    authorization: Authorization | None = Field(
        default=None, description="Who may do what; without it, everybody may do everything."
    )

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        at_most_one("version", "image", message="set version or image, not both: an image has its own version"),
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
            None,
            f"these settings follow from the rest of the spec and cannot be set in config: {', '.join(DERIVED)}",
            lambda spec: not set(spec.get("config") or {}) & set(DERIVED),
            "config",
        ),
    )


def _objects(value: Json) -> list[dict[str, Json]]:
    return [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []


class BrokerStatus(Model):
    """One broker."""

    id: int = Field(description="Its node.id.")
    ready: bool = Field(description="Whether it serves.")
    version: str | None = Field(default=None, description="The release it runs.")
    config_hash: str | None = Field(default=None, description="Names the settings it was started with.")


class Blocker(Model):
    """A partition that would lose its ability to take writes if the next broker were restarted now."""

    topic: str = Field(description="Its topic.")
    partition: int = Field(description="Its number.")
    isr: list[int] = Field(description="Brokers whose replica is in sync.")
    min_isr: int = Field(description="How many must be in sync (min.insync.replicas).")


class RollStatus(Model):
    """A rolling restart that is under way."""

    pending: list[int] | None = Field(default=None, description="Brokers still to be restarted.")
    current: int | None = Field(default=None, description="The broker that is being restarted.")
    blocked_by: list[Blocker] | None = Field(default=None, description="What it waits for, at most a hundred of it.")


class ReassignmentStatus(Model):
    """Partitions that are moving."""

    moved: int = Field(description="Partitions that have arrived.")
    total: int = Field(description="Partitions that move in all.")
    bytes: int | None = Field(default=None, description="Bytes still to be copied.")


class ClusterStatus(Status):
    """What the cluster is."""

    replicas: int | None = Field(default=None, description="Brokers that exist.")
    ready_replicas: int | None = Field(default=None, description="Brokers that serve.")
    selector: str | None = Field(
        default=None, description="Label selector of the brokers' pods, for the scale subresource."
    )
    version: str | None = Field(default=None, description="The release that all brokers run; empty during an upgrade.")
    cluster_id: str | None = Field(default=None, description="The cluster's id, as clients see it.")
    brokers: list[BrokerStatus] | None = Field(
        default=None,
        description="The brokers.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
    )
    controller: int | None = Field(default=None, description="The broker that is the active controller.")
    bootstrap: dict[str, str] | None = Field(default=None, description="Address for clients, for each listener.")
    under_replicated: int | None = Field(
        default=None, description="Partitions with fewer replicas in sync than they should have."
    )
    roll: RollStatus | None = Field(default=None, description="A rolling restart that is under way.")
    reassignment: ReassignmentStatus | None = Field(default=None, description="Partitions that are moving.")


class Cluster(Resource):
    """Brokers that together keep topics and serve Kafka clients."""

    kind: Literal["Cluster"]
    spec: ClusterSpec
    status: ClusterStatus | None = None

    @property
    def listeners(self) -> tuple[Listener, ...]:
        return tuple(self.spec.listeners or (Listener(name="plain", port=9092),))

    @property
    def config(self) -> dict[str, str]:
        """The wished settings as a properties file carries them."""
        return {name: format_setting(value) for name, value in (self.spec.config or {}).items()}
