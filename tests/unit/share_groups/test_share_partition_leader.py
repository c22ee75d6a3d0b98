"""The leader of a share-partition: how much of the log it reads for a delivery, and that it refuses
requests when its state is fenced or its session with the controller has ended.
"""

from typing import Any
from uuid import UUID

import pytest

from ottla_broker.share_groups.share_group_config import READ_UNCOMMITTED, ShareDeliveryConfig
from ottla_broker.share_groups.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredSpan,
    SharePartition,
)
from ottla_broker.share_groups.share_partition_leader import ShareFetchLimits, SharePartitionLeader
from ottla_broker.share_groups.share_state import SharePartitionKey, StateUpdate
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test
from tests.unit.share_groups.led_partition import BATCH_COUNT, FakeLog, FakePartition, NoDeadLetters


@async_test
async def test_the_leader_does_not_read_the_whole_log_for_a_member_that_wants_one_record() -> None:
    log = FakeLog()
    config = ShareDeliveryConfig(isolation=READ_UNCOMMITTED)
    partition: Any = FakePartition(log)
    states: Any = None
    leader = SharePartitionLeader(
        SharePartitionKey("g", UUID(int=1), 0), partition, states, lambda: config, lambda: True, int, NoDeadLetters()
    )
    leader._records = SharePartition(0, 5, BATCH_COUNT)
    one = leader.deliver("m", ShareFetchLimits(max_bytes=50 << 20, enough=1, at_most=1))
    assert one is not None and one.acquired == [AcquiredSpan(0, 0, 1)]
    assert log.bytes_read.pop() < 20_000
    many = leader.deliver("m", ShareFetchLimits(max_bytes=50 << 20, enough=500))
    assert many is not None and [one.first for one in many.acquired] == list(range(1, 501))
    leader.close()


class NewerShareCoordinator:
    """A share coordinator that has a newer state epoch than the leader, and refuses its writes."""

    async def write(self, key: SharePartitionKey, update: StateUpdate) -> None:
        raise KafkaError(ErrorCode.fenced_state_epoch, "state epoch 2 has begun")


@async_test
async def test_leader_whose_state_epoch_is_fenced_closes_and_answers_not_leader() -> None:
    config = ShareDeliveryConfig(isolation=READ_UNCOMMITTED)
    partition: Any = FakePartition(FakeLog())
    states: Any = NewerShareCoordinator()
    leader = SharePartitionLeader(
        SharePartitionKey("g", UUID(int=1), 0), partition, states, lambda: config, lambda: True, int, NoDeadLetters()
    )
    leader._records = SharePartition(0, 5, BATCH_COUNT)
    assert leader.deliver("m", ShareFetchLimits(max_bytes=1 << 20, enough=1, at_most=1)) is not None
    with pytest.raises(KafkaError, match="state epoch 2") as refused:
        await leader.acknowledge("m", [Acknowledgement(0, 0, (AcknowledgeType.accept,))])
    assert refused.value.code is ErrorCode.not_leader_or_follower
    assert leader.is_closed


@async_test
async def test_nothing_is_delivered_after_the_session_with_the_controller_has_ended() -> None:
    in_session = [True]
    partition: Any = FakePartition(FakeLog())
    states: Any = None
    key, config = SharePartitionKey("g", UUID(int=1), 0), ShareDeliveryConfig(isolation=READ_UNCOMMITTED)
    leader = SharePartitionLeader(key, partition, states, lambda: config, lambda: in_session[0], int, NoDeadLetters())
    leader._records = SharePartition(0, 5, BATCH_COUNT)
    limits = ShareFetchLimits(max_bytes=50 << 20, enough=1, at_most=1)
    assert leader.deliver("m", limits) is not None
    in_session[0] = False
    with pytest.raises(KafkaError) as refused:
        leader.deliver("m", limits)
    assert refused.value.code is ErrorCode.not_leader_or_follower
    in_session[0] = True
    again = leader.deliver("m", limits)
    assert again is not None and again.acquired == [AcquiredSpan(1, 1, 1)]
    leader.close()
