"""The records of `__consumer_offsets`, in Kafka's own formats, and the partition of a coordinator's
topic that keeps a key.

Source: `group-coordinator/src/main/resources/common/message/*.json` of Apache Kafka 4.1 (KIP-915
explains why only tagged fields are added). A key begins with its type as i16, a value with its
version as i16; a null value is a tombstone. Keys of unknown types are ignored, as KIP-915 requires.
The keys of KIP-848, KIP-932 and KIP-1071 are in `consumer_group_records`, `share_group_records` and
`streams_group_records`.

Like Kafka 4.1, the broker writes offset commits in version 4 (flexible, with the topic's id as
tagged field) and group metadata in version 3.
"""

import struct
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from ottla_broker.coordination.record_format import Field, RecordFormat
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.message_writer import write_string, write_varint

T = TypeVar("T", bound=NamedTuple)

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"


class OffsetCommitKey(NamedTuple):
    group: str
    topic: str
    partition: int


class OffsetCommit(NamedTuple):
    """A committed offset: that of the next record to read. `expire_ms`: −1 unless an old client
    asked for its own retention."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: UUID | None = None


class GroupMetadataKey(NamedTuple):
    group: str


class MemberMetadata(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A generation of a classic group. `state_since_ms`: −1 in records of Kafka versions that do
    not store it.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[MemberMetadata, ...]


OFFSET_COMMIT_KEY: Final = RecordFormat(OffsetCommitKey, [Field("string"), Field("string"), Field("int32")], latest=0)
OFFSET_COMMIT: Final = RecordFormat(
    OffsetCommit,
    [
        Field("int64"),
        Field("int32", since=3, default=-1),
        Field("string"),
        Field("int64"),
        Field("int64", since=1, until=1, default=-1),
        Field("uuid", since=4, tag=0),
    ],
    latest=4,
    flexible_from=4,
)
GROUP_METADATA_KEY: Final = RecordFormat(GroupMetadataKey, [Field("string")], latest=0)
MEMBER_METADATA: Final = RecordFormat(
    MemberMetadata,
    [
        Field("string"),
        Field("string", nullable=True, since=3),
        Field("string"),
        Field("string"),
        Field("int32", since=1, default=-1),
        Field("int32"),
        Field("bytes"),
        Field("bytes"),
    ],
    latest=4,
    flexible_from=4,
)
GROUP_METADATA: Final = RecordFormat(
    GroupMetadata,
    [
        Field("string"),
        Field("int32"),
        Field("string", nullable=True),
        Field("string", nullable=True),
        Field("int64", since=2, default=-1),
        Field(MEMBER_METADATA),
    ],
    latest=4,
    flexible_from=4,
)

LEGACY_OFFSET_COMMIT_TYPE: Final = 0  # Kafka before 0.9; the key has the same layout
OFFSET_COMMIT_TYPE: Final = 1
GROUP_METADATA_TYPE: Final = 2

OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1  # the only version with an expiry time
GROUP_METADATA_VERSION: Final = 3

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_TYPE_AND_LENGTH: Final = struct.Struct(">hh")
_STATE_SINCE_AND_COUNT: Final = struct.Struct(">qi")
_TIMEOUTS_AND_LENGTH: Final = struct.Struct(">iii")
_VERSION_OFFSET_EPOCH: Final = struct.Struct(">hqi")
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"  # one tagged field, tag 0, of 16 bytes
_NO_TAGS: Final = b"\x00"


@lru_cache(maxsize=4096)  # hashed for each request of a group
def coordinator_partition(key: str, partition_count: int) -> int:
    """The partition of a coordinator's topic that keeps the state of a group id, a transactional id
    or a share-partition's coordinator key: `Utils.abs(key.hashCode())` modulo `partition_count`,
    where the absolute value of −2³¹ is 0. Kafka's partitioner of records clears the sign bit
    instead (`Utils.toPositive`)."""
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, wrapping at 32 bits, signed."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return value - (1 << 32) if value >= 1 << 31 else value


# -- encoding --------------------------------------------------------------------------------------


def encode_offset_commit_key(group: str, topic: str, partition: int) -> bytes:
    raw_group, raw_topic = group.encode(), topic.encode()
    return b"".join(
        (
            _TYPE_AND_LENGTH.pack(OFFSET_COMMIT_TYPE, len(raw_group)),
            raw_group,
            _INT16.pack(len(raw_topic)),
            raw_topic,
            _INT32.pack(partition),
        )
    )


def encode_offset_commit_value(commit: OffsetCommit) -> bytes:
    """Version 4 is written by hand: it is on the path of every OffsetCommit."""
    if commit.expire_ms >= 0:
        return OFFSET_COMMIT.write(commit, OFFSET_COMMIT_VERSION_WITH_EXPIRY)
    metadata = commit.metadata.encode()
    out = bytearray(_VERSION_OFFSET_EPOCH.pack(OFFSET_COMMIT_VERSION, commit.offset, commit.leader_epoch))
    write_varint(out, len(metadata) + 1)
    out += metadata
    out += _INT64.pack(commit.commit_ms)
    out += _NO_TAGS if commit.topic_id is None else _TOPIC_ID_TAG + commit.topic_id.bytes
    return bytes(out)


def encode_group_metadata_key(group: str) -> bytes:
    raw = group.encode()
    return _TYPE_AND_LENGTH.pack(GROUP_METADATA_TYPE, len(raw)) + raw


def encode_group_metadata_value(metadata: GroupMetadata) -> bytes:
    """Version 3 is written by hand: a large group has a thousand members in it."""
    out = bytearray(_INT16.pack(GROUP_METADATA_VERSION))
    write_string(out, metadata.protocol_type)
    out += _INT32.pack(metadata.generation)
    write_string(out, metadata.protocol)
    write_string(out, metadata.leader)
    out += _STATE_SINCE_AND_COUNT.pack(metadata.state_since_ms, len(metadata.members))
    for member in metadata.members:
        write_string(out, member.member_id)
        write_string(out, member.group_instance_id)
        write_string(out, member.client_id)
        write_string(out, member.client_host)
        out += _TIMEOUTS_AND_LENGTH.pack(
            member.rebalance_timeout_ms, member.session_timeout_ms, len(member.subscription)
        )
        out += member.subscription
        out += _INT32.pack(len(member.assignment))
        out += member.assignment
    return bytes(out)


# -- decoding --------------------------------------------------------------------------------------


def decode_key(key: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """None for a record of an unknown type. Raises MalformedMessage when the key is cut off or not
    UTF-8."""
    if len(key) < 2:
        raise MalformedMessage(f"a key of {len(key)} bytes has no type")
    (record_type,) = _INT16.unpack_from(key)
    if record_type in (OFFSET_COMMIT_TYPE, LEGACY_OFFSET_COMMIT_TYPE):
        return _decode_offset_commit_key(key)
    if record_type == GROUP_METADATA_TYPE:
        return GROUP_METADATA_KEY.read(key, 2, 0)
    return None


def _decode_offset_commit_key(key: bytes) -> OffsetCommitKey:
    """OFFSET_COMMIT_KEY decoded by hand, which halves the time of loading a partition."""
    size = len(key)
    topic_at = 4 + (key[2] << 8 | key[3]) if size >= 10 else size
    if topic_at + 6 <= size:
        partition_at = topic_at + 2 + (key[topic_at] << 8 | key[topic_at + 1])
        if partition_at + 4 <= size:
            group, topic = key[4:topic_at], key[topic_at + 2 : partition_at]
            try:
                return OffsetCommitKey(group.decode(), topic.decode(), _INT32.unpack_from(key, partition_at)[0])
            except UnicodeDecodeError as error:
                raise MalformedMessage(f"the key of an offset commit is not UTF-8: {error}") from error
    raise MalformedMessage(f"the key of an offset commit is cut off at {size} bytes")


def decode_offset_commit(value: bytes) -> OffsetCommit:
    """An OFFSET_COMMIT of any version. Version 4 with short metadata, the usual one, is decoded by
    hand for speed.
    """
    start = _VERSION_OFFSET_EPOCH.size + 1
    if len(value) >= start + 9 and value[1] == OFFSET_COMMIT_VERSION and not value[0]:
        _, offset, leader_epoch = _VERSION_OFFSET_EPOCH.unpack_from(value)
        length = value[start - 1]
        end = start + length - 1  # metadata: a length of less than 127 is one byte, and counts from 1
        if 0 < length < 0x80 and end + 9 <= len(value):
            tags = value[end + 8 :]
            if tags == _NO_TAGS or (len(tags) == 19 and tags.startswith(_TOPIC_ID_TAG)):
                with suppress(UnicodeDecodeError):  # the declared format then raises MalformedMessage
                    metadata = value[start:end].decode() if length > 1 else ""
                    (commit_ms,) = _INT64.unpack_from(value, end)
                    return OffsetCommit(offset, leader_epoch, metadata, commit_ms, -1, _topic_id(tags[3:]))
    return decode_value(OFFSET_COMMIT, value)


@lru_cache(maxsize=4096)
def _topic_id(raw: bytes) -> UUID | None:
    return UUID(bytes=raw) if any(raw) else None


def decode_value(record_format: RecordFormat[T], value: bytes) -> T:
    """Raises MalformedMessage when the value is cut off or has an unknown version: to ignore it
    would lose state, such as an offset, silently.
    """
    if len(value) < 2:
        raise MalformedMessage(f"a value of {len(value)} bytes has no version")
    return record_format.read(value, 2, _INT16.unpack_from(value)[0])
