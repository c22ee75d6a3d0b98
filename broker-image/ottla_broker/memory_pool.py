"""Bounds on the memory that requests and responses take, over all connections: Kafka's MemoryPool.

Requests: bytes of large frames, allocated in the pool before their buffers are created. Responses:
bytes that transports hold because their readers are slow. Connections wait in order while a pool is
exhausted, and are called when memory is released.
"""

from collections import deque
from collections.abc import Callable


class MemoryPool:
    """A pool of `limit_bytes`. It allocates while it is not exhausted, so it may exceed the limit
    by one allocation."""

    __slots__ = ("_waiters", "allocated_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.allocated_bytes = 0
        self._waiters: deque[Callable[[], None]] = deque()

    @property
    def is_exhausted(self) -> bool:
        return self.allocated_bytes >= self.limit_bytes

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def try_allocate(self, size: int) -> bool:
        if self.is_exhausted:
            return False
        self.allocated_bytes += size
        return True

    def count_allocated(self, size: int) -> None:
        """Counts memory that was allocated without `try_allocate`, even above the limit."""
        self.allocated_bytes += size

    def release(self, size: int) -> None:
        self.allocated_bytes -= size
        while self._waiters and not self.is_exhausted:
            self._waiters.popleft()()

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once when memory is released; another may have allocated it by then."""
        self._waiters.append(wake)

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        if wake in self._waiters:
            self._waiters.remove(wake)
