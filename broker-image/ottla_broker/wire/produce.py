"""Produce (0), read and written by hand: it is the hottest request, and its records are passed on unread.

Request: transactional id (v3+) · acks i16 · timeout i32 · topics [name, or id from v13 · partitions [index i32 ·
records bytes]]. Response: topics [name or id · partitions [index i32 · error i16 · base offset i64 · log append time
i64 (v2+) · log start i64 (v5+) · record errors [] and message (v8+) · tag 0: current leader (v10+)]] · throttle time
i32 (v1+) · tag 0: addresses of leaders (v10+). Flexible from v9.
Checked against kio's codec for every version it has.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla_broker.wire.codec import RequestHeader
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_reader import Cursor, MalformedMessage, skip_tagged_fields
from ottla_broker.wire.message_writer import write_varint
from ottla_broker.wire.node_endpoints import NodeEndpoint, write_current_leader, write_node_endpoints

FLEXIBLE: Final = 9
WITH_LEADERS: Final = 10
BY_ID: Final = 13
NO_OFFSET: Final = -1

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_ACKS = struct.Struct(">hi")
_HEAD = struct.Struct(">ii")


@dataclass(slots=True)
class ProduceRequest:
    """`topics`: by name, or by id from version 13; of each the partitions with their records, as views into the
    frame. `at`: where the size of the last one's records stands in it."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str | UUID, list[tuple[int, memoryview | None]]]]
    at: int = field(default=-1, compare=False)


@dataclass(slots=True)
class ProduceResponsePartition:
    """The answer for one partition. Offsets are −1 on errors; times in ms, −1 unless the log stamps them."""

    partition: int
    error: ErrorCode
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = -1
    log_start: int = NO_OFFSET
    message: str | None = None
    leader: tuple[int, int] | None = None  # id and epoch of who leads instead


def read_produce_request(frame: bytearray, header: RequestHeader) -> ProduceRequest:
    """Reads a request of any version. Raises Malformed."""
    version = header.version
    flexible = version >= FLEXIBLE
    cursor = Cursor(frame, header.body_offset)
    view = memoryview(frame)
    try:
        if flexible:
            skip_tagged_fields(cursor)
        transactional_id = cursor.read_string(flexible) if version >= 3 else None
        acks, timeout_ms = _ACKS.unpack_from(frame, cursor.at)
        cursor.at += _ACKS.size
        topics = []
        at = -1
        for _ in range(cursor.read_array_length(flexible)):
            topic: str | UUID | None
            topic = UUID(bytes=bytes(cursor.read_bytes(16))) if version >= BY_ID else cursor.read_string(flexible)
            if topic is None:
                raise MalformedMessage("a topic without a name")
            partitions = []
            for _ in range(cursor.read_array_length(flexible)):
                index = cursor.read_fixed(_I32)
                at = cursor.at
                size = cursor.read_varint() - 1 if flexible else cursor.read_fixed(_I32)
                if size > cursor.end - cursor.at:
                    raise MalformedMessage(f"{size} bytes of records, {cursor.end - cursor.at} are left")
                partitions.append((index, view[cursor.at : cursor.at + size] if size >= 0 else None))
                cursor.at += max(size, 0)
                if flexible:
                    skip_tagged_fields(cursor)
            if flexible:
                skip_tagged_fields(cursor)
            topics.append((topic, partitions))
    except struct.error as error:
        raise MalformedMessage(f"a produce request ends early: {error}") from error
    return ProduceRequest(transactional_id, acks, timeout_ms, topics, at)


def write_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | UUID, Sequence[ProduceResponsePartition]]],
    addresses: Sequence[NodeEndpoint] = (),
) -> bytearray:
    """A whole response, with its size in front."""
    out = bytearray(8)
    flexible = version >= FLEXIBLE
    if flexible:
        out.append(0)
    _put_count(out, len(topics), flexible)
    for topic, partitions in topics:
        put_topic(out, topic, flexible)
        _put_count(out, len(partitions), flexible)
        for produced in partitions:
            _put_partition(out, produced, version, flexible)
        if flexible:
            out.append(0)
    if version >= 1:
        out += b"\0\0\0\0"  # throttle time
    if flexible:
        write_node_endpoints(out, addresses if version >= WITH_LEADERS else ())
    _HEAD.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


_FIXED = {
    0: struct.Struct(">ihq"),
    2: struct.Struct(">ihqq"),
    5: struct.Struct(">ihqqq"),
}


def _put_partition(out: bytearray, produced: ProduceResponsePartition, version: int, flexible: bool) -> None:
    if version >= 5:
        out += _FIXED[5].pack(
            produced.partition, produced.error, produced.base_offset, produced.log_append_time_ms, produced.log_start
        )
    elif version >= 2:
        out += _FIXED[2].pack(produced.partition, produced.error, produced.base_offset, produced.log_append_time_ms)
    else:
        out += _FIXED[0].pack(produced.partition, produced.error, produced.base_offset)
    if version >= 8:
        _put_count(out, 0, flexible)  # no errors of single records: batches are not opened
        put_text(out, produced.message, flexible)
    if flexible:
        if produced.leader is None or version < WITH_LEADERS:
            out.append(0)
        else:
            out.append(1)
            write_current_leader(out, 0, produced.leader)


def _put_count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_varint(out, count + 1)
    else:
        out += _I32.pack(count)


def put_topic(out: bytearray, topic: str | UUID, flexible: bool) -> None:
    if isinstance(topic, str):
        put_text(out, topic, flexible)
    else:
        out += topic.bytes


def put_text(out: bytearray, text: str | None, flexible: bool) -> None:
    encoded = None if text is None else text.encode()
    if flexible:
        write_varint(out, 0 if encoded is None else len(encoded) + 1)
    else:
        out += _I16.pack(-1 if encoded is None else len(encoded))
    out += encoded or b""
