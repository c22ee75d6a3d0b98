"""The register as one broker sees it: the newest value, since when it has been unchanged, and writes that say how they went.

Every call is bounded in time, because a store that is cut off may simply be silent.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ottla_broker.metadata.register import Conflict, Register, RegisterError, RegisterValue, VersionedValue

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 3.0
WATCH_TIMEOUT_S = 30.0  # how long one watch waits; a store that is cut off is noticed then
RETRY_PAUSE_S = 0.5  # after a failure


class RegisterView:
    """`news` is called whenever another value was seen. `unchanged_since`: by the loop's clock, of the version last seen."""

    def __init__(self, register: Register, news: Callable[[], None]) -> None:
        self._register = register
        self._on_change = news
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
        """Keeps the view up to date, until cancelled."""
        while True:
            try:
                if self.last_seen is None:
                    await self.read()
                else:
                    seen = self.last_seen
                    async with register_timeout(WATCH_TIMEOUT_S + CALL_TIMEOUT_S):
                        found = await self._register.watch(seen, WATCH_TIMEOUT_S)
                    if self.last_seen is seen:  # or a write of our own was faster
                        self._record_seen(found)
                    self._set_unavailable(None)
            except RegisterError as reason:
                self._set_unavailable(reason)
                await asyncio.sleep(RETRY_PAUSE_S)

    async def update(self, change: Callable[[RegisterValue | None], RegisterValue | None]) -> RegisterValue | None:
        """Writes what `change` makes of the value last seen, if the register still holds that. The value written; None when `change` does not
        want to, or somebody else was first (`value` is what they wrote). RegisterError: it may or may not have been written."""
        async with self._writing:
            seen = self.last_seen or await self.read()
            wanted = change(seen.value)
            if wanted is None:
                return None
            try:
                async with register_timeout(CALL_TIMEOUT_S):
                    return self._record_seen(await self._register.swap(seen, wanted)).value
            except Conflict:
                await self.read()
                return None
            except RegisterError:
                self.last_seen = None  # what it holds now is not known
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
            logger.warning("%s", reason if reason else "the register answers again")


@asynccontextmanager
async def register_timeout(seconds: float) -> AsyncIterator[None]:
    """A timeout that is told as the register's silence."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise RegisterError(f"the register does not answer within {seconds:.0f} s") from error
