"""A client's next Produce is mostly its last one with other records: then nothing but their size is read again."""

import struct
from typing import Final
from uuid import UUID

from ottla_broker.wire.codec import RequestHeader
from ottla_broker.wire.message_reader import Cursor
from ottla_broker.wire.produce import FLEXIBLE, ProduceRequest, read_produce_request

_CORRELATION_AT: Final = 4
_BEHIND_CORRELATION: Final = 8
_NO_TAGS: Final = b"\0\0\0"  # of the partition, its topic and the request
_I32 = struct.Struct(">i")


class RepeatedProduce:
    """The Produce requests of one connection, one after the other. Only one to a single partition is remembered."""

    __slots__ = ("_at", "_known", "_place", "_rest", "_start")

    def __init__(self) -> None:
        self._known: ProduceRequest | None = None  # without what it brought …
        self._place: tuple[str | UUID, int] = "", -1  # … to this topic and partition
        self._start = b""  # up to the correlation id …
        self._rest = b""  # … and behind it, up to …
        self._at = 0  # … where the size of the records stands

    def read(self, frame: bytearray, header: RequestHeader) -> ProduceRequest:
        """As `read_produce`."""
        known = self._known
        if known is None or not (frame.startswith(self._start) and frame.startswith(self._rest, _BEHIND_CORRELATION)):
            return self._read_anew(frame, header)
        records = _all_that_is_left(frame, self._at, header.version)
        if records is None:
            return self._read_anew(frame, header)
        topic, index = self._place
        return ProduceRequest(known.transactional_id, known.acks, known.timeout_ms, [(topic, [(index, records)])])

    def _read_anew(self, frame: bytearray, header: RequestHeader) -> ProduceRequest:
        request = read_produce_request(frame, header)
        self._known = None
        if len(request.topics) == 1 and len(request.topics[0][1]) == 1:
            ((topic, ((index, _),)),) = request.topics
            self._place = topic, index
            self._at = at = request.at
            self._start, self._rest = bytes(frame[:_CORRELATION_AT]), bytes(frame[_BEHIND_CORRELATION:at])
            self._known = ProduceRequest(request.transactional_id, request.acks, request.timeout_ms, [])
        return request


def _all_that_is_left(frame: bytearray, at: int, version: int) -> memoryview | None:
    """Records whose size stands at `at`, when nothing follows them but empty tags; None when something is otherwise."""
    end = len(frame)
    if version < FLEXIBLE:
        if end - at < _I32.size or _I32.unpack_from(frame, at)[0] != end - at - _I32.size:
            return None
        return memoryview(frame)[at + _I32.size :]
    cursor = Cursor(frame, at)
    end -= len(_NO_TAGS)
    if end <= at or cursor.read_varint() - 1 != end - cursor.at or not frame.endswith(_NO_TAGS):
        return None
    return memoryview(frame)[cursor.at : end]
