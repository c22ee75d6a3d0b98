"""What this broker's partitions propose for their ISRs, on its way to the controller: AlterPartition (56), version 3.

All proposals that wait go out in one request, and one request is under way at a time. Whether a request whose answer was lost has been carried
out is not known: its proposals are sent again as they were, and go on counting for the high watermark until the metadata have moved on, because
the partition epoch in them lets each happen once at most. Even the refusal of one that was sent before is no proof: the first may still arrive.
Such a one is replaced by the proposal of the ISR as it is, which the controller takes as a change of the partition epoch alone, and after which the
old one can happen no more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby
from typing import Any, Final, cast
from uuid import UUID

from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kio.schema.alter_partition.v3.response import AlterPartitionResponse
from kio.schema.alter_partition.v3.response import PartitionData as Answer
from kio.schema.types import BrokerId
from kio.static.primitive import i32, i64

from ottla_broker.replication.isr_state import IsrChange
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
MOST_AT_ONCE: Final = 2_000  # partitions in one request

NEWER_LEADER: Final = frozenset(
    {
        ErrorCode.fenced_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.new_leader_elected,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
    }
)
UNDECIDED: Final = frozenset(
    {
        ErrorCode.not_controller,
        ErrorCode.operation_not_attempted,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_server_error,
    }
)

Ask = Callable[[Any], Awaitable[Any]]


class AlterPartitionSender:
    """`ask` brings a request to the active controller; `my_epoch` is this broker's, −1 while it is not registered; `epoch_of` tells that of
    another, as it is registered."""

    def __init__(self, me: int, my_epoch: Callable[[], int], epoch_of: Callable[[int], int], ask: Ask) -> None:
        self._me = me
        self._my_epoch = my_epoch
        self._epoch_of = epoch_of
        self._ask = ask
        self._waiting: dict[Partition, None] = {}
        self._doubtful: dict[IsrChange, None] = {}  # sent, and nobody knows what became of them
        self._sending: asyncio.Task[None] | None = None

    def send(self, partition: Partition) -> None:
        """Takes `partition.pending` on its way."""
        self._waiting[partition] = None
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all(), name="isr proposals")

    def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            await asyncio.sleep(0)  # what is proposed in the same turn goes along
            while self._waiting:
                taken = list(self._waiting)[:MOST_AT_ONCE]
                for partition in taken:
                    del self._waiting[partition]
                if await self._send(
                    [(one, one.pending_isr_change) for one in taken if one.pending_isr_change is not None]
                ):
                    pause_s = FIRST_PAUSE_S
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        finally:
            self._sending = None

    async def _send(self, sent: list[tuple[Partition, IsrChange]]) -> bool:
        """Whether everything was decided."""
        if not sent:
            return True
        if self._my_epoch() < 0:
            self._again(sent)
            return False
        try:
            response: AlterPartitionResponse = await self._ask(self._request(sent))
        except (KafkaError, OSError, TimeoutError) as reason:
            logger.warning("the controller cannot be told of %d changed ISRs: %s", len(sent), reason)
            self._again(sent)
            return False
        if response.error_code is not ErrorCode.none:
            logger.warning("the controller takes no ISRs from here: %s", response.error_code.name)
            self._again(sent)
            return False
        answers: dict[tuple[UUID | None, int], Answer] = {
            (topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions
        }
        undecided = [
            (partition, proposal)
            for partition, proposal in sent
            if not self._decided(partition, proposal, answers.get((partition.topic_id, partition.partition)))
        ]
        self._again(undecided)
        return not undecided

    def _decided(self, partition: Partition, proposal: IsrChange, answer: Answer | None) -> bool:
        if answer is None or answer.error_code in UNDECIDED:
            return False
        code = answer.error_code
        was_doubtful = self._doubtful.pop(proposal, 0) is None
        if code is ErrorCode.none and answer.partition_epoch <= proposal.partition_epoch:
            partition.on_isr_change_rejected(proposal)  # it is so already
            return True
        if code is ErrorCode.none or code is ErrorCode.invalid_update_version:
            return True  # the metadata will tell, and end the proposal
        logger.info("ISR %s of %s-%d was refused: %s", proposal.isr, partition.topic, partition.partition, code.name)
        if code in NEWER_LEADER:
            partition.on_newer_leader(proposal)
        elif not was_doubtful:
            partition.on_isr_change_rejected(proposal)
        else:
            partition.withdraw_isr_change(proposal)
        return True

    def _again(self, sent: Iterable[tuple[Partition, IsrChange]]) -> None:
        for partition, proposal in sent:
            if partition.pending_isr_change is proposal:
                self._waiting[partition] = None
                self._doubtful[proposal] = None
            else:
                self._doubtful.pop(proposal, None)

    def _request(self, sent: list[tuple[Partition, IsrChange]]) -> AlterPartitionRequest:
        by_topic = groupby(sorted(sent, key=_topic_of), key=_topic_of)
        return AlterPartitionRequest(
            broker_id=BrokerId(self._me),
            broker_epoch=i64(self._my_epoch()),
            topics=tuple(
                TopicData(topic_id=topic_id, partitions=tuple(self._data(*one) for one in proposals))
                for topic_id, proposals in by_topic
            ),
        )

    def _data(self, partition: Partition, proposal: IsrChange) -> PartitionData:
        return PartitionData(
            partition_index=cast(i32, partition.partition),
            leader_epoch=cast(i32, proposal.leader_epoch),
            new_isr_with_epochs=tuple(
                BrokerState(broker_id=BrokerId(broker), broker_epoch=cast(i64, self._epoch(partition, broker)))
                for broker in proposal.isr
            ),
            partition_epoch=cast(i32, proposal.partition_epoch),
        )

    def _epoch(self, partition: Partition, broker: int) -> int:
        """Of the life that fetched from us; of one that we have not heard yet, the registered one."""
        if broker == self._me:
            return self._my_epoch()
        follower = partition.followers.get(broker)
        return follower.broker_epoch if follower and follower.broker_epoch >= 0 else self._epoch_of(broker)


def _topic_of(one: tuple[Partition, IsrChange]) -> UUID:
    return one[0].topic_id
