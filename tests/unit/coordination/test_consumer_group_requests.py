"""Consumer groups (KIP-848) in a coordinator: records, failures and restarts."""

import asyncio

import pytest

from ottla_broker.coordination import consumer_group_requests
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.coordination.consumer_group_simulation import add_topic
from tests.unit.coordination.consumer_heartbeats import NO_INTERVAL, find_group, send_heartbeat
from tests.unit.coordination.one_shard import CoordinatorBroker, commits, run_with_broker
from tests.unit.kafka_errors import error_of


def test_a_group_is_restored_from_its_records() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        topic = add_topic(broker.image, "t", 3)
        joined = await send_heartbeat(broker, "m", 0, group_instance_id="i", rack_id="r", server_assignor="range")
        assert joined.assignment == {topic: frozenset(range(3))}
        before = find_group(broker)
        await broker.restart()
        after = find_group(broker)
        assert (after.epoch, after.assignment_epoch, after.metadata_hash) == (1, 1, before.metadata_hash)
        assert (after.members, after.targets, after.owners) == (before.members, before.targets, before.owners)
        assert (await send_heartbeat(broker, "m", 1, group_instance_id="i")).member_epoch == 1
        assert await error_of(send_heartbeat(broker, "other", 1)) is ErrorCode.unknown_member_id

    run_with_broker(test)


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 1)
        await send_heartbeat(broker, "m", 0)
        written = broker.journal.batch_count
        result = await send_heartbeat(broker, "m", 1)
        assert (broker.journal.batch_count, result.assignment) == (written, None)

    run_with_broker(test)


def test_a_change_that_cannot_be_appended_is_undone() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 2)
        broker.journal.failure = KafkaError(ErrorCode.not_enough_replicas)
        assert await error_of(send_heartbeat(broker, "a", 0)) is ErrorCode.coordinator_not_available
        assert broker.groups.list_groups() == []
        broker.journal.failure = None
        await send_heartbeat(broker, "a", 0)
        broker.journal.failure = KafkaError(ErrorCode.not_enough_replicas)
        assert await error_of(send_heartbeat(broker, "b", 0)) is ErrorCode.coordinator_not_available
        assert await error_of(send_heartbeat(broker, "a", -1)) is ErrorCode.coordinator_not_available
        assert (list(find_group(broker).members), find_group(broker).epoch) == (["a"], 1)

    run_with_broker(test)


def test_a_repeated_heartbeat_is_answered_when_the_first_one_is_replicated() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 1)
        broker.journal.delay_s = 1.0
        first = asyncio.ensure_future(send_heartbeat(broker, "m", 0))
        await asyncio.sleep(0.1)
        again = asyncio.ensure_future(send_heartbeat(broker, "m", 0))
        await asyncio.sleep(0.1)
        assert not again.done()
        assert (await first) == (await again)

    run_with_broker(test)


def test_a_change_that_is_not_replicated_in_time_fails_until_it_is() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 1)
        broker.journal.delay_s = 20.0
        for _ in range(3):
            assert await error_of(send_heartbeat(broker, "m", 0)) is ErrorCode.coordinator_not_available
        await asyncio.sleep(20)
        batches = broker.journal.batch_count
        assert (await send_heartbeat(broker, "m", 0)).member_epoch == 1
        assert broker.journal.batch_count == batches

    run_with_broker(test)


def test_heartbeats_of_one_turn_are_one_batch_and_one_assignment() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        topic = add_topic(broker.image, "t", 8)
        await send_heartbeat(broker, "m0", 0)
        written, assigned_epoch = broker.journal.batch_count, find_group(broker).assignment_epoch
        joined = await asyncio.gather(*(send_heartbeat(broker, f"m{at}", 0) for at in range(1, 8)))
        group = find_group(broker)
        assert broker.journal.batch_count == written + 1
        assert (group.epoch, group.assignment_epoch) == (8, 8) and assigned_epoch == 1
        assert all(result.assignment == {} for result in joined), "m0 still has all partitions"
        (response,) = await asyncio.gather(send_heartbeat(broker, "m0", 1))
        assert response.assignment is not None and len(response.assignment[topic]) == 1
        # m0 gives up seven partitions and the others get them, in one turn and one batch.
        written = broker.journal.batch_count
        results = await asyncio.gather(
            send_heartbeat(broker, "m0", 1, owned=response.assignment),
            *(send_heartbeat(broker, f"m{at}", 8) for at in range(1, 8)),
        )
        assert [len((result.assignment or {}).get(topic, ())) for result in results] == [0, 1, 1, 1, 1, 1, 1, 1]
        assert broker.journal.batch_count == written + 1
        before = dict(group.members)
        await broker.restart()
        assert find_group(broker).members == before

    run_with_broker(test, NO_INTERVAL)


def test_an_error_of_one_heartbeat_does_not_fail_others_in_its_turn() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 2)
        await send_heartbeat(broker, "a", 0)
        outcomes = await asyncio.gather(
            send_heartbeat(broker, "x", 5),
            send_heartbeat(broker, "b", 0, subscribed_topic_names=None, subscribed_topic_regex="t("),
            send_heartbeat(broker, "c", 0),
            return_exceptions=True,
        )
        codes = [one.code if isinstance(one, KafkaError) else None for one in outcomes]
        assert codes == [ErrorCode.unknown_member_id, ErrorCode.invalid_regular_expression, None]
        assert set(find_group(broker).members) == {"a", "c"}

    run_with_broker(test)


def test_a_heartbeat_that_fails_computes_no_assignment() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 2)
        await send_heartbeat(broker, "a", 0)
        await send_heartbeat(broker, "a", -1)  # begins an epoch, in which nothing has to be assigned yet
        assigned = find_group(broker).assignment_epoch
        with pytest.raises(KafkaError):
            await send_heartbeat(broker, "x", 5)
        assert find_group(broker).assignment_epoch == assigned < find_group(broker).epoch

    run_with_broker(test, NO_INTERVAL)


def test_heartbeats_of_one_turn_are_undone_together() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 4)
        await send_heartbeat(broker, "a", 0)
        group = find_group(broker)
        before = (dict(group.members), dict(group.targets), dict(group.owners), group.epoch, group.assignment_epoch)
        broker.journal.failure = KafkaError(ErrorCode.not_enough_replicas)
        codes = await asyncio.gather(*(error_of(send_heartbeat(broker, name, 0)) for name in "bcd"))
        assert set(codes) == {ErrorCode.coordinator_not_available}
        group = find_group(broker)
        assert before == (group.members, group.targets, group.owners, group.epoch, group.assignment_epoch)
        broker.journal.failure = None
        await asyncio.gather(*(send_heartbeat(broker, name, 0) for name in "bcd"))
        assert set(find_group(broker).members) == set("abcd")

    run_with_broker(test, NO_INTERVAL)


def test_a_turn_with_more_records_than_a_batch_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_group_requests, "BATCH_BYTES", 1000)

    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 16)
        await send_heartbeat(broker, "m0", 0)
        written = broker.journal.batch_count
        await asyncio.gather(*(send_heartbeat(broker, f"m{at}", 0) for at in range(1, 16)))
        assert broker.journal.batch_count > written + 2
        before = dict(find_group(broker).members)
        assert len(before) == 16
        await broker.restart()
        assert find_group(broker).members == before

    run_with_broker(test, NO_INTERVAL)


def test_members_expire_with_their_sessions_also_after_a_restart() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 1)
        await send_heartbeat(broker, "m", 0)
        await broker.restart()
        await asyncio.sleep(44)
        assert not find_group(broker).is_empty
        await asyncio.sleep(2)
        assert find_group(broker).is_empty
        await broker.restart()
        assert find_group(broker).is_empty

    run_with_broker(test)


def test_removing_expired_members_and_old_groups_is_tried_again() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 1)
        await send_heartbeat(broker, "m", 0)
        broker.journal.failure = KafkaError(ErrorCode.not_enough_replicas)
        await asyncio.sleep(60)
        assert not find_group(broker).is_empty
        broker.journal.failure = None
        await asyncio.sleep(2)
        assert find_group(broker).is_empty
        broker.journal.failure = KafkaError(ErrorCode.not_enough_replicas)
        assert await broker.groups.expire_offsets() == 0
        assert await error_of(broker.groups.delete_group("g")) is ErrorCode.coordinator_not_available
        broker.journal.failure = None
        await broker.groups.expire_offsets()
        assert broker.groups.list_groups() == []

    run_with_broker(test)


def test_configs_of_a_group_replace_those_of_the_broker_within_its_bounds() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 1)
        broker.image.configs[32, "g"] = {
            "consumer.heartbeat.interval.ms": "7000",
            "consumer.session.timeout.ms": "1000",
        }
        assert (await send_heartbeat(broker, "m", 0)).heartbeat_interval_ms == 7000
        await asyncio.sleep(44)
        assert not find_group(broker).is_empty

    run_with_broker(test)


def test_commits_and_fetches_are_checked_against_the_member_epoch() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 1)
        await send_heartbeat(broker, "m", 0)
        groups = broker.groups
        await groups.commit_offsets("g", "m", None, 1, commits())
        assert await error_of(groups.commit_offsets("g", "m", None, 0, commits())) is ErrorCode.stale_member_epoch
        assert await error_of(groups.commit_offsets("g", "x", None, 1, commits())) is ErrorCode.unknown_member_id
        assert await error_of(groups.commit_offsets("g", "", None, -1, commits())) is ErrorCode.unknown_member_id
        older = groups.commit_offsets("g", "m", None, 1, commits(), version=8)
        assert await error_of(older) is ErrorCode.unsupported_version
        assert groups.fetch_offsets("g", "m", 1)["t"][0].offset == 5
        assert groups.fetch_offsets("g")["t"][0].offset == 5
        for member, epoch, code in (("m", 2, ErrorCode.stale_member_epoch), ("x", 1, ErrorCode.unknown_member_id)):
            with pytest.raises(KafkaError) as raised:
                groups.fetch_offsets("g", member, epoch)
            assert raised.value.code is code

    run_with_broker(test)


def test_an_empty_group_is_deleted_with_its_records() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 1)
        await send_heartbeat(broker, "m", 0, subscribed_topic_regex="t.*")
        await broker.groups.commit_offsets("g", "m", None, 1, commits())
        assert await error_of(broker.groups.delete_group("g")) is ErrorCode.non_empty_group
        await send_heartbeat(broker, "m", -1)
        await broker.groups.delete_group("g")
        latest = {record.key: record.value for record in broker.records()}
        assert set(latest.values()) == {None}
        await broker.restart()
        assert broker.groups.list_groups() == []

    run_with_broker(test)


def test_offsets_of_an_open_transaction_are_deleted_with_their_group() -> None:
    """As in Kafka, the transaction does not bring back offsets of the deleted group."""

    async def verify(_: int) -> None:
        pass

    async def test(broker: CoordinatorBroker) -> None:
        add_topic(broker.image, "t", 1)
        await send_heartbeat(broker, "m", 0)
        await send_heartbeat(broker, "m", -1)
        await broker.groups.commit_transactional_offsets("g", "", None, -1, (7, 0), commits(), verify)
        await broker.groups.delete_group("g")
        assert not broker.groups.has_pending_offset("g", "t", 0)
        await broker.groups.complete_transaction(0, 7, 0, 1, commit=True)
        assert broker.groups.fetch_offsets("g") == {}
        await broker.restart()
        assert broker.groups.fetch_offsets("g") == {} and broker.groups.list_groups() == []

    run_with_broker(test)


def test_regular_expressions_are_kept_while_a_member_has_them() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        topic = add_topic(broker.image, "t1", 1)
        add_topic(broker.image, "secret", 1)
        invalid = send_heartbeat(broker, "m", 0, subscribed_topic_names=None, subscribed_topic_regex="t(")
        assert await error_of(invalid) is ErrorCode.invalid_regular_expression
        assert broker.groups.list_groups() == []
        joined = await send_heartbeat(
            broker,
            "m",
            0,
            subscribed_topic_names=None,
            subscribed_topic_regex=".*",
            may_describe=lambda name: name != "secret",
        )
        assert joined.assignment == {topic: frozenset((0,))}
        assert find_group(broker).regular_expressions[".*"].topics == ("t1",)
        await send_heartbeat(broker, "m", 1, subscribed_topic_regex="")
        assert find_group(broker).regular_expressions == {}

    run_with_broker(test)


def test_partitions_that_a_member_gives_up_are_assigned_in_the_same_turn() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        topic = add_topic(broker.image, "t", 2)
        await send_heartbeat(broker, "m", 0)
        assert (await send_heartbeat(broker, "n", 0)).assignment == {}
        kept = (await send_heartbeat(broker, "m", 1)).assignment
        assert kept is not None and len(kept[topic]) == 1
        waiting, giving = await asyncio.gather(
            send_heartbeat(broker, "n", 2), send_heartbeat(broker, "m", 1, owned=kept)
        )
        assert (giving.member_epoch, waiting.member_epoch) == (2, 2)
        assert waiting.assignment == {topic: frozenset(range(2)) - kept[topic]}

    run_with_broker(test, NO_INTERVAL)
