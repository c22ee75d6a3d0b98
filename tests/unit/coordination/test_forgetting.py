"""How groups and offsets end: deleted, deleted with their topic, expired."""

import asyncio
from uuid import UUID

from ottla_broker.coordination.classic_group import GroupState
from ottla_broker.coordination.effects import JoinRequest, LeavingMember, SyncRequest
from ottla_broker.coordination.records import (
    OffsetCommit,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.coordination.one_partition import (
    SUBSCRIBED_TO_T,
    TOPIC_ID,
    Broker,
    commits,
    member,
    refused,
    scenario,
)


def test_a_group_that_nobody_came_back_to_leaves_nothing_behind() -> None:
    async def test(broker: Broker) -> None:
        request = JoinRequest("", None, "c", "/h", 60_000, 10_000, "consumer", (("range", b""),))
        assert (await broker.groups.join_group("g", request)).error is ErrorCode.member_id_required
        await asyncio.sleep(10.1)
        assert [group.state for group in broker.groups.list_groups()] == [
            GroupState.empty
        ]  # Kafka, too, lists it until then
        await broker.groups.expire_offsets()
        assert broker.groups.list_groups() == []
        assert broker.journal.end == 0

    scenario(test)


def test_a_group_whose_first_member_was_refused_is_there_and_can_be_deleted() -> None:
    async def test(broker: Broker) -> None:
        request = JoinRequest("", None, "c", "/h", 60_000, 10_000, "consumer", ())
        assert (await broker.groups.join_group("g", request)).error is ErrorCode.inconsistent_group_protocol
        assert [group.id for group in broker.groups.list_groups()] == ["g"]
        await broker.groups.delete_group("g")
        assert broker.groups.list_groups() == []
        assert broker.journal.end == 0

    scenario(test)


def test_a_group_outlives_the_offsets_of_a_deleted_topic() -> None:
    async def test(broker: Broker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits(1))
        await broker.groups.delete_offsets_of_topics({"t": TOPIC_ID})
        assert broker.groups.fetch_offsets("g") == {}
        unknown = broker.groups.sync_group("g", SyncRequest("nobody", None, 1, None, None, {}))
        assert (await unknown).error is ErrorCode.unknown_member_id
        assert await broker.groups.delete_offsets("g", [("t", 0)]) == [ErrorCode.none]

    scenario(test)


def test_a_deleted_group_is_gone_with_its_offsets_for_good() -> None:
    async def test(broker: Broker) -> None:
        joined = await member(broker.groups)
        await broker.groups.commit_offsets("g", joined.member_id, None, joined.generation, commits())
        assert await refused(broker.groups.delete_group("g")) is ErrorCode.non_empty_group
        assert await refused(broker.groups.delete_group("h")) is ErrorCode.group_id_not_found
        await broker.groups.leave_group("g", [LeavingMember(joined.member_id)])
        await broker.groups.delete_group("g")
        assert broker.groups.list_groups() == []
        await broker.restart()
        assert broker.groups.list_groups() == []
        assert broker.groups.fetch_offsets("g") == {}

    scenario(test)


def test_a_deletion_waits_for_commits_that_are_on_their_way() -> None:
    async def test(broker: Broker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits(1))
        broker.journal.delay_s = 1.0
        late = asyncio.ensure_future(broker.groups.commit_offsets("g", "", None, -1, commits(2, at=1)))
        await asyncio.sleep(0.1)
        await broker.groups.delete_group("g")
        await late
        await broker.restart()
        assert broker.groups.fetch_offsets("g") == {}

    scenario(test)


def test_a_group_whose_deletion_failed_is_still_there() -> None:
    async def test(broker: Broker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits(1))
        broker.journal.failure = KafkaError(ErrorCode.not_enough_replicas)
        assert await refused(broker.groups.delete_group("g")) is ErrorCode.coordinator_not_available
        assert broker.groups.describe_group("g").state is GroupState.empty
        assert broker.groups.fetch_offsets("g")["t"][0].offset == 1

    scenario(test)


def test_offsets_of_topics_that_are_read_cannot_be_deleted() -> None:
    async def test(broker: Broker) -> None:
        joined = await member(broker.groups, metadata=SUBSCRIBED_TO_T)
        both = commits(1) | commits(2, topic="u")
        await broker.groups.commit_offsets("g", joined.member_id, None, joined.generation, both)
        codes = await broker.groups.delete_offsets("g", [("t", 0), ("u", 0), ("u", 9)])
        assert codes == [ErrorCode.group_subscribed_to_topic, ErrorCode.none, ErrorCode.none]
        assert list(broker.groups.fetch_offsets("g")) == ["t"]

    scenario(test)


def test_offsets_of_a_deleted_topic_go_and_those_of_its_successor_stay() -> None:
    async def test(broker: Broker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits(1))
        newer = {("t", 1): OffsetCommit(3, 1, "", 0, topic_id=UUID(int=78))}
        await broker.groups.commit_offsets("g", "", None, -1, newer)
        await broker.groups.delete_offsets_of_topics({"t": TOPIC_ID})
        await broker.restart()
        assert list(broker.groups.fetch_offsets("g")["t"]) == [1]

    scenario(test)


def test_a_topic_can_be_deleted_while_its_offsets_cannot() -> None:
    """They are left to expire: nobody is told them for another topic of that name."""

    async def test(broker: Broker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits(1))
        broker.journal.failure = KafkaError(ErrorCode.not_enough_replicas)
        await broker.groups.delete_offsets_of_topics({"t": TOPIC_ID})
        assert broker.groups.fetch_offsets("g")["t"][0].offset == 1

    scenario(test)


def test_offsets_expire_after_the_last_member_left_and_not_before() -> None:
    """KIP-211."""

    async def test(broker: Broker) -> None:
        joined = await member(broker.groups, metadata=SUBSCRIBED_TO_T)
        await broker.groups.commit_offsets(
            "g", joined.member_id, None, joined.generation, commits(1) | commits(2, topic="u")
        )
        for _ in range(7 * 60):
            await asyncio.sleep(3)
            broker.groups.heartbeat("g", joined.member_id, None, joined.generation)
        assert list(broker.groups.fetch_offsets("g")) == ["t"], (
            "the group does not read u, so its offsets expire from the commit on"
        )
        await broker.groups.leave_group("g", [LeavingMember(joined.member_id)])
        await asyncio.sleep(9 * 60)
        assert list(broker.groups.fetch_offsets("g")) == ["t"]
        await asyncio.sleep(12 * 60)
        assert broker.groups.list_groups() == []
        await broker.restart()
        assert broker.groups.list_groups() == []

    scenario(test)


def test_offsets_of_somebody_who_never_joined_expire_from_their_commit_on() -> None:
    async def test(broker: Broker) -> None:
        start = broker.groups._runtime.now_ms()
        await broker.groups.commit_offsets("g", "", None, -1, {("t", 0): OffsetCommit(1, 1, "", start)})
        kept = OffsetCommit(1, 1, "", start, expire_ms=start + 3_600_000)
        await broker.groups.commit_offsets("g", "", None, -1, {("t", 1): kept})
        await asyncio.sleep(21 * 60)
        assert list(broker.groups.fetch_offsets("g")["t"]) == [1], "this one brought its own retention"
        await asyncio.sleep(50 * 60)
        assert broker.groups.list_groups() == []

    scenario(test)
