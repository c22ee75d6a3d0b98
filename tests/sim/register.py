"""The register of a simulated cluster: one value in memory, reached over links that can be cut and are slow at times."""

import asyncio
from random import Random

from ottla_broker.metadata.register import Conflict, RegisterError, RegisterValue, VersionedValue

USUAL_S = (0.001, 0.01)  # one way
SLOW_S = (0.1, 1.5)
GIVES_UP_S = (2.0, 10.0)  # after so long a call to a store that does not answer fails
REFUSES_ONE_IN = 3  # a store that is away is noticed at once by some, as a port that refuses is


class RegisterStore:
    """The store itself. A cut host, and everybody while the store is away, waits a while in vain and then hears that it cannot be reached;
    what was asked may have been done all the same."""

    def __init__(self, random: Random) -> None:
        self.value: RegisterValue | None = None
        self.version = 0
        self.history: list[tuple[float, str, RegisterValue]] = []
        self.latency_s = USUAL_S
        self._random = random
        self._cut: dict[str, int] = {}
        self._away = 0
        self._mended = asyncio.Event()
        self._changed = asyncio.Event()

    # --- faults; each may happen several times at once

    def cut(self, host: str) -> None:
        self._cut[host] = self._cut.get(host, 0) + 1

    def mend(self, host: str) -> None:
        self._cut[host] -= 1
        self._ring()

    def leave(self) -> None:
        """Nobody reaches it."""
        self._away += 1

    def come_back(self) -> None:
        self._away -= 1
        self._ring()

    def _ring(self) -> None:
        self._mended.set()
        self._mended = asyncio.Event()

    # --- for the registers of brokers

    def seen(self) -> VersionedValue:
        return VersionedValue(self.value, str(self.version))

    def write(self, host: str, value: RegisterValue) -> None:
        self.value = value
        self.version += 1
        self.history.append((asyncio.get_running_loop().time(), host, value))
        self._changed.set()
        self._changed = asyncio.Event()

    def lose(self) -> None:
        """Somebody removes it."""
        self.value = None
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Returns at the next change."""
        await self._changed.wait()

    async def reach(self, host: str) -> None:
        """One way between a host and the store. RegisterError when it took too long."""
        await asyncio.sleep(self._random.uniform(*self.latency_s))
        if not (self._cut.get(host) or self._away):
            return
        if self._away and self._random.randrange(REFUSES_ONE_IN) == 0:
            raise RegisterError("the register is unavailable")
        try:
            async with asyncio.timeout(self._random.uniform(*GIVES_UP_S)):
                while self._cut.get(host) or self._away:
                    await self._mended.wait()
        except TimeoutError:
            raise RegisterError("the register does not answer") from None


class SimulatedRegister:
    """A broker's `Register`."""

    def __init__(self, store: RegisterStore, host: str) -> None:
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
            raise Conflict("another broker was first")
        self._store.write(self._host, new)
        done = self._store.seen()
        await self._store.reach(
            self._host
        )  # a broker may die, or be told of a failure, before it hears that it was written
        return done

    async def watch(self, seen: VersionedValue, timeout_s: float) -> VersionedValue:
        await self._store.reach(self._host)
        try:
            async with asyncio.timeout(timeout_s):
                while self._store.seen().version == seen.version:
                    await self._store.changed()
        except TimeoutError:
            pass
        return await self.read()

    async def close(self) -> None:
        return None
