"""Fetch (1) as a follower asks and hears, version 17, by hand: thousands of partitions may be in one session, and the records that come are
appended from the buffer in which they came. The layout is in `fetch`.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_reader import Cursor, MalformedMessage, skip_tagged_fields
from ottla_broker.wire.message_writer import write_varint

FETCH: Final = 1
VERSION: Final = 17
MOST_ELEMENTS: Final = 2_000_000  # partitions in an answer; it comes from a broker of ours

_FRONT = struct.Struct(">iiib")  # longest wait, least and most bytes, isolation
_SESSION = struct.Struct(">ii")
_I32 = struct.Struct(">i")
_HEADER = struct.Struct(">ihhih")
_WANTED = struct.Struct(">iiqiqi")
_REPLICA = struct.Struct(">iq")
_TOP = struct.Struct(">ihi")
_HELD = struct.Struct(">ihqqq")
_DIVERGING = struct.Struct(">iq")
_SNAPSHOT = struct.Struct(">qi")
_LEADER = struct.Struct(">ii")
_ABORTED = struct.Struct(">qq")


@dataclass(slots=True)
class Wanted:
    """One partition of a request: records from `offset`. `leader_epoch`: the one we know; `last_epoch`: of our last record;
    `directory`: the id of the directory that holds our log, where that matters."""

    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int
    max_bytes: int
    directory: UUID | None = None


@dataclass(slots=True)
class Request:
    """`replica`, `replica_epoch`: who asks, and in which life. Topics and partitions: those that are new or have changed since the last
    request of the session; `forgotten`: those that have left it."""

    replica: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int = 0
    session_epoch: int = 0
    topics: Iterable[tuple[UUID, Sequence[Wanted]]] = ()
    forgotten: Sequence[tuple[UUID, Sequence[int]]] = ()


@dataclass(slots=True)
class FetchResponsePartition:
    """The answer for one partition; as `fetch.Fetched`. `records` is a view into the frame. `aborted`: to readers of what is committed, the aborted
    transactions that have records in it, each as (producer id, first offset)."""

    topic: UUID
    partition: int
    error: ErrorCode
    high_watermark: int
    log_start: int
    records: memoryview
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    snapshot: tuple[int, int] | None = None
    aborted: Sequence[tuple[int, int]] = ()


@dataclass(slots=True)
class FetchResponse:
    error: ErrorCode
    session_id: int
    partitions: list[FetchResponsePartition]


def write_request(correlation_id: int, client_id: str, request: Request) -> bytearray:
    """A whole request, with its size in front."""
    name = client_id.encode()
    out = bytearray(_HEADER.size)
    out += name
    out.append(0)
    out += _FRONT.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, 0)
    out += _SESSION.pack(request.session_id, request.session_epoch)
    topics = list(request.topics)
    write_varint(out, len(topics) + 1)
    for topic, partitions in topics:
        out += topic.bytes
        write_varint(out, len(partitions) + 1)
        for one in partitions:
            out += _WANTED.pack(
                one.partition, one.leader_epoch, one.offset, one.last_epoch, one.log_start, one.max_bytes
            )
            if one.directory is None:
                out.append(0)
            else:
                out += b"\x01\x00\x10"
                out += one.directory.bytes
        out.append(0)
    write_varint(out, len(request.forgotten) + 1)
    for topic, indexes in request.forgotten:
        out += topic.bytes
        write_varint(out, len(indexes) + 1)
        for index in indexes:
            out += _I32.pack(index)
        out.append(0)
    out += b"\x01"  # no rack
    out += b"\x01\x01" + bytes((_REPLICA.size + 1,))
    out += _REPLICA.pack(request.replica, request.replica_epoch)
    out.append(0)
    _HEADER.pack_into(out, 0, len(out) - 4, FETCH, VERSION, correlation_id, len(name))
    return out


def read_response(frame: bytearray) -> FetchResponse:
    """An answer as it came, without its size. Raises Malformed."""
    try:
        return _read(frame)
    except struct.error as error:
        raise MalformedMessage(f"a fetch response ends early: {error}") from error


def _read(frame: bytearray) -> FetchResponse:
    cursor = Cursor(frame, 4)
    cursor.elements = MOST_ELEMENTS
    skip_tagged_fields(cursor)
    view = memoryview(frame)
    _, error, session_id = _TOP.unpack_from(frame, cursor.at)
    cursor.at += _TOP.size
    partitions: list[FetchResponsePartition] = []
    for _ in range(cursor.read_array_length(flexible=True)):
        topic = UUID(bytes=bytes(cursor.read_bytes(16)))
        for _ in range(cursor.read_array_length(flexible=True)):
            partitions.append(_take_partition(cursor, view, topic))
        skip_tagged_fields(cursor)
    return FetchResponse(_code(error), session_id, partitions)


def _take_partition(cursor: Cursor, view: memoryview, topic: UUID) -> FetchResponsePartition:
    index, error, high_watermark, _, log_start = _HELD.unpack_from(cursor.data, cursor.at)
    cursor.at += _HELD.size
    aborted: Sequence[tuple[int, int]] = ()
    if count := cursor.read_array_length(flexible=True):  # never for followers
        aborted = [_take_aborted(cursor) for _ in range(count)]
    cursor.at += _I32.size  # nor is another replica to ask
    size = cursor.read_varint() - 1
    if size > cursor.end - cursor.at:
        raise MalformedMessage(f"{size} bytes of records, {cursor.end - cursor.at} are left")
    records = view[cursor.at : cursor.at + max(size, 0)]
    got = FetchResponsePartition(topic, index, _code(error), high_watermark, log_start, records, aborted=aborted)
    cursor.at += max(size, 0)
    for _ in range(cursor.read_varint()):
        tag, length = cursor.read_varint(), cursor.read_varint()
        section = cursor.at
        cursor.read_bytes(length)
        if tag == 0:
            got.diverging = _DIVERGING.unpack_from(cursor.data, section)
        elif tag == 1:
            got.leader = _LEADER.unpack_from(cursor.data, section)
        elif tag == 2:
            got.snapshot = _SNAPSHOT.unpack_from(cursor.data, section)
    return got


def _take_aborted(cursor: Cursor) -> tuple[int, int]:
    producer_id, first_offset = _ABORTED.unpack_from(cursor.data, cursor.at)
    cursor.at += _ABORTED.size
    skip_tagged_fields(cursor)
    return producer_id, first_offset


def _code(number: int) -> ErrorCode:
    return _CODES.get(number, ErrorCode.unknown_server_error)


_CODES: Final = {int(code): code for code in ErrorCode}
