"""Groups in a coordinator that change between the classic and the consumer protocol."""

import asyncio
from collections.abc import Mapping
from uuid import UUID

import pytest

from ottla_broker.coordination.classic_group import ClassicGroup
from ottla_broker.coordination.consumer_group_records import CONSUMER_GROUP_RECORDS
from ottla_broker.coordination.consumer_protocol import (
    ConsumerAssignment,
    NamedPartitions,
    encode_assignment,
    read_assignment,
)
from ottla_broker.coordination.effects import JoinRequest, JoinResult, LeavingMember, SyncRequest
from ottla_broker.coordination.group_config import ConsumerGroupConfig, GroupCoordinatorConfig
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.coordination.consumer_group_simulation import add_topic
from tests.unit.coordination.consumer_heartbeats import find_group, send_heartbeat
from tests.unit.coordination.one_shard import CoordinatorBroker, commits, run_with_broker
from tests.unit.kafka_errors import error_of

# Version 1 of a subscription to t, without user data and owned partitions.
SUBSCRIPTION = bytes.fromhex("0001 00000001 000174 ffffffff 00000000")
CLASSIC_CONFIG = GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0)


async def join_classic(broker: CoordinatorBroker, member_id: str = "") -> JoinResult:
    request = JoinRequest(
        member_id, None, "c", "/h", 60_000, 10_000, "consumer", (("range", SUBSCRIPTION),), needs_member_id=False
    )
    return await broker.groups.join_group("g", request)


async def sync_classic(
    broker: CoordinatorBroker, joined: JoinResult, assignments: Mapping[str, bytes] | None = None
) -> frozenset[int]:
    """The partitions of t that the member is assigned."""
    request = SyncRequest(joined.member_id, None, joined.generation, None, None, dict(assignments or {}))
    result = await broker.groups.sync_group("g", request)
    if result.error is not ErrorCode.none:
        raise KafkaError(result.error)
    return frozenset(p for one in read_assignment(result.assignment).assigned for p in one.partitions)


def test_a_classic_group_becomes_a_consumer_group_and_a_classic_group_again() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        topic = add_topic(broker.image, "t", 2)
        classic = await join_classic(broker)
        everything = encode_assignment({"t": frozenset((0, 1))}, 1)
        assert await sync_classic(broker, classic, {classic.member_id: everything}) == {0, 1}

        newer = await send_heartbeat(broker, "m", 0)
        assert newer.assignment == {}, "the classic member still has both"
        assert find_group(broker).owners == {(topic, 0): classic.member_id, (topic, 1): classic.member_id}
        code = broker.groups.heartbeat("g", classic.member_id, None, classic.generation)
        assert code is ErrorCode.rebalance_in_progress
        again = await join_classic(broker, classic.member_id)
        assert again.leader == "" and len(await sync_classic(broker, again)) == 1
        newer = await send_heartbeat(broker, "m", newer.member_epoch)
        assert newer.assignment is not None and len(newer.assignment[topic]) == 1

        await broker.restart()
        assert {member.classic is None for member in find_group(broker).members.values()} == {True, False}
        await send_heartbeat(broker, "m", -1)
        group = broker.groups.describe_group("g")
        assert isinstance(group, ClassicGroup) and list(group.members) == [classic.member_id]
        rejoined = await join_classic(broker, classic.member_id)
        assert rejoined.leader == classic.member_id and rejoined.generation > again.generation
        await broker.restart()
        assert isinstance(broker.groups.describe_group("g"), ClassicGroup)

    run_with_broker(test, CLASSIC_CONFIG)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_classic_group_stays_one_where_the_policy_says_so(policy: str) -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 2)
        joined = await join_classic(broker)
        await sync_classic(broker, joined)
        assert await error_of(send_heartbeat(broker, "m", 0)) is ErrorCode.group_id_not_found
        await broker.groups.leave_group("g", [LeavingMember(joined.member_id)])
        assert (await send_heartbeat(broker, "m", 0)).member_epoch == 1, "an empty group may change"

    config = ConsumerGroupConfig(migration_policy=policy)
    run_with_broker(test, GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0, consumer=config))


def test_a_group_with_user_data_in_its_assignment_stays_a_classic_group() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 2)
        joined = await join_classic(broker)
        own = encode_assignment({"t": frozenset((0,))}, 1)[:-4] + b"\x00\x00\x00\x01x"
        assert read_assignment(own) == ConsumerAssignment((NamedPartitions("t", (0,)),), b"x")
        await sync_classic(broker, joined, {joined.member_id: own})
        assert await error_of(send_heartbeat(broker, "m", 0)) is ErrorCode.group_id_not_found

    run_with_broker(test, CLASSIC_CONFIG)


def test_an_empty_consumer_group_becomes_a_classic_group_when_a_classic_member_joins() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 1)
        await send_heartbeat(broker, "m", 0)
        await broker.groups.commit_offsets("g", "m", None, 1, commits())
        await send_heartbeat(broker, "m", -1)
        await join_classic(broker)
        assert isinstance(broker.groups.describe_group("g"), ClassicGroup)
        assert broker.groups.fetch_offsets("g")["t"][0].offset == 5
        written = {record.key for record in broker.records() if record.value is not None}
        deleted = {record.key for record in broker.records() if record.value is None}
        assert {
            key for key in written if key is not None and CONSUMER_GROUP_RECORDS.decode_key(key) is not None
        } <= deleted

    run_with_broker(test, CLASSIC_CONFIG)


def test_classic_members_that_do_not_rejoin_are_removed() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 2)
        classic = await join_classic(broker)
        await sync_classic(broker, classic, {classic.member_id: encode_assignment({"t": frozenset((0, 1))}, 1)})
        epoch = (await send_heartbeat(broker, "m", 0)).member_epoch
        for _ in range(14):
            await asyncio.sleep(5)
            if classic.member_id in find_group(broker).members:
                code = broker.groups.heartbeat("g", classic.member_id, None, classic.generation)
                assert code is ErrorCode.rebalance_in_progress  # the member ignores this
            epoch = (await send_heartbeat(broker, "m", epoch)).member_epoch
        assert list(find_group(broker).members) == ["m"]
        assert len(find_group(broker).members["m"].assigned[UUID(int=1)]) == 2

    run_with_broker(test, CLASSIC_CONFIG)
