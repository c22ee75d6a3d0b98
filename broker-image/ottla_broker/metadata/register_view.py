"""One broker's view of the register: the last value seen, how long it is unchanged, and updates by compare-and-swap.

Every call has a timeout, because a store that is partitioned away may never answer.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ottla_broker.metadata.register import Conflict, Register, RegisterError, RegisterValue, VersionedValue

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 3.0
WATCH_TIMEOUT_S = 30.0  # of one watch; an unreachable store is detected after it
RETRY_PAUSE_S = 0.5  # after a failure


class RegisterView:
    """`on_change` is called for each new version. `unchanged_since_s`: event loop time at which the last version was
    first seen."""

    def __init__(self, register: Register, on_change: Callable[[], None]) -> None:
        self._register = register
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._writing = asyncio.Lock()
        self.last_seen: VersionedValue | None = None
        self.unchanged_since_s = 0.0
        self.is_unavailable = False  # whether the last call failed

    @property
    def value(self) -> RegisterValue | None:
        return None if self.last_seen is None else self.last_seen.value

    async def read(self) -> VersionedValue:
        """RegisterError."""
        async with register_timeout(CALL_TIMEOUT_S):
            return self._record_seen(await self._register.read())

    async def watch(self) -> None:
        """Updates the view until cancelled."""
        while True:
            try:
                if self.last_seen is None:
                    await self.read()
                else:
                    seen = self.last_seen
                    async with register_timeout(WATCH_TIMEOUT_S + CALL_TIMEOUT_S):
                        found = await self._register.watch(seen, WATCH_TIMEOUT_S)
                    if self.last_seen is seen:  # else an update of this broker was faster
                        self._record_seen(found)
                    self._set_unavailable(None)
            except RegisterError as reason:
                self._set_unavailable(reason)
                await asyncio.sleep(RETRY_PAUSE_S)

    async def update(self, change: Callable[[RegisterValue | None], RegisterValue | None]) -> RegisterValue | None:
        """Writes what `change` returns for the last value seen, if the register still holds that.

        Returns the value written; None when `change` returned None, or another broker wrote first (`value` is then
        theirs). After a RegisterError the value may or may not have been written.
        """
        async with self._writing:
            seen = self.last_seen or await self.read()
            new = change(seen.value)
            if new is None:
                return None
            try:
                async with register_timeout(CALL_TIMEOUT_S):
                    return self._record_seen(await self._register.swap(seen, new)).value
            except Conflict:
                await self.read()
                return None
            except RegisterError:
                self.last_seen = None  # the current value is unknown
                raise

    def _record_seen(self, found: VersionedValue) -> VersionedValue:
        if self.last_seen is None or found.version != self.last_seen.version:
            self.last_seen = found
            self.unchanged_since_s = self._loop.time()
            self._on_change()
        return found

    def _set_unavailable(self, reason: RegisterError | None) -> None:
        if self.is_unavailable != (reason is not None):
            self.is_unavailable = reason is not None
            logger.warning("%s", reason if reason else "the register is available again")


@asynccontextmanager
async def register_timeout(seconds: float) -> AsyncIterator[None]:
    """A timeout that raises RegisterError."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise RegisterError(f"the register did not answer within {seconds:.0f} s") from error
