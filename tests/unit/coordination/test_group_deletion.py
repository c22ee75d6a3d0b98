"""Deletion and expiry of groups and offsets, on virtual time."""

import asyncio
from uuid import UUID

from ottla_broker.coordination.classic_group import GroupState
from ottla_broker.coordination.effects import JoinRequest, LeavingMember, SyncRequest
from ottla_broker.coordination.records import (
    OffsetCommit,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.coordination.one_shard import (
    SUBSCRIBED_TO_T,
    TOPIC_ID,
    CoordinatorBroker,
    commits,
    join_as_only_member,
    run_with_broker,
)
from tests.unit.kafka_errors import error_of


def test_group_without_members_and_offsets_is_removed() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        request = JoinRequest("", None, "c", "/h", 60_000, 10_000, "consumer", (("range", b""),))
        assert (await broker.groups.join_group("g", request)).error is ErrorCode.member_id_required
        await asyncio.sleep(10.1)
        # Kafka also lists the group until offsets expire.
        assert [group.state for group in broker.groups.list_groups()] == [GroupState.empty]
        await broker.groups.expire_offsets()
        assert broker.groups.list_groups() == []
        assert broker.journal.end == 0

    run_with_broker(test)


def test_group_whose_first_member_was_rejected_exists_and_can_be_deleted() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        request = JoinRequest("", None, "c", "/h", 60_000, 10_000, "consumer", ())
        assert (await broker.groups.join_group("g", request)).error is ErrorCode.inconsistent_group_protocol
        assert [group.id for group in broker.groups.list_groups()] == ["g"]
        await broker.groups.delete_group("g")
        assert broker.groups.list_groups() == []
        assert broker.journal.end == 0

    run_with_broker(test)


def test_group_exists_after_the_deletion_of_its_offsets_with_their_topic() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits(1))
        await broker.groups.delete_offsets_of_topics({"t": TOPIC_ID})
        assert broker.groups.fetch_offsets("g") == {}
        unknown = broker.groups.sync_group("g", SyncRequest("nobody", None, 1, None, None, {}))
        assert (await unknown).error is ErrorCode.unknown_member_id
        assert await broker.groups.delete_offsets("g", [("t", 0)]) == [ErrorCode.none]

    run_with_broker(test)


def test_deleted_group_and_its_offsets_do_not_return_after_a_restart() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        joined = await join_as_only_member(broker)
        await broker.groups.commit_offsets("g", joined.member_id, None, joined.generation, commits())
        assert await error_of(broker.groups.delete_group("g")) is ErrorCode.non_empty_group
        assert await error_of(broker.groups.delete_group("h")) is ErrorCode.group_id_not_found
        await broker.groups.leave_group("g", [LeavingMember(joined.member_id)])
        await broker.groups.delete_group("g")
        assert broker.groups.list_groups() == []
        await broker.restart()
        assert broker.groups.list_groups() == []
        assert broker.groups.fetch_offsets("g") == {}

    run_with_broker(test)


def test_deletion_waits_for_pending_commits() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits(1))
        broker.journal.delay_s = 1.0
        late = asyncio.ensure_future(broker.groups.commit_offsets("g", "", None, -1, commits(2, partition=1)))
        await asyncio.sleep(0.1)
        await broker.groups.delete_group("g")
        await late
        await broker.restart()
        assert broker.groups.fetch_offsets("g") == {}

    run_with_broker(test)


def test_group_whose_deletion_failed_still_exists() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits(1))
        broker.journal.failure = KafkaError(ErrorCode.not_enough_replicas)
        assert await error_of(broker.groups.delete_group("g")) is ErrorCode.coordinator_not_available
        assert broker.groups.describe_group("g").state is GroupState.empty
        assert broker.groups.fetch_offsets("g")["t"][0].offset == 1

    run_with_broker(test)


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        joined = await join_as_only_member(broker, metadata=SUBSCRIBED_TO_T)
        both = commits(1) | commits(2, topic="u")
        await broker.groups.commit_offsets("g", joined.member_id, None, joined.generation, both)
        codes = await broker.groups.delete_offsets("g", [("t", 0), ("u", 0), ("u", 9)])
        assert codes == [ErrorCode.group_subscribed_to_topic, ErrorCode.none, ErrorCode.none]
        assert list(broker.groups.fetch_offsets("g")) == ["t"]

    run_with_broker(test)


def test_offsets_of_a_deleted_topic_are_deleted_and_those_of_a_recreated_topic_kept() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits(1))
        newer = {("t", 1): OffsetCommit(3, 1, "", 0, topic_id=UUID(int=78))}
        await broker.groups.commit_offsets("g", "", None, -1, newer)
        await broker.groups.delete_offsets_of_topics({"t": TOPIC_ID})
        await broker.restart()
        assert list(broker.groups.fetch_offsets("g")["t"]) == [1]

    run_with_broker(test)


def test_topic_deletion_does_not_fail_if_its_offsets_cannot_be_deleted() -> None:
    """The offsets expire later. They are not returned for another topic of this name."""

    async def test(broker: CoordinatorBroker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits(1))
        broker.journal.failure = KafkaError(ErrorCode.not_enough_replicas)
        await broker.groups.delete_offsets_of_topics({"t": TOPIC_ID})
        assert broker.groups.fetch_offsets("g")["t"][0].offset == 1

    run_with_broker(test)


def test_offsets_expire_after_the_last_member_has_left() -> None:
    """KIP-211."""

    async def test(broker: CoordinatorBroker) -> None:
        joined = await join_as_only_member(broker, metadata=SUBSCRIBED_TO_T)
        await broker.groups.commit_offsets(
            "g", joined.member_id, None, joined.generation, commits(1) | commits(2, topic="u")
        )
        for _ in range(7 * 60):
            await asyncio.sleep(3)
            broker.groups.heartbeat("g", joined.member_id, None, joined.generation)
        assert list(broker.groups.fetch_offsets("g")) == ["t"], (
            "the group does not subscribe to u, so its offsets expire after the commit"
        )
        await broker.groups.leave_group("g", [LeavingMember(joined.member_id)])
        await asyncio.sleep(9 * 60)
        assert list(broker.groups.fetch_offsets("g")) == ["t"]
        await asyncio.sleep(12 * 60)
        assert broker.groups.list_groups() == []
        await broker.restart()
        assert broker.groups.list_groups() == []

    run_with_broker(test)


def test_offsets_of_a_client_outside_of_the_group_expire_after_their_commit() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        start = broker.groups._runtime.now_ms()
        await broker.groups.commit_offsets("g", "", None, -1, {("t", 0): OffsetCommit(1, 1, "", start)})
        kept = OffsetCommit(1, 1, "", start, expire_ms=start + 3_600_000)
        await broker.groups.commit_offsets("g", "", None, -1, {("t", 1): kept})
        await asyncio.sleep(21 * 60)
        assert list(broker.groups.fetch_offsets("g")["t"]) == [1], "the commit has a retention of its own"
        await asyncio.sleep(50 * 60)
        assert broker.groups.list_groups() == []

    run_with_broker(test)
