"""Producers that wait until the whole ISR has their records. When another broker becomes leader
meanwhile, those that may wait across leaders wait up to HANDOVER_TIMEOUT_S until that leader's ISR
has them; the others fail.

So a planned change of leader duplicates no record of a producer without idempotence. Records that
the old leader appended and the new one has are acknowledged once the old leader, as a follower,
learns a high watermark beyond them.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla_broker.wire.errors import KafkaError

HANDOVER_TIMEOUT_S: Final = 2.0

CommitCallback = Callable[[KafkaError | None], None]
"""Called with None when the records are committed, or with the reason why they will not be."""


class PendingAck(NamedTuple):
    """Ordered by `offset`, then by `number`. `across_leaders`: another leader's high watermark is
    sufficient.
    """

    offset: int
    number: int
    callback: CommitCallback
    across_leaders: bool


class PendingAcks:
    """Waiting producers of one partition, by the offset that the high watermark must reach.
    Callbacks run in the same iteration of the event loop in which the high watermark reaches it.
    """

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[PendingAck] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: int, callback: CommitCallback, *, across_leaders: bool = False) -> None:
        """Calls `callback` with None when the high watermark reaches `offset`, or with the
        error.
        """
        self._count += 1
        heapq.heappush(self._waiting, PendingAck(offset, self._count, callback, across_leaders))

    def add_future(self, offset: int) -> asyncio.Future[None]:
        """Like `add`. Returns a future instead of calling back."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def complete(reason: KafkaError | None) -> None:
            if future.done():
                return
            if reason is None:
                future.set_result(None)
            else:
                future.set_exception(reason)

        self.add(offset, complete)
        return future

    def all_completed(self) -> asyncio.Future[None] | None:
        """A future that completes when every producer that waits now has its response; None when
        none waits.
        """
        if not self._waiting:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def complete(_: KafkaError | None) -> None:
            if not future.done():
                future.set_result(None)

        self.add(max(self._waiting).offset, complete, across_leaders=True)
        return future

    def complete_up_to(self, high_watermark: int) -> None:
        """Completes all producers that wait for this high watermark or a lower one."""
        waiting = self._waiting
        while waiting and waiting[0].offset <= high_watermark:
            heapq.heappop(waiting).callback(None)

    def fail(self, reason: KafkaError) -> None:
        """Fails all waiting producers."""
        self._fail(reason, lambda ack: True)

    def hand_over(self, reason: KafkaError) -> None:
        """Called when another broker leads and may have the records. Producers that may wait across
        leaders wait for HANDOVER_TIMEOUT_S, the others fail.
        """
        self._fail(reason, lambda ack: not ack.across_leaders)
        if self._waiting:
            latest = self._count
            asyncio.get_running_loop().call_later(
                HANDOVER_TIMEOUT_S, self._fail, reason, lambda ack: ack.number <= latest
            )

    def truncate_to(self, log_end: int, reason: KafkaError) -> None:
        """Fails the producers of records at `log_end` and above, which are no longer in the log."""
        self._fail(reason, lambda ack: ack.offset > log_end)

    def _fail(self, reason: KafkaError, should_fail: Callable[[PendingAck], bool]) -> None:
        failed = [ack for ack in self._waiting if should_fail(ack)]
        self._waiting = [ack for ack in self._waiting if not should_fail(ack)]
        heapq.heapify(self._waiting)
        for ack in failed:
            ack.callback(reason)
