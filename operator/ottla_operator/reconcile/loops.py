"""One reconcile loop for each key: it reconciles when it is woken and when its requeue delay has
passed.

Level-triggered: a wake says only that something may have changed. After an error the loop retries,
with a delay that doubles.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

FIRST_RETRY_S: Final = 0.5
LONGEST_RETRY_S: Final = 30.0
BATCH_S: Final = 0.05  # wakes within this time share one reconcile

K = TypeVar("K")
log = logging.getLogger("ottla.operator")


class InternalError(Exception):
    """A bug in a reconciler; its traceback is in the log."""


@dataclass(slots=True)
class _Loop:
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None


@dataclass(slots=True)
class ReconcileLoops(Generic[K]):
    """`reconcile(key)` returns the requeue delay in seconds; None: nothing is left to reconcile.

    `expected_errors`: failures of the platform or of brokers. They, and every other exception as an
    InternalError, are passed to `report_error`, and the key is retried.
    """

    reconcile: Callable[[K], Awaitable[float | None]]
    expected_errors: tuple[type[Exception], ...]
    report_error: Callable[[K, Exception], Awaitable[None]]
    _loops: dict[K, _Loop] = field(default_factory=dict)
    _is_running: bool = False

    def wake(self, key: K) -> None:
        """Reconciles the key soon; does nothing before `start` and after `stop`."""
        if not self._is_running:
            return
        loop = self._loops.setdefault(key, _Loop())
        loop.woken.set()
        if loop.task is None:
            loop.task = asyncio.create_task(self._run(key, loop))

    def start(self) -> None:
        """Accepts wakes from now on. The caller wakes every key."""
        self._is_running = True

    async def stop(self) -> None:
        """Cancels what is being reconciled and returns when it has ended."""
        self._is_running = False
        tasks = [it.task for it in self._loops.values() if it.task is not None]
        self._loops.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: K, loop: _Loop) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            loop.woken.clear()
            try:
                delay_s = await self.reconcile(key)
                retry_s = FIRST_RETRY_S
            except Exception as error:  # noqa: BLE001  # a failure of one key must not end its loop
                await self._report(key, error)
                delay_s, retry_s = retry_s, min(LONGEST_RETRY_S, 2 * retry_s)
            if delay_s is None and not loop.woken.is_set():
                del self._loops[key]
                return
            try:
                async with asyncio.timeout(delay_s):
                    await loop.woken.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(BATCH_S)

    async def _report(self, key: K, error: Exception) -> None:
        if not isinstance(error, self.expected_errors):
            log.error("bug while reconciling %s", key, exc_info=error)
            error = InternalError(f"bug in the operator, see its log: {type(error).__name__}: {error}")
        try:
            await self.report_error(key, error)
        except self.expected_errors as second:
            log.warning("cannot report that reconciling %s failed (%s): %s", key, error, second)
        except Exception:  # a bug in reporting must not end the loop either
            log.exception("bug while reporting that reconciling %s failed: %s", key, error)
