"""The records of the metadata log, declared once: what can be said about a cluster, and how it is written.

Each record of `__cluster_metadata` holds one of these as JSON (`{"type": "topic", …}`), so that a person can read the log with any
consumer. Names follow Kafka's own metadata records (KIP-631). A reader that meets a type or a field that it does not know is older
than the cluster's metadata, and says so instead of guessing.
"""

from typing import Final
from uuid import UUID

import msgspec

from ottla_broker.wire.errors import ErrorCode, KafkaError

METADATA_TOPIC: Final = "__cluster_metadata"
NO_LEADER: Final = -1


class Endpoint(msgspec.Struct, frozen=True):
    """Where a listener is reached. `protocol`: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""

    host: str
    port: int
    protocol: str = "PLAINTEXT"


class RegisterBrokerRecord(msgspec.Struct, frozen=True, tag="register-broker"):
    """A broker process has come, fenced. Its epoch is the offset of this record, or in a snapshot what `epoch` says. `directories`: ids of its
    log.dirs."""

    broker: int
    incarnation: UUID
    endpoints: dict[str, Endpoint]
    rack: str | None = None
    directories: tuple[UUID, ...] = ()
    http: str | None = None
    epoch: int = -1


class BrokerRegistrationChangeRecord(msgspec.Struct, frozen=True, tag="broker-change", omit_defaults=True):
    """Fenced: it may lead nothing and joins no ISR. Shutting down: it is about to stop, and is not given anything more to lead. `directories`:
    those of its log.dirs that work; None: as they were."""

    broker: int
    epoch: int
    fenced: bool
    shutting_down: bool = False
    directories: tuple[UUID, ...] | None = None


class UnregisterBrokerRecord(msgspec.Struct, frozen=True, tag="unregister-broker"):
    broker: int
    epoch: int


class LeaderChangeRecord(msgspec.Struct, frozen=True, tag="controller-change"):
    """The first record of each epoch of the metadata log: `broker` leads it, and is the active controller."""

    broker: int
    epoch: int


class TopicRecord(msgspec.Struct, frozen=True, tag="topic"):
    name: str
    id: UUID


class RemoveTopicRecord(msgspec.Struct, frozen=True, tag="remove-topic"):
    id: UUID


class PartitionRecord(msgspec.Struct, frozen=True, tag="partition", omit_defaults=True):
    """The whole state of one partition. `directories` runs beside `replicas`; `eligible`, `last_known`: eligible leader replicas, and those that were
    in sync or eligible until they lost power (KIP-966)."""

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


class ConfigRecord(msgspec.Struct, frozen=True, tag="config"):
    """`resource_type`: 2 topic, 4 broker (an empty name is the cluster-wide default). A value of None removes the key."""

    resource_type: int
    name: str
    key: str
    value: str | None


class ProducerIdsRecord(msgspec.Struct, frozen=True, tag="producer-ids"):
    """Every producer id below `next` has been handed out."""

    next: int


class MirroredTopicRecord(msgspec.Struct, frozen=True, tag="mirrored-topic", omit_defaults=True):
    """A topic that is a copy of another cluster's topic. `mirror`: the name of the mirror (its settings are configs of resource type 101);
    `failed_over`: copying has ended, and the topic is open for writing; `adopted`: it had records of its own before, of which its source
    is a copy that has failed over, and which says up to where both are one; `origins`: ids of the clusters by way of which its records come, the source's among them."""

    topic: UUID
    mirror: str
    source_topic: str
    source_id: UUID
    failed_over: bool = False
    adopted: bool = False
    origins: tuple[str, ...] = ()


class MirroredPartitionRecord(msgspec.Struct, frozen=True, tag="mirrored-partition", omit_defaults=True):
    """What is known of a mirrored partition's source, whole. `epochs`: leader epoch of the source → offset from which on our records are of it;
    written before a record of that epoch is. `stopped`: why nothing more is copied, in words; empty: it goes on. Of a topic that has failed over:
    `end`: the offset from which on the records are our own, and below which every one is acknowledged (producers wait for that to be known);
    `end_epoch`: our leader epoch then; `source_end`: what the source's high watermark was when last seen; −1: not known. A copy that has an `end` and has not
    failed over had, and is to be joined to its source again. Of a topic that was adopted, or joined again: `joined`: the offset up to which it and its source
    are one log, −1 while that is not known; no record of our leader epoch `joined_epoch` or an older one stays at or above it."""

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
    """A topic of another cluster whose records are appended to `topic`. `mirror`, `source_topic`, `source_id`, `origins`: as of a mirrored topic.
    `producer_id`: by which the records that were copied from it are known in the logs, and with them how far it was copied; `partitions`: how many it has;
    `stopped`: why nothing is copied, in words; `ended`: copying has ended for good; `carried`: it was copied by another cluster, of whose topic this one is, or
    was, an identical copy: what was copied there is known here by the same producer id, and goes on from there when a mirror here begins."""

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
    """What is known of one partition of such a source, whole. `epochs`: leader epoch of the source → offset of the source from which on its records
    are of it; written before a record of that epoch is appended here. `stopped`: why nothing more is copied, in words."""

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
    | ProducerIdsRecord
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
    """KafkaError UNSUPPORTED_VERSION when the value is not one of ours (a newer Ottla's, or Apache Kafka's own metadata log)."""
    try:
        record: MetadataRecord = _decoder.decode(value)
        return record
    except msgspec.MsgspecError as reason:
        raise KafkaError(
            ErrorCode.unsupported_version, f"not a metadata record that this version knows: {reason}"
        ) from reason
