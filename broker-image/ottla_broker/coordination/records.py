"""The records of `__consumer_offsets`, in Kafka's own formats, declared once.

Source: `group-coordinator/src/main/resources/common/message/*.json` of Apache Kafka 4.1 (KIP-915 explains why only
tagged fields are added). A key begins with its type as i16, a value with its version as i16; a null value is a
tombstone. Keys of types that we do not know (those of KIP-848, KIP-932 and KIP-1071 groups, and whatever comes) are
passed over, as KIP-915 asks.

Kafka 4.1 writes offset commits in version 4 (flexible, with the topic's id as tagged field) and group metadata in
version 3; so do we.
"""

import struct
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from ottla_broker.coordination.schema import Field, Format, Kind, Malformed

T = TypeVar("T")


class OffsetCommitKey(NamedTuple):
    group: str
    topic: str
    partition: int


class OffsetCommit(NamedTuple):
    """A committed offset: of the next record to read. `expire_ms`: −1 unless an old client asked for its own
    retention."""

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
    """A generation of a classic group. `state_since_ms`: −1 when it was written by a Kafka that did not say."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[MemberMetadata, ...]


OFFSET_COMMIT_KEY: Final = Format(
    OffsetCommitKey, [Field(Kind.STRING), Field(Kind.STRING), Field(Kind.INT32)], newest=0
)
OFFSET_COMMIT: Final = Format(
    OffsetCommit,
    [
        Field(Kind.INT64),
        Field(Kind.INT32, since=3, default=-1),
        Field(Kind.STRING),
        Field(Kind.INT64),
        Field(Kind.INT64, since=1, until=1, default=-1),
        Field(Kind.UUID, since=4, tag=0),
    ],
    newest=4,
    flexible_from=4,
)
GROUP_METADATA_KEY: Final = Format(GroupMetadataKey, [Field(Kind.STRING)], newest=0)
MEMBER_METADATA: Final = Format(
    MemberMetadata,
    [
        Field(Kind.STRING),
        Field(Kind.NULLABLE_STRING, since=3),
        Field(Kind.STRING),
        Field(Kind.STRING),
        Field(Kind.INT32, since=1, default=-1),
        Field(Kind.INT32),
        Field(Kind.BYTES),
        Field(Kind.BYTES),
    ],
    newest=4,
    flexible_from=4,
)
GROUP_METADATA: Final = Format(
    GroupMetadata,
    [
        Field(Kind.STRING),
        Field(Kind.INT32),
        Field(Kind.NULLABLE_STRING),
        Field(Kind.NULLABLE_STRING),
        Field(Kind.INT64, since=2, default=-1),
        Field(MEMBER_METADATA),
    ],
    newest=4,
    flexible_from=4,
)

LEGACY_OFFSET_COMMIT_TYPE: Final = 0  # Kafka before 0.9; the key looks the same
OFFSET_COMMIT_TYPE: Final = 1
GROUP_METADATA_TYPE: Final = 2

OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1  # the only one that carries it
GROUP_METADATA_VERSION: Final = 3

_TYPE: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_OFFSET_V4: Final = struct.Struct(">hqiB")  # version, offset, leader epoch, length of the metadata
_write_offset_key: Final = OFFSET_COMMIT_KEY.writer(0)
_write_group_key: Final = GROUP_METADATA_KEY.writer(0)


def encode_offset_commit_key(group: str, topic: str, partition: int) -> bytes:
    out = bytearray(_TYPE.pack(OFFSET_COMMIT_TYPE))
    _write_offset_key(out, (group, topic, partition))
    return bytes(out)


def encode_offset_commit_value(commit: OffsetCommit) -> bytes:
    return OFFSET_COMMIT.write(
        commit, OFFSET_COMMIT_VERSION if commit.expire_ms < 0 else OFFSET_COMMIT_VERSION_WITH_EXPIRY
    )


def encode_group_metadata_key(group: str) -> bytes:
    out = bytearray(_TYPE.pack(GROUP_METADATA_TYPE))
    _write_group_key(out, (group,))
    return bytes(out)


def encode_group_metadata_value(metadata: GroupMetadata) -> bytes:
    return GROUP_METADATA.write(metadata, GROUP_METADATA_VERSION)


def decode_key(key: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """None for a record of a type that we do not know. Malformed when the key is cut off."""
    if len(key) < 2:
        raise Malformed(f"a key of {len(key)} bytes has no type")
    kind = _TYPE.unpack_from(key)[0]
    if kind in (OFFSET_COMMIT_TYPE, LEGACY_OFFSET_COMMIT_TYPE):
        return _read_offset_key(key)
    if kind == GROUP_METADATA_TYPE:
        return GROUP_METADATA_KEY.read(key, 2, 0)
    return None


def _read_offset_key(key: bytes) -> OffsetCommitKey:
    """OFFSET_COMMIT_KEY read by hand: a partition's loading reads nothing as often, and this halves its time."""
    size = len(key)
    topic_at = 4 + (key[2] << 8 | key[3]) if size >= 10 else size
    if topic_at + 6 <= size:
        partition_at = topic_at + 2 + (key[topic_at] << 8 | key[topic_at + 1])
        if partition_at + 4 <= size:
            group, topic = key[4:topic_at], key[topic_at + 2 : partition_at]
            try:
                return OffsetCommitKey(group.decode(), topic.decode(), _INT32.unpack_from(key, partition_at)[0])
            except UnicodeDecodeError as error:
                raise Malformed(f"an offset's key is no text: {error}") from error
    raise Malformed(f"an offset's key is cut off at {size}")


def decode_offset_commit(value: bytes) -> OffsetCommit:
    """An OFFSET_COMMIT of any version; the one that is written today is read by hand, for the same reason."""
    start = _OFFSET_V4.size
    if len(value) >= start + 9 and value[1] == OFFSET_COMMIT_VERSION and not value[0]:
        _, offset, leader_epoch, length = _OFFSET_V4.unpack_from(value)
        end = start + length - 1  # metadata: a length of less than 127 is one byte, and counts from 1
        if 0 < length < 0x80 and end + 9 <= len(value):
            tags = value[end + 8 :]
            if tags == b"\x00" or (len(tags) == 19 and tags.startswith(b"\x01\x00\x10")):
                with suppress(UnicodeDecodeError):  # then the declared reader says what is wrong
                    metadata = value[start:end].decode() if length > 1 else ""
                    (commit_ms,) = _INT64.unpack_from(value, end)
                    return OffsetCommit(offset, leader_epoch, metadata, commit_ms, -1, _topic_id(tags[3:]))
    return decode_value(OFFSET_COMMIT, value)


@lru_cache(maxsize=4096)
def _topic_id(raw: bytes) -> UUID | None:
    return UUID(bytes=raw) if any(raw) else None


def decode_value(form: Format[T], value: bytes) -> T:
    """Malformed when the value is of a version that we do not know: to pass it over would lose an offset in silence."""
    if len(value) < 2:
        raise Malformed(f"a value of {len(value)} bytes has no version")
    return form.read(value, 2, _TYPE.unpack_from(value)[0])
