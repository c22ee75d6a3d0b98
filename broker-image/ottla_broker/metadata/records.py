"""The records of the metadata log and their format.

The value of each record of `__cluster_metadata` is one of these types as JSON (`{"type": "topic",
…}`), readable with any consumer. Names follow Kafka's own metadata records (KIP-631). A reader
raises UNSUPPORTED_VERSION for an unknown type: it is older than the broker that wrote it. It
ignores an unknown field of a known type.
"""

from typing import Final
from uuid import UUID

import msgspec

from ottla_broker.security.acls import AccessControlEntry
from ottla_broker.security.client_quotas import QuotaEntity
from ottla_broker.security.delegation_tokens import DelegationToken
from ottla_broker.security.scram import ScramCredential
from ottla_broker.wire.errors import ErrorCode, KafkaError

METADATA_TOPIC: Final = "__cluster_metadata"
NO_LEADER: Final = -1


class Endpoint(msgspec.Struct, frozen=True):
    """The advertised address of a listener. `protocol`: PLAINTEXT, SSL, SASL_PLAINTEXT or
    SASL_SSL.
    """

    host: str
    port: int
    protocol: str = "PLAINTEXT"


class RegisterBrokerRecord(msgspec.Struct, frozen=True, tag="register-broker"):
    """A broker process registered; it is fenced at first. The broker epoch is the offset of this
    record, in a snapshot `epoch`. `directories`: ids of its log.dirs. `node`: its broker.node; a
    version that does not know it ignores it.
    """

    broker: int
    incarnation: UUID
    endpoints: dict[str, Endpoint]
    rack: str | None = None
    directories: tuple[UUID, ...] = ()
    http: str | None = None
    epoch: int = -1
    node: str | None = None


class BrokerRegistrationChangeRecord(msgspec.Struct, frozen=True, tag="broker-change", omit_defaults=True):
    """A fenced broker leads no partition and joins no ISR. One that is shutting down is not elected
    leader. `directories`: ids of the log.dirs that have not failed; None: unchanged."""

    broker: int
    epoch: int
    fenced: bool
    shutting_down: bool = False
    directories: tuple[UUID, ...] | None = None


class UnregisterBrokerRecord(msgspec.Struct, frozen=True, tag="unregister-broker"):
    broker: int
    epoch: int


class LeaderChangeRecord(msgspec.Struct, frozen=True, tag="controller-change"):
    """The first record of each epoch of the metadata log: `broker` is its leader and the active
    controller.
    """

    broker: int
    epoch: int


class TopicRecord(msgspec.Struct, frozen=True, tag="topic"):
    name: str
    id: UUID


class RemoveTopicRecord(msgspec.Struct, frozen=True, tag="remove-topic"):
    id: UUID


class PartitionRecord(msgspec.Struct, frozen=True, tag="partition", omit_defaults=True):
    """The state of one partition. `directories` has an element for each of `replicas`, or is empty
    if one of them is unknown. `eligible`: eligible leader replicas; `last_known`: replicas that
    were in the ISR or eligible until an unclean shutdown (both KIP-966); `emptied`: replicas that
    have lost their directory and have not been in the ISR since."""

    topic: UUID
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    directories: tuple[UUID, ...] = ()
    last_known: tuple[int, ...] = ()
    emptied: tuple[int, ...] = ()


class ConfigRecord(msgspec.Struct, frozen=True, tag="config"):
    """One config of a resource. The value None removes it. `resource_type`: one of
    `image.…_RESOURCE`; those of BROKER_RESOURCE with an empty `name` are cluster-wide
    defaults.
    """

    resource_type: int
    name: str
    key: str
    value: str | None


class AccessControlEntryRecord(msgspec.Struct, frozen=True, tag="acl"):
    """An access control entry was created. `id`: names it when it is removed."""

    id: UUID
    entry: AccessControlEntry


class RemoveAccessControlEntryRecord(msgspec.Struct, frozen=True, tag="remove-acl"):
    id: UUID


class UserScramCredentialRecord(msgspec.Struct, frozen=True, tag="scram", omit_defaults=True):
    """`mechanism`: Kafka's code, 1 SCRAM-SHA-256, 2 SCRAM-SHA-512. A user has one credential per
    mechanism. `mirror`: the mirror that has copied it; empty for one that was set here.
    """

    name: str
    mechanism: int
    credential: ScramCredential
    mirror: str = ""


class DelegationTokenRecord(msgspec.Struct, frozen=True, tag="delegation-token"):
    """A token was created, renewed or given another expiry. It has no secret: the token's HMAC is
    not in it.
    """

    token: DelegationToken


class RemoveDelegationTokenRecord(msgspec.Struct, frozen=True, tag="remove-delegation-token"):
    id: str


class RemoveUserScramCredentialRecord(msgspec.Struct, frozen=True, tag="remove-scram"):
    name: str
    mechanism: int


class ClientQuotaRecord(msgspec.Struct, frozen=True, tag="client-quota"):
    """One quota of an entity. The value None removes it."""

    entity: QuotaEntity
    key: str
    value: float | None


class ProducerIdsRecord(msgspec.Struct, frozen=True, tag="producer-ids"):
    """Every producer id below `next` is allocated."""

    next: int


class FeatureLevelRecord(msgspec.Struct, frozen=True, tag="feature-level"):
    """The finalized level of a feature (KIP-584)."""

    name: str
    level: int


class MirroredTopicRecord(msgspec.Struct, frozen=True, tag="mirrored-topic", omit_defaults=True):
    """A topic with the records of another cluster's topic at the same offsets. `mirror`: the
    mirror's name (its settings are configs of resource type 101); `failed_over`: mirroring has
    ended and producers may write; `adopted`: the topic had records before it became mirrored, and
    its source, which was its mirror and has failed over, knows the offset up to which both are
    identical; `origins`: ids of the clusters through which its records come, the source's among
    them.
    """

    topic: UUID
    mirror: str
    source_topic: str
    source_id: UUID
    failed_over: bool = False
    adopted: bool = False
    origins: tuple[str, ...] = ()


class MirroredPartitionRecord(msgspec.Struct, frozen=True, tag="mirrored-partition", omit_defaults=True):
    """The mirroring state of one partition. −1 stands for an unknown offset.

    `epochs`: leader epoch of the source → first offset of its records here; written before a record
    of that epoch is. `stopped`: the reason why mirroring has stopped; empty while it runs. In a
    topic that has failed over, `end` is the offset from which on the records are this cluster's own
    (all below it are committed), `end_epoch` the leader epoch at that time and `source_end` the
    source's last known high watermark. A partition with an `end` in a topic that has not failed
    over is waiting to be joined to its source again. In a topic that was adopted or failed back,
    `joined` is the offset up to which both logs are identical: no record of leader epoch
    `joined_epoch` or older remains at or above it.
    """

    topic: UUID
    partition: int
    epochs: tuple[tuple[int, int], ...] = ()
    stopped: str = ""
    end: int = -1
    source_end: int = -1
    joined: int = -1
    joined_epoch: int = -1
    end_epoch: int = -1


class AppendedSourceRecord(msgspec.Struct, frozen=True, tag="appended-source", omit_defaults=True):
    """A topic of another cluster whose records are appended to `topic`, with new offsets. `mirror`,
    `source_topic`, `source_id`, `origins`: as in MirroredTopicRecord. `producer_id`: marks its
    records in the logs, which so record the source's position; `partitions`: the source's number of
    partitions; `stopped`: the reason why mirroring has stopped; `ended`: mirroring has ended for
    good; `carried`: appended by another cluster to the topic that this one mirrors, so that the
    logs here have the same marks and a mirror here continues at the same position."""

    topic: UUID
    source_id: UUID
    mirror: str
    source_topic: str
    producer_id: int
    partitions: int
    origins: tuple[str, ...] = ()
    stopped: str = ""
    ended: bool = False
    carried: bool = False


class AppendedPartitionRecord(msgspec.Struct, frozen=True, tag="appended-partition", omit_defaults=True):
    """The mirroring state of one partition of such a source. `epochs`: leader epoch of the source →
    its first offset there; written before a record of that epoch is appended here. `stopped`: the
    reason why mirroring has stopped."""

    topic: UUID
    source_id: UUID
    partition: int
    epochs: tuple[tuple[int, int], ...] = ()
    stopped: str = ""


MetadataRecord = (
    LeaderChangeRecord
    | RegisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | ConfigRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | FeatureLevelRecord
    | MirroredTopicRecord
    | MirroredPartitionRecord
    | AppendedSourceRecord
    | AppendedPartitionRecord
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(MetadataRecord)


def encode_record(record: MetadataRecord) -> bytes:
    return _encoder.encode(record)


def decode_record(value: bytes) -> MetadataRecord:
    """Raises UNSUPPORTED_VERSION for a value of a newer Ottla or of Apache Kafka's own metadata
    log.
    """
    try:
        record: MetadataRecord = _decoder.decode(value)
        return record
    except msgspec.MsgspecError as reason:
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"not a metadata record that this version knows: {reason}; of Apache Kafka's log.dirs only the topics' "
            "partition folders can be copied",
        ) from reason
