"""Fetch (1), read and written by hand: records go out as the buffers they were read into.

Request: replica id i32 (to v14) · max wait i32 · min bytes i32 · max bytes i32 · isolation i8 · session id i32 and
epoch i32 (v7+) · topics [name, or id from v13 · partitions [index i32 · leader epoch i32 (v9+) · fetch offset i64 ·
last fetched epoch i32 (v12+) · log start i64 (v5+) · max bytes i32 · tag 0: a replica's directory id (v17+)]] ·
forgotten topics (v7+) · rack (v11+); tag 1: replica id and epoch (v15+). Response: throttle time i32 · error i16 and
session id i32 (v7+) · topics [name or id · partitions [index i32 · error i16 · high watermark i64 · last stable offset
i64 · log start i64 (v5+) · aborted transactions · preferred replica i32 (v11+) · records · tags (v12+): 0 diverging
epoch, 1 current leader, 2 snapshot]] · tag 0: addresses of leaders (v16+). Flexible from v12. Checked against kio's
codec for every version. How a follower asks is in `replica_fetch`.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.codec import RequestHeader
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_reader import Cursor, MalformedMessage, skip_tagged_fields
from ottla_broker.wire.message_writer import write_varint
from ottla_broker.wire.node_endpoints import NodeEndpoint, write_current_leader, write_node_endpoints
from ottla_broker.wire.produce import put_topic

FLEXIBLE: Final = 12
BY_ID: Final = 13
BY_STATE: Final = 15  # the version from which a replica names itself and its epoch in a tag
WITH_DIRECTORY: Final = 17
WITH_ADDRESSES: Final = 16
NO_EPOCH: Final = -1
CONSUMER: Final = -1
DEBUGGER: Final = -2  # a tool that compares replicas
NO_REPLICA: Final = -1

# Record buffers below this size are copied into the buffer around them: one write of one piece is cheaper then.
_JOIN_BELOW: Final = 4096

_I32 = struct.Struct(">i")
_REPLICA = struct.Struct(">iq")
_FRONT = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")

Topic = str | UUID


@dataclass(slots=True)
class FetchRequestPartition:
    """What is wanted of one partition: records from `offset`. Epochs are −1 when the client does not say."""

    topic: Topic
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    log_start: int = -1  # a follower's
    directory: UUID | None = None  # that of a follower's log
    at: int = field(default=-1, compare=False)  # where `offset` stands in the request


@dataclass(slots=True)
class FetchRequest:
    """`replica`: the broker that asks, −1 for a client; `replica_epoch`: that of its life, −1 when it does not say."""

    replica: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    partitions: list[FetchRequestPartition]
    forgotten: list[tuple[Topic, int]]
    rack: str | None = None
    replica_epoch: int = NO_EPOCH


@dataclass(slots=True)
class FetchResponsePartition:
    """The answer for one partition. `aborted`: (producer id, first offset), for read_committed; None otherwise.
    `leader`: (id, epoch) of who leads, for a client that came to the wrong broker. `diverging`: (epoch, end offset) of the
    leader's log where that of the asker parts from it. `snapshot`: (end offset, epoch) of what to fetch instead."""

    partition: int
    error: ErrorCode
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1
    records: Buffer = b""
    aborted: Sequence[tuple[int, int]] | None = None
    leader: tuple[int, int] | None = None
    diverging: tuple[int, int] | None = None
    snapshot: tuple[int, int] | None = None
    preferred: int = NO_REPLICA  # the replica that a consumer should ask instead (KIP-392)
    more: bool = False  # there is more to be had at that offset than was read; not on the wire


# Layouts of a partition's fixed fields: (epoch, offset, last fetched epoch, log start, max bytes), as far as a
# version has them.
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")


def _take_partition(cursor: Cursor, topic: Topic, version: int) -> FetchRequestPartition:
    data, at = cursor.data, cursor.at
    epoch = last_epoch = NO_EPOCH
    start = -1
    if version >= FLEXIBLE:
        index, epoch, offset, last_epoch, start, max_bytes = _PARTITION_V12.unpack_from(data, at)
        cursor.at = at + _PARTITION_V12.size
        directory = _take_directory(cursor, version)
        return FetchRequestPartition(topic, index, offset, max_bytes, epoch, last_epoch, start, directory, at + 8)
    if version >= 9:
        index, epoch, offset, start, max_bytes = _PARTITION_V9.unpack_from(data, at)
        cursor.at = at + _PARTITION_V9.size
        return FetchRequestPartition(topic, index, offset, max_bytes, epoch, last_epoch, start, None, at + 8)
    if version >= 5:
        index, offset, start, max_bytes = _PARTITION_V5.unpack_from(data, at)
        cursor.at = at + _PARTITION_V5.size
    else:
        index, offset, max_bytes = _PARTITION_V4.unpack_from(data, at)
        cursor.at = at + _PARTITION_V4.size
    return FetchRequestPartition(topic, index, offset, max_bytes, epoch, last_epoch, start, None, at + 4)


def _take_directory(cursor: Cursor, version: int) -> UUID | None:
    """The tags of a partition; from version 17 they may hold the id of the directory with the asker's log."""
    found = None
    for _ in range(cursor.read_varint()):
        tag, size = cursor.read_varint(), cursor.read_varint()
        value = cursor.read_bytes(size)
        if tag == 0 and version >= WITH_DIRECTORY and size == 16:
            found = UUID(bytes=bytes(value))
    return found


def _take_topic(cursor: Cursor, version: int) -> Topic:
    if version >= BY_ID:
        return UUID(bytes=bytes(cursor.read_bytes(16)))
    name = cursor.read_string(version >= FLEXIBLE)
    if name is None:
        raise MalformedMessage("a topic without a name")
    return name


def read_fetch_request(frame: bytearray, header: RequestHeader) -> FetchRequest:
    """Reads a request of any version. Raises Malformed."""
    try:
        return _read_fetch(Cursor(frame, header.body_offset), header.version)
    except struct.error as error:
        raise MalformedMessage(f"a fetch request ends early: {error}") from error


def _read_fetch(cursor: Cursor, version: int) -> FetchRequest:
    flexible = version >= FLEXIBLE
    if flexible:
        skip_tagged_fields(cursor)
    replica = cursor.read_fixed(_I32) if version < BY_STATE else CONSUMER
    max_wait_ms, min_bytes, max_bytes, isolation = _FRONT.unpack_from(cursor.data, cursor.at)
    cursor.at += _FRONT.size
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(cursor.data, cursor.at)
        cursor.at += _SESSION.size
    partitions = []
    for _ in range(cursor.read_array_length(flexible)):
        topic = _take_topic(cursor, version)
        for _ in range(cursor.read_array_length(flexible)):
            partitions.append(_take_partition(cursor, topic, version))
        if flexible:
            skip_tagged_fields(cursor)
    forgotten = _take_forgotten(cursor, version) if version >= 7 else []
    rack = (cursor.read_string(flexible) or None) if version >= 11 else None
    replica_epoch = NO_EPOCH
    if flexible:
        replica, replica_epoch = _take_replica(cursor, replica, version)
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
    )


def _take_forgotten(cursor: Cursor, version: int) -> list[tuple[Topic, int]]:
    flexible = version >= FLEXIBLE
    forgotten = []
    for _ in range(cursor.read_array_length(flexible)):
        topic = _take_topic(cursor, version)
        for _ in range(cursor.read_array_length(flexible)):
            forgotten.append((topic, cursor.read_fixed(_I32)))
        if flexible:
            skip_tagged_fields(cursor)
    return forgotten


def _take_replica(cursor: Cursor, replica: int, version: int) -> tuple[int, int]:
    """The last section of tags; from version 15 it may name the replica that asks, and its epoch."""
    epoch = NO_EPOCH
    for _ in range(cursor.read_varint()):
        tag, size = cursor.read_varint(), cursor.read_varint()
        section = cursor.at
        cursor.read_bytes(size)
        if tag == 1 and version >= BY_STATE:
            replica, epoch = _REPLICA.unpack_from(cursor.data, section)
    return replica, epoch


# index, error, high watermark, last stable offset[, log start]
_FETCHED_V4 = struct.Struct(">ihqq")
_FETCHED_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_HEAD = struct.Struct(">ii")
_DIVERGING = struct.Struct(">iq")
_SNAPSHOT = struct.Struct(">qi")
_TOP = struct.Struct(">ihi")  # throttle time, error, session id


class _Pieces:
    """Buffers in order; small ones are joined."""

    __slots__ = ("buffers", "last", "size")

    def __init__(self) -> None:
        self.last = bytearray(8)
        self.buffers: list[Buffer] = [self.last]
        self.size = 0

    def put(self, data: Buffer) -> None:
        if len(data) < _JOIN_BELOW:
            self.last += data
            return
        self.size += len(self.last) + len(data)
        self.last = bytearray()
        self.buffers += (data, self.last)

    def finish(self, correlation_id: int) -> list[Buffer]:
        self.size += len(self.last)
        if not self.last:
            self.buffers.pop()
        head = self.buffers[0]
        assert isinstance(head, bytearray)
        _HEAD.pack_into(head, 0, self.size - 4, correlation_id)
        return self.buffers


def write_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[Topic, Sequence[FetchResponsePartition]]],
    *,
    error: ErrorCode = ErrorCode.none,
    session_id: int = 0,
    addresses: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """A whole response as the buffers to write in order, with its size in front. Records are not copied unless they
    are few. `addresses`: of the leaders that the answer names."""
    flexible = version >= FLEXIBLE
    pieces = _Pieces()
    out = pieces.last
    if flexible:
        out.append(0)
    out += _TOP.pack(0, error, session_id) if version >= 7 else b"\0\0\0\0"
    _put_count(out, len(topics), flexible)
    for topic, partitions in topics:
        out = pieces.last
        put_topic(out, topic, flexible)
        _put_count(out, len(partitions), flexible)
        for fetched in partitions:
            _put_partition(pieces, fetched, version, flexible)
        if flexible:
            pieces.last.append(0)
    if flexible:
        write_node_endpoints(pieces.last, addresses if version >= WITH_ADDRESSES else ())
    return pieces.finish(correlation_id)


def _put_partition(pieces: _Pieces, fetched: FetchResponsePartition, version: int, flexible: bool) -> None:
    out = pieces.last
    if version >= 5:
        out += _FETCHED_V5.pack(
            fetched.partition, fetched.error, fetched.high_watermark, fetched.last_stable_offset, fetched.log_start
        )
    else:
        out += _FETCHED_V4.pack(fetched.partition, fetched.error, fetched.high_watermark, fetched.last_stable_offset)
    _put_aborted(out, fetched.aborted, flexible)
    if version >= 11:
        out += _I32.pack(fetched.preferred)
    _put_count(out, len(fetched.records), flexible)
    pieces.put(fetched.records)
    if flexible:
        out = pieces.last
        if fetched.diverging is None and fetched.leader is None and fetched.snapshot is None:
            out.append(0)
        else:
            _put_tags(out, fetched)


def _put_aborted(out: bytearray, aborted: Sequence[tuple[int, int]] | None, flexible: bool) -> None:
    _put_count(out, -1 if aborted is None else len(aborted), flexible)
    for producer_id, first_offset in aborted or ():
        out += _ABORTED.pack(producer_id, first_offset)
        if flexible:
            out.append(0)


def _put_tags(out: bytearray, fetched: FetchResponsePartition) -> None:
    out.append((fetched.diverging is not None) + (fetched.leader is not None) + (fetched.snapshot is not None))
    if fetched.diverging is not None:
        _put_tag(out, 0, _DIVERGING, fetched.diverging)
    if fetched.leader is not None:
        write_current_leader(out, 1, fetched.leader)
    if fetched.snapshot is not None:
        _put_tag(out, 2, _SNAPSHOT, fetched.snapshot)


def _put_tag(out: bytearray, tag: int, layout: struct.Struct, value: tuple[int, int]) -> None:
    out += bytes((tag, layout.size + 1))
    out += layout.pack(*value)
    out.append(0)  # its own section of tags


def _put_count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_varint(out, count + 1)
    else:
        out += _I32.pack(count)
