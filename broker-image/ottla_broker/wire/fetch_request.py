"""Hand-written codec of Fetch requests (1), versions 4–18: a session may name thousands of
partitions.

Layout: replica id i32 (to v14) · max wait i32 · min bytes i32 · max bytes i32 · isolation i8 ·
session id i32 and epoch i32 (v7+) · topics [name, or id from v13 · partitions [index i32 · leader
epoch i32 (v9+) · fetch offset i64 · last fetched epoch i32 (v12+) · log start i64 (v5+) · max bytes
i32 · tag 0: a replica's directory id (v17+)]] · forgotten topics (v7+) · rack (v11+); tag 1:
replica id and epoch (v15+). Flexible from v12. Tested against kio's codec in every version.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Final
from uuid import UUID

from ottla_broker.wire.message_reader import Cursor, MalformedMessage, skip_tagged_fields
from ottla_broker.wire.message_writer import write_varint
from ottla_broker.wire.produce import Topic, read_topic_id
from ottla_broker.wire.request_header import RequestHeader

FETCH: Final = 1
SESSIONS_SINCE: Final = 7
RACK_SINCE: Final = 11
FLEXIBLE_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15
DIRECTORY_SINCE: Final = 17
NO_EPOCH: Final = -1
CONSUMER: Final = -1
DEBUGGER: Final = -2

_I32 = struct.Struct(">i")
_REPLICA = struct.Struct(">iq")
_FRONT_V4 = struct.Struct(">iiiib")  # replica, longest wait, min bytes, max bytes, isolation
_FRONT_V7 = struct.Struct(">iiiibii")  # session id and epoch
_FRONT_V15 = struct.Struct(">iiibii")  # the replica is a tagged field
_HEADER = struct.Struct(">ihhih")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")


@dataclass(slots=True)
class FetchRequestPartition:
    """Records of one partition from `offset` on. Epochs and `log_start` are −1 when the sender does
    not name them; `log_start` and `directory` are a replica's."""

    topic: Topic
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    log_start: int = -1
    directory: UUID | None = None


@dataclass(slots=True)
class FetchRequest:
    """`replica`: the broker that sends it, CONSUMER, or DEBUGGER for a tool that compares replicas.
    `offset_at`: where the offset of the last partition stands in the frame that was read."""

    replica: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    partitions: Sequence[FetchRequestPartition]
    forgotten: Sequence[tuple[Topic, int]]
    rack: str | None = None
    replica_epoch: int = NO_EPOCH
    offset_at: int = field(default=-1, compare=False)


def read_fetch_request(frame: bytearray, header: RequestHeader) -> FetchRequest:
    """Reads a request of any version. Raises MalformedMessage."""
    try:
        return _read(Cursor(frame, header.body_offset), header.version)
    except (struct.error, IndexError) as error:
        raise MalformedMessage(f"the fetch request ends early: {error}") from error


def _read(cursor: Cursor, version: int) -> FetchRequest:
    flexible = version >= FLEXIBLE_SINCE
    data = cursor.data
    if flexible:
        skip_tagged_fields(cursor)
    replica, replica_epoch, session_id, session_epoch = CONSUMER, NO_EPOCH, 0, -1
    at = cursor.at
    if version >= REPLICA_STATE_SINCE:
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _FRONT_V15.unpack_from(data, at)
        cursor.at = at + _FRONT_V15.size
    elif version >= SESSIONS_SINCE:
        front = _FRONT_V7.unpack_from(data, at)
        replica, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = front
        cursor.at = at + _FRONT_V7.size
    else:
        replica, max_wait_ms, min_bytes, max_bytes, isolation = _FRONT_V4.unpack_from(data, at)
        cursor.at = at + _FRONT_V4.size
    partitions: list[FetchRequestPartition] = []
    offset_at = -1
    for _ in range(cursor.read_array_length(flexible)):
        topic = _read_topic(cursor, version)
        for _ in range(cursor.read_array_length(flexible)):
            offset_at = cursor.at + (8 if version >= 9 else 4)
            partitions.append(_read_partition(cursor, topic, version))
        if flexible:
            skip_tagged_fields(cursor)
    forgotten: list[tuple[Topic, int]] = []
    if version >= SESSIONS_SINCE:
        for _ in range(cursor.read_array_length(flexible)):
            topic = _read_topic(cursor, version)
            forgotten += [(topic, cursor.read_fixed(_I32)) for _ in range(cursor.read_array_length(flexible))]
            if flexible:
                skip_tagged_fields(cursor)
    rack = (cursor.read_string(flexible) or None) if version >= RACK_SINCE else None
    if flexible:
        for _ in range(cursor.read_varint()):
            tag, size = cursor.read_varint(), cursor.read_varint()
            section = cursor.at
            cursor.read_bytes(size)
            if tag == 1 and version >= REPLICA_STATE_SINCE:
                replica, replica_epoch = _REPLICA.unpack_from(data, section)
    return FetchRequest(
        replica,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        rack,
        replica_epoch,
        offset_at,
    )


def _read_topic(cursor: Cursor, version: int) -> Topic:
    if version >= TOPIC_IDS_SINCE:
        return read_topic_id(bytes(cursor.read_bytes(16)))
    name = cursor.read_string(version >= FLEXIBLE_SINCE)
    if name is None:
        raise MalformedMessage("a topic without a name")
    return name


def _read_partition(cursor: Cursor, topic: Topic, version: int) -> FetchRequestPartition:
    data, at = cursor.data, cursor.at
    epoch = last_epoch = NO_EPOCH
    log_start = -1
    if version >= FLEXIBLE_SINCE:
        index, epoch, offset, last_epoch, log_start, max_bytes = _PARTITION_V12.unpack_from(data, at)
        cursor.at = at = at + _PARTITION_V12.size
        directory = None
        if data[at]:
            directory = _read_directory(cursor, version)
        else:
            cursor.at = at + 1
        return FetchRequestPartition(topic, index, offset, max_bytes, epoch, last_epoch, log_start, directory)
    if version >= 9:
        index, epoch, offset, log_start, max_bytes = _PARTITION_V9.unpack_from(data, at)
        cursor.at = at + _PARTITION_V9.size
    elif version >= 5:
        index, offset, log_start, max_bytes = _PARTITION_V5.unpack_from(data, at)
        cursor.at = at + _PARTITION_V5.size
    else:
        index, offset, max_bytes = _PARTITION_V4.unpack_from(data, at)
        cursor.at = at + _PARTITION_V4.size
    return FetchRequestPartition(topic, index, offset, max_bytes, epoch, last_epoch, log_start)


def _read_directory(cursor: Cursor, version: int) -> UUID | None:
    """The id of the replica's log directory, which the partition's tagged fields may hold from
    version 17 on, or None.
    """
    directory = None
    for _ in range(cursor.read_varint()):
        tag, size = cursor.read_varint(), cursor.read_varint()
        value = cursor.read_bytes(size)
        if tag == 0 and version >= DIRECTORY_SINCE and size == 16:
            directory = UUID(bytes=bytes(value))
    return directory


def write_fetch_request(version: int, correlation_id: int, client_id: str, request: FetchRequest) -> bytearray:
    """A whole request in one of the versions 13–18, with its size in front. The request must name
    the partitions of a topic one after the other. Its rack is not written: brokers have none."""
    name = client_id.encode()
    out = bytearray(_HEADER.size)
    out += name
    out.append(0)
    if version < REPLICA_STATE_SINCE:
        out += _I32.pack(request.replica)
    out += _FRONT_V15.pack(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation,
        request.session_id,
        request.session_epoch,
    )
    topics = [(topic, list(group)) for topic, group in groupby(request.partitions, attrgetter("topic"))]
    write_varint(out, len(topics) + 1)
    for topic, partitions in topics:
        out += topic.bytes
        write_varint(out, len(partitions) + 1)
        for one in partitions:
            out += _PARTITION_V12.pack(
                one.partition, one.leader_epoch, one.offset, one.last_fetched_epoch, one.log_start, one.max_bytes
            )
            if one.directory is None or version < DIRECTORY_SINCE:
                out.append(0)
            else:
                out += b"\x01\x00\x10"
                out += one.directory.bytes
        out.append(0)
    write_varint(out, len(request.forgotten) + 1)
    for topic, index in request.forgotten:
        assert isinstance(topic, UUID)
        out += topic.bytes
        out.append(2)  # one partition
        out += _I32.pack(index)
        out.append(0)
    out.append(1)  # no rack
    if version < REPLICA_STATE_SINCE or request.replica == CONSUMER:
        out.append(0)
    else:
        out += bytes((1, 1, _REPLICA.size + 1))
        out += _REPLICA.pack(request.replica, request.replica_epoch)
        out.append(0)
    _HEADER.pack_into(out, 0, len(out) - 4, FETCH, version, correlation_id, len(name))
    return out
