"""The register of a simulated cluster: one value in memory, reached over links that can be cut or
slow.
"""

import asyncio
from random import Random

from ottla_broker.metadata.register import Conflict, RegisterError, RegisterValue, VersionedValue

NORMAL_LATENCY_S = (0.001, 0.01)  # one way
SLOW_REGISTER_LATENCY_S = (0.1, 1.5)
CALL_TIMEOUT_S = (2.0, 10.0)  # timeout of a call to a store that does not respond
REFUSE_ONE_IN = 3  # some calls to an unavailable store fail at once, as with a refused connection


class SimulatedRegisterStore:
    """The store of the register.

    Calls of a cut host, and all calls while the store is unavailable, fail after a timeout; the
    store may have executed them all the same.
    """

    def __init__(self, random: Random) -> None:
        self.value: RegisterValue | None = None
        self.version = 0
        self.history: list[tuple[float, str, RegisterValue]] = []
        self.latency_s = NORMAL_LATENCY_S
        self._random = random
        self._cut: dict[str, int] = {}
        self._unavailable = 0
        self._restored = asyncio.Event()
        self._changed = asyncio.Event()

    # --- faults; each may overlap with itself

    def cut(self, host: str) -> None:
        self._cut[host] = self._cut.get(host, 0) + 1

    def restore(self, host: str) -> None:
        self._cut[host] -= 1
        self._notify_restored()

    def make_unavailable(self) -> None:
        """No broker reaches the store."""
        self._unavailable += 1

    def make_available(self) -> None:
        self._unavailable -= 1
        self._notify_restored()

    def _notify_restored(self) -> None:
        self._restored.set()
        self._restored = asyncio.Event()

    # --- called by brokers' registers

    def seen(self) -> VersionedValue:
        return VersionedValue(self.value, str(self.version))

    def write(self, host: str, value: RegisterValue) -> None:
        self.value = value
        self.version += 1
        self.history.append((asyncio.get_running_loop().time(), host, value))
        self._changed.set()
        self._changed = asyncio.Event()

    def remove(self) -> None:
        """Remove the value."""
        self.value = None
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self) -> None:
        """Return at the next change."""
        await self._changed.wait()

    async def reach(self, host: str) -> None:
        """One message between a host and the store. Raises RegisterError after a timeout."""
        await asyncio.sleep(self._random.uniform(*self.latency_s))
        if not (self._cut.get(host) or self._unavailable):
            return
        if self._unavailable and self._random.randrange(REFUSE_ONE_IN) == 0:
            raise RegisterError("the register is unavailable")
        try:
            async with asyncio.timeout(self._random.uniform(*CALL_TIMEOUT_S)):
                while self._cut.get(host) or self._unavailable:
                    await self._restored.wait()
        except TimeoutError:
            raise RegisterError("the register does not answer") from None


class SimulatedRegister:
    """A broker's `Register`."""

    def __init__(self, store: SimulatedRegisterStore, host: str) -> None:
        self._store = store
        self._host = host

    async def read(self) -> VersionedValue:
        await self._store.reach(self._host)
        seen = self._store.seen()
        await self._store.reach(self._host)
        return seen

    async def swap(self, seen: VersionedValue, new: RegisterValue) -> VersionedValue:
        await self._store.reach(self._host)
        if seen.version != str(self._store.version):
            raise Conflict("another broker has changed the register")
        self._store.write(self._host, new)
        done = self._store.seen()
        # The value is written; the broker may die, or its call may fail, before it learns so.
        await self._store.reach(self._host)
        return done

    async def watch(self, seen: VersionedValue, timeout_s: float) -> VersionedValue:
        await self._store.reach(self._host)
        try:
            async with asyncio.timeout(timeout_s):
                while self._store.seen().version == seen.version:
                    await self._store.wait_for_change()
        except TimeoutError:
            pass
        return await self.read()

    async def close(self) -> None:
        return None
