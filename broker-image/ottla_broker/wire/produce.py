"""Hand-written codec of Produce (0), the most frequent request. Its records are not parsed.

Request: transactional id (v3+) · acks i16 · timeout i32 · topics [name, or id from v13 · partitions
[index i32 · records bytes]]. Response: topics [name or id · partitions [index i32 · error i16 ·
base offset i64 · log append time i64 (v2+) · log start i64 (v5+) · record errors [index i32 ·
message] and message (v8+) · tag 0: current leader (v10+)]] · throttle time i32 (v1+) · tag 0:
endpoints of leaders (v10+). Flexible from v9. Tested against kio's codec in every version it has.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_reader import (
    MAX_ELEMENTS,
    MAX_STRING_BYTES,
    Cursor,
    MalformedMessage,
    skip_tagged_fields,
)
from ottla_broker.wire.message_writer import write_length, write_varint
from ottla_broker.wire.node_endpoints import NodeEndpoint, write_current_leader, write_node_endpoints
from ottla_broker.wire.request_header import RequestHeader, read_request_header

TRANSACTIONAL_ID_SINCE: Final = 3
RECORD_ERRORS_SINCE: Final = 8
FLEXIBLE_SINCE: Final = 9
CURRENT_LEADER_SINCE: Final = 10
TOPIC_IDS_SINCE: Final = 13
NO_OFFSET: Final = -1
NO_RESPONSE: Final = 0
"""acks of a producer that expects no response."""

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_ACKS = struct.Struct(">hi")
_HEAD = struct.Struct(">ii")  # size, correlation id

Topic = str | UUID


@lru_cache(maxsize=8192)
def read_topic_id(raw: bytes) -> UUID:
    return UUID(bytes=raw)


@dataclass(slots=True)
class ProduceRequest:
    """`topics`: by name, or by id from version 13; of each the partitions with their records, as
    views of the frame.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[Topic, list[tuple[int, memoryview | None]]]]


@dataclass(slots=True)
class ProduceResponsePartition:
    """Offsets are −1 with an error; times in ms, −1 unless the log sets them. `record_errors`:
    (index in the batch, message) of the records because of which the batch is rejected (KIP-467).
    `leader`: (id, epoch) of the current leader, when another broker leads."""

    partition: int
    error: ErrorCode
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = -1
    log_start: int = NO_OFFSET
    message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    leader: tuple[int, int] | None = None


def read_produce_request(frame: bytearray, header: RequestHeader) -> ProduceRequest:
    """Reads a request of any version. Raises MalformedMessage."""
    try:
        return _read(frame, header.body_offset, header.version)
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedMessage(f"the produce request cannot be read: {error}") from error


def expects_no_response(frame: bytearray) -> bool:
    """True for Produce requests with acks=0. False for all others, and for what cannot be read."""
    try:
        header = read_request_header(frame)
        return header.api_key == ApiKey.PRODUCE and read_produce_request(frame, header).acks == NO_RESPONSE
    except MalformedMessage:
        return False


def _read(frame: bytearray, at: int, version: int) -> ProduceRequest:
    flexible = version >= FLEXIBLE_SINCE
    view, element_count = memoryview(frame), 0
    transactional_id: str | None = None
    if flexible:
        at = _skip_tags(frame, at)
    if version >= TRANSACTIONAL_ID_SINCE:
        transactional_id, at = _read_text(frame, at, flexible)
    acks, timeout_ms = _ACKS.unpack_from(frame, at)
    topic_count, at = _read_count(frame, at + _ACKS.size, flexible)
    topics: list[tuple[Topic, list[tuple[int, memoryview | None]]]] = []
    for _ in range(topic_count):
        topic: Topic | None
        if version >= TOPIC_IDS_SINCE:
            topic = read_topic_id(bytes(frame[at : at + 16]))
            at += 16
        else:
            topic, at = _read_text(frame, at, flexible)
            if topic is None:
                raise MalformedMessage("a topic without a name")
        partition_count, at = _read_count(frame, at, flexible)
        element_count += 1 + max(partition_count, 0)
        if element_count > MAX_ELEMENTS:
            raise MalformedMessage(f"more than {MAX_ELEMENTS} topics and partitions")
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            index = _I32.unpack_from(frame, at)[0]
            size, at = _read_count(frame, at + 4, flexible)
            end = at + max(size, 0)
            if end > len(frame):
                raise MalformedMessage(f"{size} bytes of records, {len(frame) - at} are left")
            partitions.append((index, view[at:end] if size >= 0 else None))
            at = _skip_tags(frame, end) if flexible else end
        if flexible:
            at = _skip_tags(frame, at)
        topics.append((topic, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


class RequestStart(NamedTuple):
    """The fields of a request before its only partition, which begins at `end`."""

    acks: int
    timeout_ms: int
    topic: Topic
    end: int


def read_request_start(frame: bytearray, header: RequestHeader) -> RequestStart | None:
    """None if the request has a transactional id, tagged fields at its start, or not exactly one
    partition. Raises MalformedMessage. Versions from TRANSACTIONAL_ID_SINCE on.
    """
    try:
        return _read_start(frame, header.body_offset, header.version)
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedMessage(f"the produce request cannot be read: {error}") from error


def _read_start(frame: bytearray, at: int, version: int) -> RequestStart | None:
    flexible = version >= FLEXIBLE_SINCE
    if flexible:
        if frame[at]:
            return None
        at += 1
    transactional_id, at = _read_text(frame, at, flexible)
    acks, timeout_ms = _ACKS.unpack_from(frame, at)
    topic_count, at = _read_count(frame, at + _ACKS.size, flexible)
    if transactional_id is not None or topic_count != 1:
        return None
    topic: Topic | None
    if version >= TOPIC_IDS_SINCE:
        topic, at = read_topic_id(bytes(frame[at : at + 16])), at + 16
    else:
        topic, at = _read_text(frame, at, flexible)
    partition_count, at = _read_count(frame, at, flexible)
    return None if topic is None or partition_count != 1 else RequestStart(acks, timeout_ms, topic, at)


def _read_count(frame: bytearray, at: int, flexible: bool) -> tuple[int, int]:
    """A number of elements or bytes, −1 for null, and where it ends."""
    if not flexible:
        return _I32.unpack_from(frame, at)[0], at + 4
    if (byte := frame[at]) < 0x80:
        return byte - 1, at + 1
    cursor = Cursor(frame, at)
    return cursor.read_varint() - 1, cursor.at


def _read_text(frame: bytearray, at: int, flexible: bool) -> tuple[str | None, int]:
    """A nullable string, and where it ends."""
    if flexible:
        size, at = _read_count(frame, at, flexible)
    else:
        size, at = _I16.unpack_from(frame, at)[0], at + 2
    if size < 0:
        return None, at
    if at + size > len(frame) or size > MAX_STRING_BYTES:
        raise MalformedMessage(f"a string of {size} bytes at {at}")
    return frame[at : at + size].decode(), at + size


def _skip_tags(frame: bytearray, at: int) -> int:
    if not frame[at]:
        return at + 1
    cursor = Cursor(frame, at)
    skip_tagged_fields(cursor)
    return cursor.at


def write_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[Topic, Sequence[ProduceResponsePartition]]],
    endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
) -> bytearray:
    """A whole response, with its size in front. `endpoints`: endpoints of the leaders in it."""
    out = bytearray(8)
    flexible = version >= FLEXIBLE_SINCE
    if flexible:
        out.append(0)
    write_length(out, len(topics), flexible)
    for topic, partitions in topics:
        write_topic(out, topic, flexible)
        write_length(out, len(partitions), flexible)
        for partition in partitions:
            _write_partition(out, partition, version, flexible)
        if flexible:
            out.append(0)
    if version >= 1:
        out += _I32.pack(throttle_ms) if throttle_ms else b"\0\0\0\0"
    if flexible:
        write_node_endpoints(out, endpoints if version >= CURRENT_LEADER_SINCE else ())
    _HEAD.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


_PARTITION_V0 = struct.Struct(">ihq")
_PARTITION_V2 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")


def _write_partition(out: bytearray, data: ProduceResponsePartition, version: int, flexible: bool) -> None:
    if version >= 5:
        out += _PARTITION_V5.pack(data.partition, data.error, data.base_offset, data.log_append_time_ms, data.log_start)
    elif version >= 2:
        out += _PARTITION_V2.pack(data.partition, data.error, data.base_offset, data.log_append_time_ms)
    else:
        out += _PARTITION_V0.pack(data.partition, data.error, data.base_offset)
    if version >= RECORD_ERRORS_SINCE:
        if data.record_errors:
            _write_record_errors(out, data.record_errors, flexible)
        else:
            write_length(out, 0, flexible)
        _write_text(out, data.message, flexible)
    if flexible:
        if data.leader is None or version < CURRENT_LEADER_SINCE:
            out.append(0)
        else:
            out.append(1)
            write_current_leader(out, 0, data.leader)


def _write_record_errors(out: bytearray, errors: Sequence[tuple[int, str | None]], flexible: bool) -> None:
    write_length(out, len(errors), flexible)
    for index, message in errors:
        out += _I32.pack(index)
        _write_text(out, message, flexible)
        if flexible:
            out.append(0)


def write_topic(out: bytearray, topic: Topic, flexible: bool) -> None:
    if isinstance(topic, str):
        _write_text(out, topic, flexible)
    else:
        out += topic.bytes


def _write_text(out: bytearray, text: str | None, flexible: bool) -> None:
    encoded = None if text is None else text.encode()
    if flexible:
        write_varint(out, 0 if encoded is None else len(encoded) + 1)
    else:
        out += _I16.pack(-1 if encoded is None else len(encoded))
    out += encoded or b""
