"""Recognizes a request that repeats an earlier one of the same connection, but for its correlation
id and a generation or member epoch.
"""

from typing import Final

from ottla_broker.requests.reply import Reply
from ottla_broker.wire.message_reader import Cursor, skip_tagged_fields
from ottla_broker.wire.request_header import RequestHeader

CORRELATION_ID: Final = slice(4, 8)
"""In a request without its size, and in a response after its size."""
EPOCH_SIZE: Final = 4


class RequestPattern:
    """The bytes that all repetitions of a request have in common. `frame`: the request without its
    size. `epoch_at`: offset of the epoch in it.
    """

    def __init__(self, frame: bytes, epoch_at: int) -> None:
        self._size = len(frame)
        self._front = frame[: CORRELATION_ID.start]
        self._before_epoch = frame[CORRELATION_ID.stop : epoch_at]
        self._epoch = slice(epoch_at, epoch_at + EPOCH_SIZE)
        self._after_epoch = frame[self._epoch.stop :]

    def matches(self, frame: bytearray) -> bool:
        return (
            len(frame) == self._size
            and frame.startswith(self._front)
            and frame.startswith(self._before_epoch, CORRELATION_ID.stop)
            and frame.endswith(self._after_epoch)
        )

    def epoch_of(self, frame: bytearray) -> int:
        return int.from_bytes(frame[self._epoch], signed=True)


class UnparsedRequest:
    """The last heartbeat of a connection until it is parsed: no request repeats it. When it is
    parsed, its pattern can be made.
    """

    __slots__ = ("body_offset", "frame", "key")

    def __init__(self, frame: bytearray, header: RequestHeader) -> None:
        self.key = header.api_key
        self.frame = bytes(frame)
        self.body_offset = header.body_offset

    def is_repeated_by(self, frame: bytearray) -> bool:
        return False

    def repeat(self, frame: bytearray) -> Reply:
        return None

    def pattern(self, string_count: int, flexible: bool = True) -> RequestPattern:
        """`string_count`: of the strings in its body before the epoch. `flexible`: whether its
        version is flexible."""
        cursor = Cursor(self.frame, self.body_offset)
        if flexible:
            skip_tagged_fields(cursor)
        for _ in range(string_count):
            cursor.read_string(flexible)
        return RequestPattern(self.frame, cursor.at)
