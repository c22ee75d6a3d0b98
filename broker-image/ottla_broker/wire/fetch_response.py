"""Hand-written codec of Fetch responses (1), versions 4–18: records go out as the buffers that they
were read into, and come in as views of the frame.

Layout: throttle time i32 · error i16 and session id i32 (v7+) · topics [name, or id from v13 ·
partitions [index i32 · error i16 · high watermark i64 · last stable offset i64 · log start i64
(v5+) · aborted transactions [producer id i64 · first offset i64] · preferred replica i32 (v11+) ·
records · tags (v12+): 0 diverging epoch, 1 current leader, 2 snapshot]] · tag 0: endpoints of
leaders (v16+). Flexible from v12. Tested against kio's codec in every version.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_request import FLEXIBLE_SINCE, RACK_SINCE, SESSIONS_SINCE
from ottla_broker.wire.message_reader import Cursor, MalformedMessage, skip_tagged_fields
from ottla_broker.wire.message_writer import write_length
from ottla_broker.wire.node_endpoints import LEADER, NodeEndpoint, write_current_leader, write_node_endpoints
from ottla_broker.wire.produce import Topic, read_topic_id, write_topic

LOG_START_SINCE: Final = 5
ENDPOINTS_SINCE: Final = 16
NO_REPLICA: Final = -1
MAX_PARTITIONS: Final = 2_000_000  # of one response: it may be larger than a client's request (MAX_ELEMENTS)
JOIN_BELOW_BYTES: Final = 4096
"""Smaller records are copied into the buffer around them: one write of one piece is cheaper."""

_I32 = struct.Struct(">i")
_FIXED_V4 = struct.Struct(">ihqq")
_FIXED_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_HEAD = struct.Struct(">ii")  # size, correlation id
_DIVERGING = struct.Struct(">iq")
_SNAPSHOT = struct.Struct(">qi")
_TOP = struct.Struct(">ihi")  # throttle time, error, session id
_ERRORS: Final = {int(code): code for code in ErrorCode}


@dataclass(slots=True)
class FetchResponsePartition:
    """`aborted`: (producer id, first offset) of the aborted transactions with records in `records`,
    for read_committed; else None. `leader`: (id, epoch) of the current leader, for a client that
    asked the wrong broker. `diverging`: (epoch, end offset) in the leader's log where the fetcher's
    log diverges from it. `snapshot`: (end offset, epoch) of the snapshot to fetch instead.
    `preferred`: the replica that a consumer should read from instead (KIP-392)."""

    topic: Topic
    partition: int
    error: ErrorCode = ErrorCode.none
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1
    records: Buffer = b""
    aborted: Sequence[tuple[int, int]] | None = None
    leader: tuple[int, int] | None = None
    diverging: tuple[int, int] | None = None
    snapshot: tuple[int, int] | None = None
    preferred: int = NO_REPLICA


@dataclass(slots=True)
class FetchResponse:
    """`error`: that of the whole response, such as an unknown session."""

    error: ErrorCode
    session_id: int
    partitions: list[FetchResponsePartition]


def write_fetch_response(
    version: int,
    correlation_id: int,
    partitions: Sequence[FetchResponsePartition],
    *,
    error: ErrorCode = ErrorCode.none,
    session_id: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
) -> list[Buffer]:
    """A whole response as the buffers to send in order, with its size in front. `endpoints`:
    endpoints of the leaders in it."""
    flexible = version >= FLEXIBLE_SINCE
    out = bytearray(8)
    buffers: list[Buffer] = [out]
    if flexible:
        out.append(0)
    out += _TOP.pack(throttle_ms, error, session_id) if version >= SESSIONS_SINCE else _I32.pack(throttle_ms)
    topics: dict[Topic, list[FetchResponsePartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    write_length(out, len(topics), flexible)
    for topic, of_topic in topics.items():
        write_topic(out, topic, flexible)
        write_length(out, len(of_topic), flexible)
        for partition in of_topic:
            out = _write_partition(buffers, out, partition, version, flexible)
        if flexible:
            out.append(0)
    if flexible:
        write_node_endpoints(out, endpoints if version >= ENDPOINTS_SINCE else ())
    if not out:
        buffers.pop()
    head = buffers[0]
    assert isinstance(head, bytearray)
    _HEAD.pack_into(head, 0, sum(map(len, buffers)) - 4, correlation_id)
    return buffers


def _write_partition(
    buffers: list[Buffer], out: bytearray, partition: FetchResponsePartition, version: int, flexible: bool
) -> bytearray:
    """Writes a partition. Returns the buffer to write the next bytes to: `out`, or a new one after
    records."""
    if version >= LOG_START_SINCE:
        out += _FIXED_V5.pack(
            partition.partition,
            partition.error,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start,
        )
    else:
        out += _FIXED_V4.pack(
            partition.partition, partition.error, partition.high_watermark, partition.last_stable_offset
        )
    aborted = partition.aborted
    if aborted is None:
        out += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        write_length(out, len(aborted), flexible)
        for transaction in aborted:
            out += _ABORTED.pack(*transaction)
            if flexible:
                out.append(0)
    if version >= RACK_SINCE:
        out += _I32.pack(partition.preferred)
    records = partition.records
    write_length(out, len(records), flexible)
    if len(records) < JOIN_BELOW_BYTES:
        out += records
    else:
        out = bytearray()
        buffers += (records, out)
    if flexible:
        if partition.diverging is None and partition.leader is None and partition.snapshot is None:
            out.append(0)
        else:
            _write_tags(out, partition)
    return out


def _write_tags(out: bytearray, partition: FetchResponsePartition) -> None:
    diverging, leader, snapshot = partition.diverging, partition.leader, partition.snapshot
    out.append((diverging is not None) + (leader is not None) + (snapshot is not None))
    if diverging is not None:
        _write_tag(out, 0, _DIVERGING, diverging)
    if leader is not None:
        write_current_leader(out, 1, leader)
    if snapshot is not None:
        _write_tag(out, 2, _SNAPSHOT, snapshot)


def _write_tag(out: bytearray, tag: int, layout: struct.Struct, value: tuple[int, int]) -> None:
    out += bytes((tag, layout.size + 1))
    out += layout.pack(*value)
    out.append(0)  # its own section of tags


def read_fetch_response(frame: bytearray) -> FetchResponse:
    """Reads a response of one of the versions 13–18 without its size. Raises MalformedMessage."""
    try:
        return _read(frame)
    except struct.error as error:
        raise MalformedMessage(f"the fetch response ends early: {error}") from error


def _read(frame: bytearray) -> FetchResponse:
    cursor = Cursor(frame, 4)
    cursor.elements_left = MAX_PARTITIONS
    skip_tagged_fields(cursor)
    view = memoryview(frame)
    _, error, session_id = _TOP.unpack_from(frame, cursor.at)
    cursor.at += _TOP.size
    partitions: list[FetchResponsePartition] = []
    for _ in range(cursor.read_array_length(flexible=True)):
        topic = read_topic_id(bytes(cursor.read_bytes(16)))
        for _ in range(cursor.read_array_length(flexible=True)):
            partitions.append(_read_partition(cursor, view, topic))
        skip_tagged_fields(cursor)
    return FetchResponse(_error(error), session_id, partitions)


def _read_partition(cursor: Cursor, view: memoryview, topic: Topic) -> FetchResponsePartition:
    index, error, high_watermark, last_stable_offset, log_start = _FIXED_V5.unpack_from(cursor.data, cursor.at)
    cursor.at += _FIXED_V5.size
    count = cursor.read_array_length(flexible=True)
    aborted = None if count < 0 else [_read_aborted(cursor) for _ in range(count)]
    preferred = cursor.read_fixed(_I32)
    size = max(cursor.read_varint() - 1, 0)
    if size > cursor.end - cursor.at:
        raise MalformedMessage(f"{size} bytes of records, {cursor.end - cursor.at} are left")
    records = view[cursor.at : cursor.at + size]
    cursor.at += size
    partition = FetchResponsePartition(
        topic,
        index,
        _error(error),
        high_watermark,
        last_stable_offset,
        log_start,
        records,
        aborted,
        preferred=preferred,
    )
    for _ in range(cursor.read_varint()):
        tag, length = cursor.read_varint(), cursor.read_varint()
        section = cursor.at
        cursor.read_bytes(length)
        if tag == 0:
            partition.diverging = _DIVERGING.unpack_from(cursor.data, section)
        elif tag == 1:
            partition.leader = LEADER.unpack_from(cursor.data, section)
        elif tag == 2:
            partition.snapshot = _SNAPSHOT.unpack_from(cursor.data, section)
    return partition


def _read_aborted(cursor: Cursor) -> tuple[int, int]:
    producer_id, first_offset = _ABORTED.unpack_from(cursor.data, cursor.at)
    cursor.at += _ABORTED.size
    skip_tagged_fields(cursor)
    return producer_id, first_offset


def _error(number: int) -> ErrorCode:
    return _ERRORS.get(number, ErrorCode.unknown_server_error)
