"""Mirror: topics of one cluster that the brokers of another copy."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from ottla_operator.resources.common import ObjectRef, Quantity, Resource, Status
from ottla_operator.resources.model import Model, Rule, Transition, doc, exactly_one, listed

Pattern = Annotated[str, Meta(min_length=1, max_length=249)]


class SourceCredentials(Model, frozen=True):
    """How the target's brokers authenticate to the source."""

    mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "TLS"],
        doc("SASL mechanism, or TLS for a client certificate."),
    ]
    secret_ref: Annotated[
        ObjectRef, doc("Secret with username and password, or with tls.crt and tls.key, or that of a User.")
    ]


class SourceTls(Model, frozen=True):
    """TLS of the connection to the source."""

    ca_secret_ref: Annotated[
        ObjectRef | None,
        doc(
            "Secret whose ca.crt verifies the source's certificates. Defaults to the system's certificate authorities."
        ),
    ] = None


class MirrorSource(Model, frozen=True):
    """Cluster that records are copied from: any that speaks the Kafka protocol."""

    bootstrap: Annotated[
        Annotated[str, Meta(min_length=3, max_length=1024)] | None,
        doc("Bootstrap addresses: host:port,host:port."),
    ] = None
    cluster_ref: Annotated[ObjectRef | None, doc("Cluster in the same namespace. Excludes bootstrap.")] = None
    tls: Annotated[
        SourceTls | None,
        doc(
            "Encrypts the connection. Defaults to no encryption, except with mechanism TLS, or where the User of the "
            "mirror needs it."
        ),
    ] = None
    credentials: Annotated[
        SourceCredentials | None,
        doc(
            "Authentication to the source. Defaults to a User mirror-<name> that the operator creates, if tls is not "
            "set either and every listener of the Cluster in clusterRef asks for a login; otherwise to none."
        ),
    ] = None

    rules = (exactly_one("bootstrap", "clusterRef", message="a source has exactly one of bootstrap and clusterRef"),)


class MirrorTarget(Model, frozen=True):
    """Cluster that records are copied to."""

    cluster_ref: Annotated[ObjectRef, doc("Cluster whose brokers fetch the records.")]


SCHEMAS_TOPIC: Final = "_schemas"
"""Topic of a schema registry."""


class Sync(Model, frozen=True):
    """Data that is copied besides records."""

    configs: Annotated[bool | None, doc("Whether topic configurations are copied. Defaults to true.")] = None
    groups: Annotated[bool | None, doc("Whether committed offsets of spec.groups are copied. Defaults to true.")] = None
    acls: Annotated[
        bool | None,
        doc(
            "Whether access rules for the names of mirrored topics are copied, without the right to write, as "
            "MirrorMaker 2 does. The mirror's user at the source needs Describe on the cluster. Defaults to false."
        ),
    ] = None
    schemas: Annotated[
        bool | None,
        doc(
            "Whether the schemas of the source's registry are copied with their subjects, versions and ids, by "
            "mirroring its topic _schemas. The target's registry cannot register others until a failover, and "
            "must not have any. Needs naming Identity and offsets Identical. Defaults to whether topics match _schemas."
        ),
    ] = None


class MirrorSpec(Model, frozen=True):
    """Desired state of the mirror."""

    source: Annotated[MirrorSource, doc("Cluster that records are copied from.")]
    target: Annotated[MirrorTarget, doc("Cluster that records are copied to. Immutable.")]
    topics: Annotated[
        list[Pattern],
        Meta(
            min_length=1,
            max_length=256,
            description="Topics to copy: names, or patterns in which * matches any characters. "
            "A pattern with a leading ! excludes topics.",
            extra_json_schema=listed("atomic"),
        ),
    ]
    groups: Annotated[
        Annotated[list[Pattern], Meta(max_length=256)] | None,
        doc("Consumer groups whose committed offsets are copied: names or patterns, as in topics.", listed("atomic")),
    ] = None
    users: Annotated[
        Annotated[list[Pattern], Meta(max_length=256)] | None,
        doc(
            "Users whose SCRAM credentials are copied, so that they log in at the target with their passwords: names "
            "or patterns, as in topics. Users that the target has itself are left alone. The source must be Ottla; the "
            "mirror's user there needs Describe on the cluster and DescribeTokens on these users.",
            listed("atomic"),
        ),
    ] = None
    naming: Annotated[
        Literal["Identity", "Prefix"] | None,
        doc(
            "How mirrored topics are named. Identity: as at the source. Prefix: spec.prefix and the name at the "
            "source. Defaults to Identity."
        ),
    ] = None
    prefix: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[a-zA-Z0-9._-]+$")] | None,
        doc("Prefix of mirrored topics' names, such as 'west.'. Required by naming Prefix."),
    ] = None
    offsets: Annotated[
        Literal["Identical", "Appended"] | None,
        doc(
            "Offsets of copied records. Identical: as at the source, byte for byte; the topic accepts no other "
            "records. Appended: new offsets, so that several sources and local producers can share a topic. "
            "Defaults to Identical."
        ),
    ] = None
    sync: Annotated[Sync | None, doc("Data that is copied besides records.")] = None
    role: Annotated[
        Literal["Replicate", "Paused", "FailedOver"] | None,
        doc(
            "Replicate: copy. Paused: stop copying and keep the topics read-only. FailedOver: stop copying and make "
            "the topics writable; only onDivergence: Truncate allows going back. Defaults to Replicate."
        ),
    ] = None
    on_source_truncation: Annotated[
        Literal["Stop", "Resync"] | None,
        doc(
            "Reaction when the source has lost records that were copied, or re-created the topic. Stop: stop copying "
            "and report it. Resync: delete the copy and start again. Defaults to Stop."
        ),
    ] = None
    on_divergence: Annotated[
        Literal["Stop", "Truncate"] | None,
        doc(
            "Reaction when a topic of the target is to become the copy of its own copy (failback) and has records "
            "that were never copied there, or when the role is set back after a failover. Stop: report it and stop. "
            "Truncate: write the topic's own records to a file beside the partition's log and truncate the log. "
            "Defaults to Stop."
        ),
    ] = None
    throttle: Annotated[
        Quantity | None,
        doc("Bytes per second that each broker may fetch for the mirror, such as 50M. Defaults to no limit."),
    ] = None

    rules = (
        Rule(
            "(has(self.naming) && self.naming == 'Prefix') == has(self.prefix)",
            "naming: Prefix and prefix need each other",
            lambda spec: (spec.get("naming") == "Prefix") == ("prefix" in spec),
            "prefix",
        ),
        Rule(
            "!has(self.sync) || !has(self.sync.schemas) || !self.sync.schemas || "
            "((!has(self.naming) || self.naming == 'Identity') && (!has(self.offsets) || self.offsets == 'Identical'))",
            "sync.schemas needs naming: Identity and offsets: Identical",
            lambda spec: (
                not spec.get("sync", {}).get("schemas")
                or (spec.get("naming", "Identity"), spec.get("offsets", "Identical")) == ("Identity", "Identical")
            ),
            "sync",
        ),
        Transition(
            "self.target.clusterRef.name == oldSelf.target.clusterRef.name",
            "target is immutable; create a new Mirror instead",
            lambda new, old: bool(new["target"]["clusterRef"]["name"] == old["target"]["clusterRef"]["name"]),
            "target",
        ),
    )


class MirroredTopicStatus(Model, frozen=True):
    """Observed state of one mirrored topic."""

    topic: Annotated[str, doc("Name of the topic on the target.")]
    state: Annotated[
        str,
        doc("Replicating, Paused, Stopped, FailedOver, Failed, or Refused: nothing is copied into the topic."),
    ]
    why: Annotated[str | None, doc("What prevents copying.")] = None
    lag_records: Annotated[int | None, doc("Number of records that are not copied yet.")] = None
    lag_seconds: Annotated[float | None, doc("Age of the oldest record that is not copied yet.")] = None
    lag_bytes: Annotated[
        int | None, doc("Estimated size of the records that are not copied yet, from the size of recent records.")
    ] = None
    source_epoch: Annotated[
        int | None, doc("Leader epoch of the last copied record at the source; the largest of all partitions.")
    ] = None
    silent_seconds: Annotated[int | None, doc("Time since the source last responded. Not set while it responds.")] = (
        None
    )


class MirrorStatus(Status, frozen=True):
    """Observed state of the mirror."""

    topics: Annotated[
        list[MirroredTopicStatus] | None,
        doc(
            "Mirrored topics. Of more than 500, those with problems and those with the largest lag.",
            listed("map", "topic"),
        ),
    ] = None
    lag_records: Annotated[int | None, doc("Number of records that are not copied yet, over all topics.")] = None
    lag_seconds: Annotated[float | None, doc("Largest lag of a topic in seconds.")] = None
    lag_bytes: Annotated[int | None, doc("Estimated size of records that are not copied yet, over all topics.")] = None
    silent_seconds: Annotated[
        int | None, doc("Time since the source last responded; the longest of all topics. Not set while it responds.")
    ] = None
    role: Annotated[str | None, doc("Role that the brokers have assumed.")] = None


class Mirror(Resource, frozen=True):
    """Topics of one cluster that the brokers of another copy."""

    kind: Literal["Mirror"]
    spec: MirrorSpec
    status: MirrorStatus | None = None

    @property
    def topic_patterns(self) -> tuple[str, ...]:
        """Patterns of the topics that are copied. `sync.schemas` adds the topic of the schemas, or
        excludes it if false.
        """
        schemas = self.spec.sync.schemas if self.spec.sync is not None else None
        if schemas is None:
            return tuple(self.spec.topics)
        return (*self.spec.topics, SCHEMAS_TOPIC if schemas else f"!{SCHEMAS_TOPIC}")
