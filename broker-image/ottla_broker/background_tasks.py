"""Tasks in the background, which are cancelled when the broker stops."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

logger = logging.getLogger(__name__)


class BackgroundTasks:
    """No task should end with an exception. One that does is logged and reported to
    `on_failure`.
    """

    def __init__(self, on_failure: Callable[[str], None] = lambda _: None) -> None:
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order of starting, so that a simulation can be replayed

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._on_end)
        return task

    async def cancel(self) -> None:
        """Cancels all tasks and waits until they have ended."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cancel_soon(self) -> None:
        """Cancels all tasks, without waiting for their end."""
        for task in tuple(self._tasks):
            task.cancel()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("background task failed: %s", error, exc_info=error)
            self._on_failure(f"background task failed: {error!r}")
