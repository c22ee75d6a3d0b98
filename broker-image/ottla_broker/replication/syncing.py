"""The shared fsync of a replica's log, so that a hundred appends wait for one (group commit)."""

import asyncio
from collections.abc import Callable

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.wire.errors import KafkaError


class Syncing:
    """One runs at a time; what is appended meanwhile is taken by the next. `wanted`: whether there is anything to sync; `synced` is called after each,
    `failed` with the reason why there will be none."""

    __slots__ = ("_failed", "_log", "_synced", "_task", "_wanted")

    def __init__(
        self,
        log: PartitionLog,
        wanted: Callable[[], bool],
        synced: Callable[[], None],
        failed: Callable[[KafkaError], None],
    ) -> None:
        self._log = log
        self._wanted = wanted
        self._synced = synced
        self._failed = failed
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._until_clean())

    async def _until_clean(self) -> None:
        try:
            while self._wanted():
                await self._log.wait_until_synced(self._log.end)
                self._synced()
        except KafkaError as reason:
            self._failed(reason)
        finally:
            self._task = None
