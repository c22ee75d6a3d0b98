"""The embedded protocol of consumers in classic groups: subscriptions and assignments, which
JoinGroup and SyncGroup carry as bytes.

Source: `clients/src/main/resources/common/message/ConsumerProtocol*.json` of Apache Kafka. Later
versions only add fields at the end, so they are read as the latest that is known.
"""

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla_broker.coordination.record_format import Field, RecordFormat
from ottla_broker.wire.message_reader import MalformedMessage

TopicPartitionsByName = Mapping[str, frozenset[int]]


class NamedPartitions(NamedTuple):
    topic: str
    partitions: tuple[int, ...]


class Subscription(NamedTuple):
    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[NamedPartitions, ...] = ()
    generation: int = -1
    rack_id: str | None = None


class ConsumerAssignment(NamedTuple):
    assigned: tuple[NamedPartitions, ...]
    user_data: bytes | None = None


LATEST: Final = 3

_NAMED_PARTITIONS: Final = RecordFormat(NamedPartitions, [Field("string"), Field("int32", array=True)], latest=LATEST)
_SUBSCRIPTION: Final = RecordFormat(
    Subscription,
    [
        Field("string", array=True),
        Field("bytes", nullable=True),
        Field(_NAMED_PARTITIONS, since=1, default=()),
        Field("int32", since=2, default=-1),
        Field("string", nullable=True, since=3),
    ],
    latest=LATEST,
)
_ASSIGNMENT: Final = RecordFormat(
    ConsumerAssignment, [Field(_NAMED_PARTITIONS), Field("bytes", nullable=True)], latest=LATEST
)


def read_version(data: bytes) -> int:
    """The version of a subscription or assignment; LATEST for a later one. Raises
    MalformedMessage."""
    if len(data) < 2:
        raise MalformedMessage(f"{len(data)} bytes have no version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise MalformedMessage(f"version {version} of the consumer protocol; allowed: 0 or more")
    return min(version, LATEST)


def read_subscription(data: bytes) -> Subscription:
    """Raises MalformedMessage."""
    return _SUBSCRIPTION.read(data, 2, read_version(data))


def read_subscribed_topics(subscription: bytes) -> list[str]:
    """Only the topics of a subscription of any version: they are its first field, after the version
    number (i16). Raises struct.error, UnicodeDecodeError or IndexError for other bytes.
    """
    (count,) = struct.unpack_from(">i", subscription, 2)
    at, topics = 6, []
    for _ in range(count):
        (length,) = struct.unpack_from(">h", subscription, at)
        at += 2 + length
        if length < 0 or at > len(subscription):
            raise IndexError(at)
        topics.append(subscription[at - length : at].decode())
    return topics


def read_assignment(data: bytes) -> ConsumerAssignment:
    """Parses an assignment; empty bytes are an empty one. Raises MalformedMessage."""
    return _ASSIGNMENT.read(data, 2, read_version(data)) if data else ConsumerAssignment(())


def encode_assignment(assigned: TopicPartitionsByName, version: int) -> bytes:
    """Encodes an assignment. `version`: that of the member's subscription."""
    named = tuple(NamedPartitions(topic, tuple(sorted(assigned[topic]))) for topic in sorted(assigned))
    return _ASSIGNMENT.write(ConsumerAssignment(named), version)
