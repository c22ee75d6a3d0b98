"""A connection's fetch that differs from the one before it only in its offset."""

from typing import Final

from ottla_broker.requests.fetch_until_due import Fetch

CORRELATION_ID_AT: Final = 4  # in a request without its size
REST_AT: Final = 8


class RepeatedFetch:
    """The last fetch of a connection, if it named one partition without a session. A consumer's
    next one mostly differs only in its offset and correlation id, and is not parsed again: twenty
    consumers cost 1.37 s of processor time per GB instead of 1.53 (bench line `fan-out`, medians of
    four)."""

    __slots__ = ("_fetch", "_front", "_offset_at", "_rest", "_tail")

    def __init__(self, frame: bytearray, fetch: Fetch) -> None:
        self._fetch = fetch
        self._offset_at = at = fetch.request.offset_at
        self._front = bytes(frame[:CORRELATION_ID_AT])
        self._rest = bytes(frame[REST_AT:at])
        self._tail = bytes(frame[at + 8 :])

    def restart(self, frame: bytearray) -> Fetch | None:
        """The last fetch with this frame's offset and correlation id. None if the frame differs in
        anything else, or while the last fetch still waits.
        """
        fetch, at, tail = self._fetch, self._offset_at, self._tail
        if (
            len(frame) != at + 8 + len(tail)
            or not frame.startswith(self._front)
            or not frame.startswith(self._rest, REST_AT)
            or not frame.endswith(tail)
            or fetch.session.wake is not None
        ):
            return None
        (cached,) = fetch.session.changed
        cached.request.offset = int.from_bytes(frame[at : at + 8], signed=True)
        fetch.correlation_id = int.from_bytes(frame[CORRELATION_ID_AT:REST_AT], signed=True)
        return fetch
