"""Fetch (1), read and written by hand: records go out as the buffers they were read into.

Request: replica id i32 (to v14) · max wait i32 · min bytes i32 · max bytes i32 · isolation i8 · session id i32 and
epoch i32 (v7+) · topics [name, or id from v13 · partitions [index i32 · leader epoch i32 (v9+) · fetch offset i64 ·
last fetched epoch i32 (v12+) · log start i64 (v5+) · max bytes i32]] · forgotten topics (v7+) · rack (v11+); tag 1:
replica id and epoch (v15+). Response: throttle time i32 · error i16 and session id i32 (v7+) · topics [name or id ·
partitions [index i32 · error i16 · high watermark i64 · last stable offset i64 · log start i64 (v5+) · aborted
transactions · preferred replica i32 (v11+) · records]]. Flexible from v12. Checked against kio's codec for every
version.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.codec import RequestHeader
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.produce import put_topic
from ottla_broker.wire.reading import Cursor, Malformed, skip_tags
from ottla_broker.wire.writing import put_varint

FLEXIBLE: Final = 12
BY_ID: Final = 13
NO_EPOCH: Final = -1
CONSUMER: Final = -1

# Record buffers below this size are copied into the buffer around them: one write of one piece is cheaper then.
_JOIN_BELOW: Final = 4096

_I32 = struct.Struct(">i")
_REPLICA = struct.Struct(">iq")
_FRONT = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")

Topic = str | UUID


@dataclass(slots=True)
class FetchPartition:
    """What is wanted of one partition: records from `offset`. Epochs are −1 when the client does not say."""

    topic: Topic
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH


@dataclass(slots=True)
class FetchRequest:
    replica: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: list[tuple[Topic, int]]


@dataclass(slots=True)
class Fetched:
    """The answer for one partition. `aborted`: (producer id, first offset), for read_committed; None otherwise."""

    partition: int
    error: ErrorCode
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1
    records: Buffer = b""
    aborted: Sequence[tuple[int, int]] | None = None
    leader: tuple[int, int] | None = None  # the leader's id and epoch, for a client that came to the wrong broker


# Layouts of a partition's fixed fields: (epoch, offset, last fetched epoch, log start, max bytes), as far as a
# version has them.
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")


def _take_partition(cursor: Cursor, topic: Topic, version: int) -> FetchPartition:
    data, at = cursor.data, cursor.at
    epoch = last_epoch = NO_EPOCH
    if version >= FLEXIBLE:
        index, epoch, offset, last_epoch, _, max_bytes = _PARTITION_V12.unpack_from(data, at)
        cursor.at = at + _PARTITION_V12.size
        skip_tags(cursor)
    elif version >= 9:
        index, epoch, offset, _, max_bytes = _PARTITION_V9.unpack_from(data, at)
        cursor.at = at + _PARTITION_V9.size
    elif version >= 5:
        index, offset, _, max_bytes = _PARTITION_V5.unpack_from(data, at)
        cursor.at = at + _PARTITION_V5.size
    else:
        index, offset, max_bytes = _PARTITION_V4.unpack_from(data, at)
        cursor.at = at + _PARTITION_V4.size
    return FetchPartition(topic, index, offset, max_bytes, epoch, last_epoch)


def _take_topic(cursor: Cursor, version: int) -> Topic:
    if version >= BY_ID:
        return UUID(bytes=bytes(cursor.take_bytes(16)))
    name = cursor.take_text(version >= FLEXIBLE)
    if name is None:
        raise Malformed("a topic without a name")
    return name


def read_fetch(frame: bytearray, header: RequestHeader) -> FetchRequest:
    """Reads a request of any version. Raises Malformed."""
    try:
        return _read_fetch(Cursor(frame, header.body), header.version)
    except struct.error as error:
        raise Malformed(f"a fetch request ends early: {error}") from error


def _read_fetch(cursor: Cursor, version: int) -> FetchRequest:
    flexible = version >= FLEXIBLE
    if flexible:
        skip_tags(cursor)
    replica = cursor.take_fixed(_I32) if version < 15 else CONSUMER
    max_wait_ms, min_bytes, max_bytes, isolation = _FRONT.unpack_from(cursor.data, cursor.at)
    cursor.at += _FRONT.size
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(cursor.data, cursor.at)
        cursor.at += _SESSION.size
    partitions = []
    for _ in range(cursor.take_count(flexible)):
        topic = _take_topic(cursor, version)
        for _ in range(cursor.take_count(flexible)):
            partitions.append(_take_partition(cursor, topic, version))
        if flexible:
            skip_tags(cursor)
    forgotten = _take_forgotten(cursor, version) if version >= 7 else []
    if version >= 11:
        cursor.take_text(flexible)  # the client's rack: there is no follower to send it to
    if flexible:
        replica = _take_replica(cursor, replica)
    return FetchRequest(
        replica, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, partitions, forgotten
    )


def _take_forgotten(cursor: Cursor, version: int) -> list[tuple[Topic, int]]:
    flexible = version >= FLEXIBLE
    forgotten = []
    for _ in range(cursor.take_count(flexible)):
        topic = _take_topic(cursor, version)
        for _ in range(cursor.take_count(flexible)):
            forgotten.append((topic, cursor.take_fixed(_I32)))
        if flexible:
            skip_tags(cursor)
    return forgotten


def _take_replica(cursor: Cursor, replica: int) -> int:
    """The last section of tags; from version 15 it may name the replica that asks."""
    for _ in range(cursor.take_varint()):
        tag, size = cursor.take_varint(), cursor.take_varint()
        section = cursor.at
        cursor.take_bytes(size)
        if tag == 1:
            replica, _ = _REPLICA.unpack_from(cursor.data, section)
    return replica


# index, error, high watermark, last stable offset[, log start]
_FETCHED_V4 = struct.Struct(">ihqq")
_FETCHED_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_HEAD = struct.Struct(">ii")
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


def write_fetch(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[Topic, Sequence[Fetched]]],
    *,
    error: ErrorCode = ErrorCode.none,
    session_id: int = 0,
) -> list[Buffer]:
    """A whole response as the buffers to write in order, with its size in front. Records are not copied unless they
    are few."""
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
        pieces.last.append(0)
    return pieces.finish(correlation_id)


def _put_partition(pieces: _Pieces, fetched: Fetched, version: int, flexible: bool) -> None:
    out = pieces.last
    if version >= 5:
        out += _FETCHED_V5.pack(
            fetched.partition, fetched.error, fetched.high_watermark, fetched.last_stable_offset, fetched.log_start
        )
    else:
        out += _FETCHED_V4.pack(fetched.partition, fetched.error, fetched.high_watermark, fetched.last_stable_offset)
    _put_aborted(out, fetched.aborted, flexible)
    if version >= 11:
        out += b"\xff\xff\xff\xff"  # no preferred replica
    _put_count(out, len(fetched.records), flexible)
    pieces.put(fetched.records)
    if flexible:
        _put_leader(pieces.last, fetched.leader)


def _put_aborted(out: bytearray, aborted: Sequence[tuple[int, int]] | None, flexible: bool) -> None:
    _put_count(out, -1 if aborted is None else len(aborted), flexible)
    for producer_id, first_offset in aborted or ():
        out += _ABORTED.pack(producer_id, first_offset)
        if flexible:
            out.append(0)


def _put_leader(out: bytearray, leader: tuple[int, int] | None) -> None:
    """The tags of a partition: only the current leader, tag 1, is ever told."""
    if leader is None:
        out.append(0)
        return
    out += b"\x01\x01\x09"  # one tag, number 1, nine bytes: two i32 and its own section of tags
    out += _HEAD.pack(*leader)
    out.append(0)


def _put_count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        put_varint(out, count + 1)
    else:
        out += _I32.pack(count)
