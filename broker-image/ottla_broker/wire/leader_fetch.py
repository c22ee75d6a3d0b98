"""Fetch (1) as a leader reads and answers its followers, version 17, by hand: the other end of `replica_fetch`.

Topic ids stay the 16 bytes that they are on the wire; the layout is in `fetch`.
"""

import struct
from dataclasses import dataclass
from typing import Final

from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.codec import RequestHeader
from ottla_broker.wire.message_reader import Cursor, MalformedMessage, skip_tagged_fields
from ottla_broker.wire.message_writer import write_varint

VERSION: Final = 17
MOST_PARTITIONS: Final = 2_000_000  # of one request; it comes from a broker of ours
_JOIN_BELOW: Final = 4096  # bytes; smaller records are copied into the buffer around them

_FRONT = struct.Struct(">iiibii")  # longest wait, least and most bytes, isolation, session id and epoch
_WANTED = struct.Struct(">iiqiqi")
_I32 = struct.Struct(">i")
_REPLICA = struct.Struct(">iq")
_HEAD = struct.Struct(">iibihi")  # size, correlation id, no tags, throttle time, error, session id
_HELD = struct.Struct(">ihqqqbi")  # with null for aborted transactions, and no preferred replica
_DIVERGING = struct.Struct(">iq")
_NO_TAGS = b"\0"

Wanted = tuple[int, int, int, int, int, int]
"""(partition, leader epoch, offset, epoch of the last record, log start, most bytes)"""


@dataclass(slots=True)
class FollowerRequest:
    """`changed`: (topic, what is wanted); `forgotten`: (topic, partition)."""

    replica: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    changed: list[tuple[bytes, Wanted]]
    forgotten: list[tuple[bytes, int]]


def read_request(frame: bytearray, header: RequestHeader) -> FollowerRequest:
    """Raises Malformed."""
    try:
        return _read(frame, Cursor(frame, header.body_offset))
    except (struct.error, IndexError) as error:
        raise MalformedMessage(f"a follower's fetch ends early: {error}") from error


def _read(frame: bytearray, cursor: Cursor) -> FollowerRequest:
    cursor.elements = MOST_PARTITIONS
    skip_tagged_fields(cursor)
    max_wait_ms, min_bytes, max_bytes, _, session_id, session_epoch = _FRONT.unpack_from(frame, cursor.at)
    cursor.at += _FRONT.size
    changed: list[tuple[bytes, Wanted]] = []
    for _ in range(cursor.read_array_length(flexible=True)):
        topic = bytes(cursor.read_bytes(16))
        for _ in range(cursor.read_array_length(flexible=True)):
            changed.append((topic, _WANTED.unpack_from(frame, cursor.at)))
            cursor.at += _WANTED.size
            if frame[cursor.at]:
                skip_tagged_fields(cursor)
            else:
                cursor.at += 1
        skip_tagged_fields(cursor)
    forgotten: list[tuple[bytes, int]] = []
    for _ in range(cursor.read_array_length(flexible=True)):
        topic = bytes(cursor.read_bytes(16))
        forgotten += [(topic, cursor.read_fixed(_I32)) for _ in range(cursor.read_array_length(flexible=True))]
        skip_tagged_fields(cursor)
    cursor.read_string(flexible=True)  # a follower has no rack to choose by
    replica, replica_epoch = -1, -1
    for _ in range(cursor.read_varint()):
        tag, size = cursor.read_varint(), cursor.read_varint()
        section = cursor.at
        cursor.read_bytes(size)
        if tag == 1:
            replica, replica_epoch = _REPLICA.unpack_from(frame, section)
    return FollowerRequest(
        replica, replica_epoch, max_wait_ms, min_bytes, max_bytes, session_id, session_epoch, changed, forgotten
    )


class Answer:
    """A response that is written as it is found. Partitions of one topic that follow each other share its entry."""

    __slots__ = ("_buffers", "_count_at", "_in_topic", "_last", "_topic", "_topics", "partitions", "size")

    def __init__(self) -> None:
        self.partitions = 0
        self.size = 0  # bytes of records
        self._last = bytearray()
        self._buffers: list[Buffer] = [self._last]
        self._topics: list[tuple[bytes, int, list[Buffer]]] = []
        self._topic: bytes | None = None
        self._in_topic = 0

    def put(
        self,
        topic: bytes,
        partition: int,
        error: int,
        high_watermark: int,
        log_start: int,
        records: Buffer,
        diverging: tuple[int, int] | None,
    ) -> None:
        if topic != self._topic:
            self._end_topic()
            self._topic = topic
        self.partitions += 1
        self._in_topic += 1
        out = self._last
        out += _HELD.pack(partition, error, high_watermark, -1, log_start, 0, -1)
        size = len(records)
        write_varint(out, size + 1)
        if size < _JOIN_BELOW:
            out += records
        else:
            self._last = out = bytearray()
            self._buffers += (records, out)
        self.size += size
        if diverging is None:
            out += _NO_TAGS
        else:
            out += b"\x01\x00\x0d"
            out += _DIVERGING.pack(*diverging)
            out += _NO_TAGS

    def _end_topic(self) -> None:
        if self._topic is not None:
            self._last += _NO_TAGS
            self._topics.append((self._topic, self._in_topic, self._buffers))
            self._last = bytearray()
            self._buffers = [self._last]
            self._in_topic = 0

    def finish(self, correlation_id: int, session_id: int, error: int = 0) -> list[Buffer]:
        """The whole response, with its size in front."""
        self._end_topic()
        self._topic = None
        last = bytearray(_HEAD.size)
        write_varint(last, len(self._topics) + 1)
        pieces: list[Buffer] = [last]
        for topic, partitions, buffers in self._topics:
            last += topic
            write_varint(last, partitions + 1)
            first, *others = buffers
            last += first
            if others:
                pieces += others
                tail = others[-1]
                assert isinstance(tail, bytearray)
                last = tail
        last += _NO_TAGS
        size = sum(map(len, pieces))
        head = pieces[0]
        assert isinstance(head, bytearray)
        _HEAD.pack_into(head, 0, size - 4, correlation_id, 0, 0, error, session_id)
        return pieces
