"""Sends the ISR changes of this broker's partitions to the controller: AlterPartition (56), version
3.

Pending changes go out together, up to 2,000 in one request, and one request is under way at a time.
When its response is lost, its changes are sent again as they were, and go on counting for the high
watermark until the metadata have moved on: the partition epoch in them lets each be committed at
most once. Even the rejection of a change that was sent before proves nothing, because the first
request may still arrive. The leader replaces such a change by the present ISR. The controller
commits that as a change of the partition epoch alone, and then rejects the old change."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from ottla_broker.replication.isr_state import IsrChange
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0
MAX_PARTITIONS: Final = 2_000  # in one request

NEWER_LEADER_ERRORS: Final = frozenset(
    {
        ErrorCode.fenced_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.new_leader_elected,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
    }
)
"""The controller knows a newer leader of the partition, or no longer has the partition."""
UNDECIDED_ERRORS: Final = frozenset(
    {
        ErrorCode.not_controller,
        ErrorCode.operation_not_attempted,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_server_error,
    }
)
"""The controller has not decided the change, which is sent again."""


class IsrChangeResult(NamedTuple):
    error_code: ErrorCode
    partition_epoch: int


@dataclass(eq=False, repr=False)
class AlterPartitionSender:
    """`_own_epoch`: this broker's epoch, −1 while it is not registered; `_epoch_of`: the registered
    epoch of another broker."""

    _broker_id: int
    _own_epoch: Callable[[], int]
    _epoch_of: Callable[[int], int]
    _send_to_controller: Callable[[Any], Awaitable[Any]]

    def __post_init__(self) -> None:
        self._waiting: dict[Partition, None] = {}
        self._sent_before: dict[IsrChange, None] = {}  # perhaps; no response has decided them
        self._sending: asyncio.Task[None] | None = None

    def send(self, partition: Partition) -> None:
        """Sends `partition.pending_isr_change`."""
        self._waiting[partition] = None
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all(), name="AlterPartition")

    def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            await asyncio.sleep(0)  # changes of the same turn of the loop share a request
            while self._waiting:
                taken = list(self._waiting)[:MAX_PARTITIONS]
                for partition in taken:
                    del self._waiting[partition]
                changes = [(one, change) for one in taken if (change := one.pending_isr_change) is not None]
                if await self._send(changes):
                    pause_s = FIRST_PAUSE_S
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, MAX_PAUSE_S)
        finally:
            self._sending = None

    async def _send(self, changes: list[tuple[Partition, IsrChange]]) -> bool:
        """Sends the changes. Returns True if all of them are decided."""
        if not changes:
            return True
        if self._own_epoch() < 0:
            self._send_again(changes)
            return False
        try:
            response = await self._send_to_controller(self._request(changes))
        except (KafkaError, OSError) as reason:
            logger.warning("cannot send %d ISR changes to the controller: %s", len(changes), reason)
            self._send_again(changes)
            return False
        if response.error_code is not ErrorCode.none:
            logger.warning("the controller rejected %d ISR changes: %s", len(changes), response.error_code.name)
            self._send_again(changes)
            return False
        results = {
            (topic.topic_id, result.partition_index): IsrChangeResult(result.error_code, result.partition_epoch)
            for topic in response.topics
            for result in topic.partitions
        }
        undecided = [
            (partition, change)
            for partition, change in changes
            if not self._decide(partition, change, results.get((partition.topic_id, partition.partition)))
        ]
        self._send_again(undecided)
        return not undecided

    def _decide(self, partition: Partition, change: IsrChange, result: IsrChangeResult | None) -> bool:
        """Applies the controller's result of a change to the partition. False if the result leaves
        the change undecided."""
        if result is None or result.error_code in UNDECIDED_ERRORS:
            return False
        code = result.error_code
        was_sent_before = change in self._sent_before
        self._sent_before.pop(change, None)
        is_committed_already = code is ErrorCode.none and result.partition_epoch <= change.partition_epoch
        if code in (ErrorCode.none, ErrorCode.invalid_update_version) and not is_committed_already:
            return True  # the metadata will bring the registration that ends it
        if code is not ErrorCode.none:
            logger.info(
                "the controller rejected ISR %s of %s-%d: %s",
                change.isr,
                partition.topic,
                partition.partition,
                code.name,
            )
        if partition.pending_isr_change is not change:
            return True
        if code in NEWER_LEADER_ERRORS:
            partition.on_newer_leader(change)
        elif was_sent_before and not is_committed_already:
            partition.leader.withdraw_isr_change(change)
        else:
            partition.leader.on_isr_change_rejected(change)
        return True

    def _send_again(self, changes: Iterable[tuple[Partition, IsrChange]]) -> None:
        """Keeps the changes that are still pending for the next request."""
        for partition, change in changes:
            if partition.pending_isr_change is change:
                self._waiting[partition] = None
                self._sent_before[change] = None
            else:
                self._sent_before.pop(change, None)

    def _request(self, changes: list[tuple[Partition, IsrChange]]) -> Any:
        """An AlterPartitionRequest. Its classes are imported here, because they would take 5 ms of
        a broker's start."""
        from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
        from kio.schema.types import BrokerId
        from kio.static.primitive import i32, i64

        def partition_data(partition: Partition, change: IsrChange) -> PartitionData:
            return PartitionData(
                partition_index=cast(i32, partition.partition),
                leader_epoch=cast(i32, change.leader_epoch),
                new_isr_with_epochs=tuple(
                    BrokerState(
                        broker_id=BrokerId(broker), broker_epoch=cast(i64, self._broker_epoch(partition, broker))
                    )
                    for broker in change.isr
                ),
                partition_epoch=cast(i32, change.partition_epoch),
            )

        by_topic = groupby(sorted(changes, key=_topic_id_of), key=_topic_id_of)
        return AlterPartitionRequest(
            broker_id=BrokerId(self._broker_id),
            broker_epoch=i64(self._own_epoch()),
            topics=tuple(
                TopicData(topic_id=topic_id, partitions=tuple(partition_data(*one) for one in of_topic))
                for topic_id, of_topic in by_topic
            ),
        )

    def _broker_epoch(self, partition: Partition, broker: int) -> int:
        """Epoch of the incarnation that fetched from this leader; the registered epoch if it has
        not fetched yet.
        """
        if broker == self._broker_id:
            return self._own_epoch()
        follower = partition.leader.followers.get(broker)
        return follower.broker_epoch if follower and follower.broker_epoch >= 0 else self._epoch_of(broker)


def _topic_id_of(one: tuple[Partition, IsrChange]) -> UUID:
    return one[0].topic_id
