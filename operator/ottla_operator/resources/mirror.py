"""Mirror: topics of one cluster, copied to another by the brokers of the target."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ottla_operator.resources.common import ObjectRef, Quantity, Resource, Status
from ottla_operator.resources.model import Model, Rule, Transition, exactly_one

Pattern = Annotated[str, Field(min_length=1, max_length=249)]


class Credentials(Model):
    """How the target's brokers log in at the source."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "TLS"] = Field(
        description="Kafka's name of the SASL mechanism, or TLS for a client certificate."
    )
    secret_ref: ObjectRef = Field(description="A Secret with username and password, or tls.crt and tls.key.")


class SourceTls(Model):
    """Encryption of the connection to the source."""

    ca_secret_ref: ObjectRef | None = Field(
        default=None,
        description="A Secret whose ca.crt signed the source's certificates; without it, the system's authorities.",
    )


class MirrorSource(Model):
    """Where records come from: any cluster that speaks Kafka's protocol."""

    bootstrap: str | None = Field(
        default=None,
        min_length=3,
        max_length=1024,
        description="Addresses of some of its brokers: host:port,host:port.",
    )
    cluster_ref: ObjectRef | None = Field(
        default=None, description="A Cluster of the same namespace, instead of addresses."
    )
    tls: SourceTls | None = Field(default=None, description="Encrypts the connection.")
    credentials: Credentials | None = Field(default=None, description="Logs in.")

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        exactly_one(
            "bootstrap", "clusterRef", message="a source is named by bootstrap or by clusterRef, by exactly one of them"
        ),
    )


class MirrorTarget(Model):
    """Where records go."""

    cluster_ref: ObjectRef = Field(description="The Cluster whose brokers do the copying.")


class Sync(Model):
    """What is copied beside records."""

    configs: bool | None = Field(default=None, description="Topic settings; true when not set.")
    groups: bool | None = Field(default=None, description="Committed offsets of the chosen groups; true when not set.")
    acls: bool | None = Field(default=None, description="Access rules of the chosen topics; false when not set.")


class MirrorSpec(Model):
    """What is copied, from where to where, and how."""

    source: MirrorSource = Field(description="Where records come from.")
    target: MirrorTarget = Field(description="Where records go. Never changes.")
    topics: Annotated[list[Pattern], Field(min_length=1, max_length=256)] = Field(
        description="Topics to copy: names, or patterns with * for any letters. A pattern with a leading ! "
        "takes topics out again.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    groups: Annotated[list[Pattern], Field(max_length=256)] | None = Field(
        default=None,
        description="Consumer groups whose offsets are copied: names or patterns as for topics.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    naming: Literal["Identity", "Prefix"] | None = Field(
        default=None, description="What copies are called: the same (when not set), or prefix + name."
    )
    prefix: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        pattern=r"^[a-zA-Z0-9._-]+$",
        description="naming Prefix: what goes before the name, such as 'west.'.",
    )
    offsets: Literal["Identical", "Appended"] | None = Field(
        default=None,
        description="Identical (when not set): the same bytes at the same offsets; the copy takes no other records. "
        "Appended: records get new offsets, so that several sources and local producers may share a topic.",
    )
    sync: Sync | None = Field(default=None, description="What is copied beside records.")
    role: Literal["Replicate", "Paused", "FailedOver"] | None = Field(
        default=None,
        description="Replicate (when not set): copy. Paused: stand still. FailedOver: stop copying "
        "and open the topics for writing; taken back by onDivergence: Truncate only.",
    )
    on_source_truncation: Literal["Stop", "Resync"] | None = Field(
        default=None,
        description="What to do when the source has lost records that were copied, or its topic was made anew. "
        "Stop (when not set): say so and stand still. Resync: throw the copy away and begin anew.",
    )
    on_divergence: Literal["Stop", "Truncate"] | None = Field(
        default=None,
        description="What to do when a topic of the target becomes a copy of what was its own copy (failback), and has records that never came there. "
        "Stop (when not set): say how many and stand still. Truncate: write them to a file beside the partition's log and cut them off; "
        "a failover whose role is set back is taken back in the same way.",
    )
    throttle: Quantity | None = Field(
        default=None,
        description="Bytes per second and broker that copying may take, such as 50M; not limited when not set.",
    )

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "(has(self.naming) && self.naming == 'Prefix') == has(self.prefix)",
            "naming: Prefix and prefix go together",
            lambda spec: (spec.get("naming") == "Prefix") == ("prefix" in spec),
            "prefix",
        ),
        Transition(
            "self.target.clusterRef.name == oldSelf.target.clusterRef.name",
            "the target cannot be changed; make a new Mirror instead",
            lambda new, old: bool(new["target"]["clusterRef"]["name"] == old["target"]["clusterRef"]["name"]),
            "target",
        ),
    )


class MirroredTopic(Model):
    """One mirrored topic."""

    topic: str = Field(description="Its name on the target.")
    state: str = Field(
        description="Replicating, Paused, Stopped, FailedOver, Failed, or Refused: it is not copied into."
    )
    why: str | None = Field(default=None, description="What is in the way.")
    lag_records: int | None = Field(default=None, description="Records that the source has and the target has not.")
    lag_seconds: float | None = Field(default=None, description="Age of the oldest of them.")
    lag_bytes: int | None = Field(
        default=None, description="About how many bytes they are: as large as those that came last."
    )
    source_epoch: int | None = Field(
        default=None, description="The source's leader epoch that was last copied, the largest among the partitions."
    )
    silent_seconds: int | None = Field(
        default=None, description="For how long the source has not answered; not there while it does."
    )


class MirrorStatus(Status):
    """How far copying is."""

    topics: list[MirroredTopic] | None = Field(
        default=None,
        description="The mirrored topics; of more than 500 those that are in trouble or furthest behind.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["topic"]},
    )
    lag_records: int | None = Field(default=None, description="Lag over all topics, in records.")
    lag_seconds: float | None = Field(default=None, description="The largest lag of a topic, in seconds.")
    lag_bytes: int | None = Field(default=None, description="Lag over all topics, in bytes, about.")
    silent_seconds: int | None = Field(
        default=None,
        description="For how long the source has not answered, the longest of a topic; not there while it does.",
    )
    role: str | None = Field(default=None, description="The role that the brokers have taken on.")


class Mirror(Resource):
    """Topics of one cluster, copied byte for byte to another by the brokers of the target."""

    kind: Literal["Mirror"]
    spec: MirrorSpec
    status: MirrorStatus | None = None
