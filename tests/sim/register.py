"""The register of a simulated cluster: one value in memory, reached over links that can be cut and are slow at times."""

import asyncio
from random import Random

from ottla_broker.metadata.register import Conflict, RegisterValue, Seen


class RegisterStore:
    """The store itself. `cut`: hosts that cannot reach it now; what they ask waits until they can."""

    def __init__(self, random: Random) -> None:
        self.value: RegisterValue | None = None
        self.version = 0
        self.history: list[tuple[float, str, RegisterValue]] = []
        self.latency_s = (0.001, 0.01)
        self._random = random
        self._cut: set[str] = set()
        self._mended = asyncio.Event()
        self._changed = asyncio.Event()

    def cut(self, host: str) -> None:
        self._cut.add(host)

    def mend(self, host: str) -> None:
        self._cut.discard(host)
        self._mended.set()
        self._mended = asyncio.Event()

    def seen(self) -> Seen:
        return Seen(self.value, str(self.version))

    def write(self, value: RegisterValue | None) -> None:
        self.value = value
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Returns at the next change."""
        await self._changed.wait()

    async def reach(self, host: str) -> None:
        await asyncio.sleep(self._random.uniform(*self.latency_s))
        while host in self._cut:
            await self._mended.wait()


class SimulatedRegister:
    """A broker's `Register`."""

    def __init__(self, store: RegisterStore, host: str) -> None:
        self._store = store
        self._host = host

    async def read(self) -> Seen:
        await self._store.reach(self._host)
        seen = self._store.seen()
        await self._store.reach(self._host)
        return seen

    async def swap(self, seen: Seen, new: RegisterValue) -> Seen:
        await self._store.reach(self._host)
        store = self._store
        if seen.version != str(store.version):
            raise Conflict("another broker was first")
        store.write(new)
        store.history.append((asyncio.get_running_loop().time(), self._host, new))
        done = store.seen()
        await store.reach(self._host)  # a broker may die before it hears that it was written
        return done

    async def watch(self, seen: Seen, timeout_s: float) -> Seen:
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
