"""One loop for each thing to be kept as wished: it looks, does what is to be done, and looks again when it is woken or its time has come.

Level-triggered: being woken says only that it is time to look. What fails is tried again, after a while that doubles.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0
GATHER_S: Final = 0.05  # what is woken many times at once looks once

K = TypeVar("K")
log = logging.getLogger("ottla.operator")


@dataclass(slots=True)
class _Loop:
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None


@dataclass(slots=True)
class Loops(Generic[K]):
    """`look(key)`: looks and acts; after how many seconds to look again, None when there is nothing left to be kept. `failures`: the exceptions that
    are somebody else's trouble, told by `failed` and tried again; others are mistakes of ours, told with their trace, and tried again as well."""

    look: Callable[[K], Awaitable[float | None]]
    failures: tuple[type[Exception], ...]
    failed: Callable[[K, Exception], Awaitable[None]]
    _loops: dict[K, _Loop] = field(default_factory=dict)
    _running: bool = False

    def wake(self, key: K) -> None:
        """While not running, nobody looks: whoever starts us wakes all that there is."""
        if not self._running:
            return
        loop = self._loops.setdefault(key, _Loop())
        loop.woken.set()
        if loop.task is None:
            loop.task = asyncio.create_task(self._run(key, loop))

    def start(self) -> None:
        self._running = True

    async def stop(self) -> None:
        self._running = False
        tasks = [it.task for it in self._loops.values() if it.task is not None]
        self._loops.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: K, loop: _Loop) -> None:
        wait = FIRST_WAIT_S
        while True:
            loop.woken.clear()
            try:
                pause = await self.look(key)
                wait = FIRST_WAIT_S
            except Exception as error:  # noqa: BLE001  # one cluster's trouble must not be the others', nor end its own loop
                await self._tell(key, error)
                pause, wait = wait, min(LONGEST_WAIT_S, 2 * wait)
            if pause is None and not loop.woken.is_set():
                del self._loops[key]
                return
            try:
                async with asyncio.timeout(pause):
                    await loop.woken.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(GATHER_S)

    async def _tell(self, key: K, error: Exception) -> None:
        if not isinstance(error, self.failures):
            log.error("looking at %s", key, exc_info=error)
            error = RuntimeError(
                f"the operator has made a mistake, which its log tells: {type(error).__name__}: {error}"
            )
        try:
            await self.failed(key, error)
        except self.failures as also:
            log.warning("%s: %s; and it cannot be told: %s", key, error, also)
        except Exception:  # a mistake in that, too
            log.exception("telling what is wrong with %s: %s", key, error)
