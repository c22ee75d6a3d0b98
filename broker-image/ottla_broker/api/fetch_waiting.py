"""A fetch that waits for records: one timer, and whoever watches its partitions. Nothing is left of it when it is
answered or its connection is gone."""

import asyncio
from typing import TYPE_CHECKING

from ottla_broker.requests.context import DelayedFetchResponse

if TYPE_CHECKING:
    from ottla_broker.api.fetch import Fetch
    from ottla_broker.replication.partition import Partition


class Wait:
    """`future`: of the answer. A session's partitions are watched by the session; without one they are watched here."""

    __slots__ = ("_checking", "_fetch", "_loop", "_missing", "_sizes", "_timer", "future")

    def __init__(self, fetch: "Fetch") -> None:
        self._loop = asyncio.get_running_loop()
        self._fetch = fetch
        self._checking = False
        self.future = DelayedFetchResponse(self._hurry, self._over, loop=self._loop)
        self._timer = self._loop.call_later(fetch.request.max_wait_ms / 1000, self._time_is_over)
        self._sizes: list[tuple[Partition, int, int]] = []
        self._watch()

    def _watch(self) -> None:
        fetch = self._fetch
        self._missing = fetch.request.min_bytes - fetch.size
        self._sizes = [(partition, partition.log.size, partition.leader_epoch) for partition in fetch.partitions]
        if fetch.session is not None:
            fetch.session.wake = self._woken
            return
        for partition, _, _ in self._sizes:
            partition.read_waiters.add(self._woken)

    def _unwatch(self) -> None:
        session = self._fetch.session
        if session is None:
            for partition, _, _ in self._sizes:
                partition.read_waiters.remove(self._woken)
        elif session.wake == self._woken:
            session.wake = None

    def _woken(self) -> None:
        # Not at once: the append that woke us has its own answer to send first, and more may come in the same turn.
        if not self._checking:
            self._checking = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._checking = False
        if self.future.done() or not self._may_be_enough():
            return
        if (now := self._fetch.now()) is not None:
            self.future.complete(now)
        else:
            self._unwatch()
            self._watch()

    def _may_be_enough(self) -> bool:
        """Whether the logs have grown by what is missing, or something other than growth has happened."""
        if self._missing <= 1:
            return True
        session = self._fetch.session
        if session is not None and len(session.stirred) > len(self._sizes):
            return True
        grown = 0
        for partition, size, epoch in self._sizes:
            if partition.leader_epoch != epoch or not partition.is_leader:
                return True
            grown += partition.log.size - size
        return grown >= self._missing

    def _time_is_over(self) -> None:
        if not self.future.done():
            enough = self._fetch.read()
            self.future.complete(self._fetch.response(over=not enough))

    def _hurry(self) -> None:
        if not self.future.done():
            self._fetch.read()
            self.future.complete(self._fetch.response())

    def _over(self) -> None:
        self._timer.cancel()
        self._unwatch()
