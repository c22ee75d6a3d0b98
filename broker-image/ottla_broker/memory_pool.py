"""How much memory requests and answers may take, over all connections.

Requests: bytes of large frames, claimed before their buffers are made. Responses: bytes that transports hold because
their readers are slow. Both are shared by everybody, so both name who waits, in order, and wake them when memory
comes back.
"""

from collections import deque
from collections.abc import Callable


class MemoryPool:
    """`limit` bytes. A claim is granted while less than the limit is taken, so what is taken stays below the limit
    plus one claim."""

    __slots__ = ("_waiting", "limit", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def is_exhausted(self) -> bool:
        return self.taken >= self.limit

    @property
    def has_waiters(self) -> bool:
        """Somebody waits for memory."""
        return bool(self._waiting)

    def try_allocate(self, size: int) -> bool:
        if self.is_exhausted:
            return False
        self.taken += size
        return True

    def count_allocated(self, size: int) -> None:
        """Counts memory that is taken already."""
        self.taken += size

    def release(self, size: int) -> None:
        self.taken -= size
        while self._waiting and not self.is_exhausted:
            self._waiting.popleft()()

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """`wake` is called once, when there is memory again; it may find that another was faster."""
        self._waiting.append(wake)

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        if wake in self._waiting:
            self._waiting.remove(wake)
