"""The responses of one connection that its client has not read, counted in the memory pool of all
connections.
"""

from collections.abc import Callable
from typing import Final

from ottla_broker.memory_pool import MemoryPool

PAUSE_WRITING_BYTES: Final = 64 * 1024
"""Unsent bytes at which work on a connection pauses, until no more than RESUME_WRITING_BYTES are
left.
"""
RESUME_WRITING_BYTES: Final = 16 * 1024


class UnsentResponses:
    """`bytes`: bytes that the transport had not sent when they were counted last; 0 while the
    client reads. `stuck_since_s`: when they last became fewer. `last_written`: size of the last
    response.
    """

    __slots__ = ("_clock", "_counted_bytes", "_pool", "bytes", "last_written", "stuck_since_s")

    def __init__(self, pool: MemoryPool, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._clock = clock
        self._counted_bytes = 0  # in the pool
        self.bytes = 0
        self.last_written = 0
        self.stuck_since_s = 0.0

    def begin(self, unsent: int) -> None:
        """Called when the transport holds so much that work on the connection pauses."""
        self.stuck_since_s = self._clock()
        self.bytes = unsent
        # A response that was sent in part stays in memory until its last byte is sent.
        self._count(max(unsent, self.last_written))

    def recount(self, unsent: int) -> None:
        """Records that `unsent` bytes are left. Any progress of the client restarts its timeout."""
        if unsent < self.bytes:
            self.stuck_since_s = self._clock()
            self.bytes = unsent

    def end(self) -> None:
        """Called when the client has read enough, or is gone."""
        self.bytes = 0
        self._count(0)

    def _count(self, held: int) -> None:
        change, self._counted_bytes = held - self._counted_bytes, held
        if change > 0:
            self._pool.count_allocated(change)
        elif change < 0:
            self._pool.release(-change)
