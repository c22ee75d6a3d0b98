"""Frames: messages with their size in front, cut out of a stream of bytes. Knows nothing of what is in them.

Small frames are read through a scratch buffer that all connections share (a connection that waits for bytes holds
none), and copied out. A large frame gets a buffer of its own, into which the socket then writes directly. Its memory
is asked for before it is taken: `claim` may say no, and the connection stops reading until it says yes.
"""

import struct
from collections.abc import Callable
from typing import Final

from ottla_broker.wire.message_reader import MalformedMessage

SCRATCH_BYTES: Final = 128 * 1024
SMALL_FRAME_BYTES: Final = SCRATCH_BYTES - 4  # frames of at most this many bytes are not claimed for
_OWN_BUFFER_FROM: Final = (
    16 * 1024
)  # bytes already there; from here on copying them about again costs more than a buffer

_SIZE: Final = struct.Struct(">i")
_TLS: Final = 0x1603  # how a client of TLS begins (RFC 8446, 5.1), read as a size


class FrameReader:
    """The receiving half of one connection. `scratch` is shared by readers of one thread: what `buffer` gives must
    be filled and handed to `received` before another reader is asked."""

    __slots__ = ("_claim", "_frame", "_have", "_max_bytes", "_rest", "_scratch", "stalled")

    def __init__(self, scratch: memoryview, max_bytes: int, claim: Callable[[int], bool]) -> None:
        self._scratch = scratch
        self._max_bytes = max_bytes
        self._claim = claim
        self._frame: bytearray | None = None
        self._have = 0
        self._rest = b""
        self.stalled = False

    def get_buffer(self) -> memoryview:
        """Where the next bytes of the stream go."""
        if self._frame is not None:
            return memoryview(self._frame)[self._have :]
        if self._rest:
            self._scratch[: len(self._rest)] = self._rest
            return self._scratch[len(self._rest) :]
        return self._scratch

    def buffer_updated(self, count: int) -> list[bytearray]:
        """Whole frames (without their sizes), after `count` bytes were put into `buffer`. Malformed when a size is
        negative or above the limit. When memory was refused, `stalled` is set: read no more, and call `resume` when
        there may be some."""
        if self._frame is not None:
            self._have += count
            if self._have < len(self._frame):
                return []
            frame, self._frame = self._frame, None
            return [frame]
        filled = len(self._rest) + count
        self._rest = b""
        return self._split(self._scratch[:filled])

    def resume(self) -> None:
        """Asks again for the memory that was refused."""
        if self.stalled:
            self.stalled = False
            rest, self._rest = self._rest, b""
            self._split(memoryview(rest))

    @property
    def claimed_bytes(self) -> int:
        """Bytes claimed for the frame that is not whole yet."""
        return len(self._frame) if self._frame is not None and len(self._frame) > SMALL_FRAME_BYTES else 0

    def _split(self, data: memoryview) -> list[bytearray]:
        frames: list[bytearray] = []
        at, end = 0, len(data)
        while end - at >= 4:
            (size,) = _SIZE.unpack_from(data, at)
            if not 0 <= size <= self._max_bytes:
                if size >> 16 == _TLS:
                    raise MalformedMessage("it speaks TLS, and this listener does not")
                raise MalformedMessage(f"a request of {size} bytes; socket.request.max.bytes is {self._max_bytes}")
            stop = at + 4 + size
            if stop <= end:
                frames.append(bytearray(data[at + 4 : stop]))
                at = stop
            elif self._start(size, data[at + 4 : end]):
                return frames
            else:
                break
        self._rest = bytes(data[at:end])
        return frames

    def _start(self, size: int, have: memoryview) -> bool:
        """Gives a frame that is not whole a buffer of its own, if it should have one and may."""
        if size <= SMALL_FRAME_BYTES:
            if len(have) < _OWN_BUFFER_FROM:
                return False
        elif not self._claim(size):
            self.stalled = True
            return False
        self._frame = bytearray(size)
        self._frame[: len(have)] = have
        self._have = len(have)
        return True
