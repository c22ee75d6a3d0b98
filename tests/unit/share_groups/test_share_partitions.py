"""Members whose ShareFetch waits while others open and close sessions."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla_broker.config import Config
from ottla_broker.metadata.partition_index import TopicIdPartition
from ottla_broker.share_groups.share_partition import AcquiredSpan
from ottla_broker.share_groups.share_partition_leader import DeliveredRecords, ShareFetchLimits
from ottla_broker.share_groups.share_partitions import SharePartitions
from ottla_broker.share_groups.share_state import SharePartitionKey, ShareState
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test, run_event_loop
from tests.unit.share_groups.led_partition import BATCH_COUNT, FakeLog, FakePartition, NoDeadLetters

AT: TopicIdPartition = (UUID(int=1), 0)
LIMITS = ShareFetchLimits(max_bytes=1 << 20, enough=1, at_most=1)
MAX_WAIT_S = 15.0  # after which a fetch would end without records: longer than any test takes


class FakePartitions:
    """The partitions of a broker that leads one."""

    def __init__(self) -> None:
        self.partition: Any = FakePartition(FakeLog())
        self.partition.log.end = 0

    def topic_name(self, topic_id: UUID) -> str:
        return "t"

    def leader(self, name: str, index: int, *, topic_id: UUID) -> Any:
        if not self.partition.is_leader:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        return self.partition

    def wake_readers(self) -> None:
        for waiter in list(self.partition.read_waiters):
            waiter()


class FakeShareCoordinator:
    """A share coordinator. `start_offset`: where the group begins, in the state epoch of the same
    number.
    """

    start_offset = 0

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        await asyncio.sleep(0)
        return ShareState(state_epoch=self.start_offset, start_offset=self.start_offset)


class WaitingMember:
    """Member `a`, whose fetch waits for records that do not exist yet."""

    def __init__(self) -> None:
        self.topic, self.states = FakePartitions(), FakeShareCoordinator()
        parts: list[Any] = [
            Config.of({"log.dirs": "unused"}),
            SimpleNamespace(configs={}),
            self.topic,
            self.states,
            lambda: True,
            int,
            NoDeadLetters(),
        ]
        self.shares = SharePartitions(*parts)

    async def begin(self, turns: int = 20) -> "asyncio.Task[Any]":
        """Opens a session and begins a fetch, and returns it `turns` of the event loop later."""
        session = await self.shares.open_session("g", "a")
        session.update([AT], [])
        fetch = asyncio.create_task(self.shares.fetch(session, LIMITS, min_bytes=1, max_wait_s=MAX_WAIT_S))
        await run_event_loop(turns)
        return fetch


@async_test
async def test_a_waiting_member_gets_records_after_another_has_opened_a_session() -> None:
    member = WaitingMember()
    fetch = await member.begin()
    await member.shares.open_session("g", "b")
    member.topic.partition.log.end = BATCH_COUNT
    member.topic.wake_readers()
    delivered = (await fetch)[AT]
    assert isinstance(delivered, DeliveredRecords) and delivered.acquired == [AcquiredSpan(0, 0, 1)]
    member.shares.close()


@pytest.mark.parametrize("turns", range(8))
@async_test
async def test_a_member_that_begins_gets_records_while_another_opens_a_session(turns: int) -> None:
    """`turns`: number of turns of the event loop in between, while the state is being loaded."""
    member = WaitingMember()
    member.topic.partition.log.end = BATCH_COUNT
    fetch = await member.begin(turns)
    await member.shares.open_session("g", "b")
    delivered = (await fetch)[AT]
    assert isinstance(delivered, DeliveredRecords) and delivered.acquired == [AcquiredSpan(0, 0, 1)]
    member.shares.close()


@async_test
async def test_a_waiting_member_gets_records_from_the_offsets_that_were_set() -> None:
    member = WaitingMember()
    fetch = await member.begin()
    member.states.start_offset = 7
    await member.shares.open_session("g", "b")
    member.topic.partition.log.end = BATCH_COUNT
    member.topic.wake_readers()
    delivered = (await fetch)[AT]
    assert isinstance(delivered, DeliveredRecords) and delivered.acquired == [AcquiredSpan(7, 7, 1)]
    member.shares.close()


@async_test
async def test_a_waiting_member_gets_not_leader_or_follower_when_another_broker_leads() -> None:
    member = WaitingMember()
    fetch = await member.begin()
    member.topic.partition.is_leader = False
    member.topic.wake_readers()
    refused = (await fetch)[AT]
    assert isinstance(refused, KafkaError) and refused.code is ErrorCode.not_leader_or_follower


@async_test
async def test_a_waiting_member_of_a_broker_that_stops_gets_not_leader_or_follower() -> None:
    member = WaitingMember()
    fetch = await member.begin()
    member.shares.close()
    refused = (await fetch)[AT]
    assert isinstance(refused, KafkaError) and refused.code is ErrorCode.not_leader_or_follower
    assert member.topic.partition.read_waiters == set()
