"""One partition as its leader sees it: appends, the high watermark, and who is waiting for it to move.

Invariant (design rule 3): the high watermark is the smallest log end over the maximal ISR, and never falls. What counts as this broker's own log
end is what is durable by the topic's own wish: everything in the page cache, or with `flush.messages=1` everything that is fsynced.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from uuid import UUID

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.validation import Appended
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.metrics import Traffic
from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.errors import ErrorCode, KafkaError

ALL_REPLICAS = -1
READ_COMMITTED = 1


class Partition:
    """A replica hosted here. `state`: what the metadata say of it; `me`: this broker's id."""

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        partition: int,
        log: PartitionLog,
        state: PartitionRecord,
        me: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.log = log
        self.state = state
        self.traffic = Traffic()
        self._me = me
        self._now_ms = now_ms
        self._watchers: dict[Callable[[], None], None] = {}  # in their order, so that a run can be repeated
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waits = 0
        self._syncing: asyncio.Task[None] | None = None
        self.become(state)

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def leads(self) -> bool:
        return self.state.leader == self._me

    @property
    def _acks_are_synced(self) -> bool:
        return self.log.config.flush_messages == 1

    def become(self, state: PartitionRecord) -> None:
        """Takes over a new state from the metadata; a new leader epoch of ours starts at the log's end."""
        self.state = state
        if self.leads:
            self.log.epochs.assign(state.leader_epoch, self.log.end)
            self._advance()
            if self._acks_are_synced and self.log.high_watermark < self.log.end:
                self._sync()
        else:
            self._fail_waiting(KafkaError(ErrorCode.not_leader_or_follower))
        self._wake()

    def append(self, records: Buffer, *, acks: int, from_client: bool = True) -> Appended:
        """Appends whole batches. `acks`: 0, 1, or −1 for all of the ISR. NOT_ENOUGH_REPLICAS when the ISR is too small for −1."""
        if acks == ALL_REPLICAS and len(self.state.isr) < min(
            self.log.config.min_insync_replicas, len(self.state.replicas)
        ):
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self.topic}-{self.partition}: {len(self.state.isr)} in-sync replicas, min.insync.replicas is {self.log.config.min_insync_replicas}",
            )
        appended = self.log.append_as_leader(
            records, leader_epoch=self.state.leader_epoch, now_ms=self._now_ms(), from_client=from_client
        )
        self.traffic.messages_in += appended.records
        self.traffic.bytes_in += appended.bytes
        if not self._acks_are_synced:
            self._advance()
        if self.log.sync_due:
            self._sync()
        return appended

    def acknowledged(self, appended: Appended, acks: int) -> Awaitable[None] | None:
        """What to wait for before answering, or None when there is nothing to wait for. Raises into the waiter when leadership is lost."""
        if acks != ALL_REPLICAS or appended.last_offset < self.log.high_watermark:
            return None
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits += 1
        heapq.heappush(self._waiting, (appended.last_offset + 1, self._waits, waiter))
        return waiter

    def readable_end(self, isolation: int, replica: int = -1) -> int:
        """The offset before which a reader may see records: the log's end for a follower, else high watermark or last stable offset."""
        if replica >= 0:
            return self.log.end
        return self.log.last_stable_offset if isolation == READ_COMMITTED else self.log.high_watermark

    def watch(self, callback: Callable[[], None]) -> None:
        """`callback` is called when readable records may have come or leadership has changed, until unwatched."""
        self._watchers[callback] = None

    def unwatch(self, callback: Callable[[], None]) -> None:
        self._watchers.pop(callback, None)

    def retire(self, code: ErrorCode) -> None:
        """The replica leaves this broker: whoever waits is told why."""
        self._fail_waiting(KafkaError(code))
        self._wake()

    def _advance(self) -> None:
        durable = self.log.flush.flushed if self._acks_are_synced else self.log.end
        if len(self.state.isr) == 1 and durable > self.log.high_watermark:
            self.log.advance_high_watermark(durable)
            if self._waiting:
                self._settle_waiting()
            if self._watchers:
                self._wake()

    def _settle_waiting(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.log.high_watermark:
            waiter = heapq.heappop(self._waiting)[2]
            if not waiter.done():
                waiter.set_result(None)

    def _fail_waiting(self, reason: KafkaError) -> None:
        waiting, self._waiting = self._waiting, []
        for _, _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(reason)

    def _wake(self) -> None:
        for callback in tuple(self._watchers):
            callback()

    def _sync(self) -> None:
        """Starts the shared fsync unless one runs; what is appended while it runs is taken by the next."""
        if self._syncing is None:
            self._syncing = asyncio.get_running_loop().create_task(self._sync_until_clean())

    async def _sync_until_clean(self) -> None:
        try:
            while self.log.sync_due or (self._acks_are_synced and self.log.flush.flushed < self.log.end):
                await self.log.synced(self.log.end)
                self._advance()
        except KafkaError as reason:
            self._fail_waiting(reason)
        finally:
            self._syncing = None
