"""Splits a stream of bytes into frames: messages with their size in front. Knows nothing of their
content.

Small frames are received in a scratch buffer that all connections share, and copied out: a
connection that waits for bytes holds no memory. A large frame gets a buffer of its own, into which
the socket then writes directly. Its memory is claimed before it is allocated: if `claim` refuses,
the connection stops reading until memory is available.
"""

import struct
from collections.abc import Callable
from typing import Final

from ottla_broker.wire.message_reader import MalformedMessage

SCRATCH_BYTES: Final = 128 * 1024
SMALL_FRAME_BYTES: Final = SCRATCH_BYTES - 4  # memory for frames of at most this size is not claimed
# With this many bytes of a frame received, copying them again costs more than a buffer for the
# frame.
_OWN_BUFFER_BYTES: Final = 16 * 1024

_SIZE: Final = struct.Struct(">i")
_TLS_HANDSHAKE: Final = 0x1603  # first bytes of a TLS client (RFC 8446, 5.1)


class FrameReader:
    """The receiving half of one connection, with methods as asyncio.BufferedProtocol has them.

    `scratch` is shared by the readers of one thread: bytes that are written to the result of
    `get_buffer` must be passed to `buffer_updated` before another reader is used. `max_bytes`: the
    largest frame; `limit_name`: the setting of that limit, for errors. `is_stalled` is true while
    memory is refused.
    """

    __slots__ = ("_claim", "_frame", "_limit_name", "_max_bytes", "_received", "_rest", "_scratch", "is_stalled")

    def __init__(
        self, scratch: memoryview, max_bytes: int, claim: Callable[[int], bool], limit_name: str = "the limit"
    ) -> None:
        self._scratch = scratch
        self._max_bytes = max_bytes
        self._limit_name = limit_name
        self._claim = claim
        self._frame: bytearray | None = None  # a frame with a buffer of its own
        self._received = 0  # bytes of `_frame`
        self._rest = b""  # the received beginning of a frame that has no buffer of its own
        self.is_stalled = False

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes of the stream."""
        if self._frame is not None:
            return memoryview(self._frame)[self._received :]
        if self._rest:
            self._scratch[: len(self._rest)] = self._rest
            return self._scratch[len(self._rest) :]
        return self._scratch

    def buffer_updated(self, count: int) -> list[bytearray]:
        """Takes `count` bytes from the buffer; returns whole frames, without their sizes.

        If memory is refused, `is_stalled` is set: stop reading, and call `resume` when memory is
        available. Raises MalformedMessage if a size is negative or exceeds the limit.
        """
        if self._frame is not None:
            self._received += count
            if self._received < len(self._frame):
                return []
            frame, self._frame = self._frame, None
            return [frame]
        filled = len(self._rest) + count
        self._rest = b""
        if filled >= 4:  # mostly one whole frame
            (size,) = _SIZE.unpack_from(self._scratch)
            if size == filled - 4 and size <= self._max_bytes:
                return [bytearray(self._scratch[4:filled])]
        return self._split(self._scratch[:filled])

    def resume(self) -> None:
        """Tries again to claim the refused memory; sets `is_stalled` if it is refused again."""
        if self.is_stalled:
            self.is_stalled = False
            rest, self._rest = self._rest, b""
            self._split(memoryview(rest))

    def limit_frames(self, max_bytes: int, limit_name: str) -> None:
        """Limits the size of frames, from the next frame on."""
        self._max_bytes = max_bytes
        self._limit_name = limit_name

    @property
    def claimed_bytes(self) -> int:
        """Bytes that are claimed for an incomplete frame."""
        return len(self._frame) if self._frame is not None and len(self._frame) > SMALL_FRAME_BYTES else 0

    def _split(self, data: memoryview) -> list[bytearray]:
        frames: list[bytearray] = []
        at, end = 0, len(data)
        while end - at >= 4:
            (size,) = _SIZE.unpack_from(data, at)
            if not 0 <= size <= self._max_bytes:
                if size >> 16 == _TLS_HANDSHAKE:
                    raise MalformedMessage("the client uses TLS, and this listener does not")
                raise MalformedMessage(f"a message of {size} bytes; {self._limit_name} is {self._max_bytes}")
            stop = at + 4 + size
            if stop <= end:
                frames.append(bytearray(data[at + 4 : stop]))
                at = stop
            elif self._allocate(size, data[at + 4 : end]):
                return frames
            else:
                break
        self._rest = bytes(data[at:end])
        return frames

    def _allocate(self, size: int, received: memoryview) -> bool:
        """Allocates a buffer for an incomplete frame, unless that is small or its memory is
        refused.
        """
        if size <= SMALL_FRAME_BYTES:
            if len(received) < _OWN_BUFFER_BYTES:
                return False
        elif not self._claim(size):
            self.is_stalled = True
            return False
        self._frame = bytearray(size)
        self._frame[: len(received)] = received
        self._received = len(received)
        return True
