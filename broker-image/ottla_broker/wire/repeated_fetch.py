"""A client's next Fetch is mostly its last one with another offset: then nothing else of it is read again."""

import struct
from typing import Final

from ottla_broker.wire.codec import RequestHeader
from ottla_broker.wire.fetch import BY_STATE, FLEXIBLE, FetchRequest, FetchRequestPartition, read_fetch_request

_SESSIONS_FROM: Final = 7
_CORRELATION: Final = slice(4, 8)
_I64 = struct.Struct(">q")
_SESSION = struct.Struct(">ii")


class RepeatedFetch:
    """The Fetch requests of one connection, one after the other. Only one that names a single partition is remembered."""

    __slots__ = ("_epoch_at", "_frame", "_offset_at", "_request")

    def __init__(self) -> None:
        self._frame = bytearray()
        self._request: FetchRequest | None = None
        self._epoch_at = 0
        self._offset_at = 0

    def read(self, frame: bytearray, header: RequestHeader) -> FetchRequest:
        """As `read_fetch`; keeps the frame."""
        last, known = self._frame, self._request
        if known is None or len(last) != len(frame):
            return self._read_anew(frame, header)
        epoch_at, at = self._epoch_at, self._offset_at
        last[_CORRELATION] = frame[_CORRELATION]
        last[at : at + 8] = frame[at : at + 8]
        last[epoch_at : epoch_at + 4] = frame[epoch_at : epoch_at + 4]
        if last != frame:
            return self._read_anew(frame, header)
        (session_id, session_epoch), (offset,) = _SESSION.unpack_from(frame, epoch_at - 4), _I64.unpack_from(frame, at)
        was = known.partitions[0]
        return FetchRequest(
            known.replica,
            known.max_wait_ms,
            known.min_bytes,
            known.max_bytes,
            known.isolation,
            session_id,
            session_epoch,
            [
                FetchRequestPartition(
                    was.topic,
                    was.partition,
                    offset,
                    was.max_bytes,
                    was.leader_epoch,
                    was.last_fetched_epoch,
                    was.log_start,
                    was.directory,
                )
            ],
            known.forgotten,
            known.rack,
            known.replica_epoch,
        )

    def _read_anew(self, frame: bytearray, header: RequestHeader) -> FetchRequest:
        request = read_fetch_request(frame, header)
        self._request = None
        if len(request.partitions) == 1 and header.version >= _SESSIONS_FROM:
            epoch_at = _epoch_at(header)
            if frame[header.body_offset] == 0 or header.version < FLEXIBLE:  # no tags in front
                self._frame, self._request = frame, request
                self._epoch_at, self._offset_at = epoch_at, request.partitions[0].at
        return request


def _epoch_at(header: RequestHeader) -> int:
    """Where the session's epoch stands, behind (replica,) wait, bytes, isolation and the session's id."""
    flexible, by_state = header.version >= FLEXIBLE, header.version >= BY_STATE
    return header.body_offset + flexible + (0 if by_state else 4) + 13 + 4
