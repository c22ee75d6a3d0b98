"""The controller's decisions on ISR changes, reassignments and elections: rules 1, 4 and 12."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metadata import reassignment
from ottla_broker.metadata.election import ElectionCandidates, TopicElectionRules
from ottla_broker.metadata.isr_changes import IsrChangeRequest
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.metadata.replication_control import PartitionReassignment
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test
from tests.unit.metadata.small_controller import SmallController

TOPIC = UUID(int=9)


def proposal(small: SmallController, isr: tuple[int, ...], partition: int = 0, **overrides: int) -> IsrChangeRequest:
    """`overrides`: `leader_epoch`, `partition_epoch`, or `epoch_N`, a member's broker epoch."""
    state = small.state(partition)
    epochs = {"leader_epoch": state.leader_epoch, "partition_epoch": state.partition_epoch}
    sent = {key: overrides.pop(key, value) for key, value in epochs.items()}
    registered = {broker.id: broker.epoch for broker in small.image.brokers.values()}
    members = [(broker, overrides.get(f"epoch_{broker}", registered.get(broker, -1))) for broker in isr]
    return IsrChangeRequest(state.topic, partition, sent["leader_epoch"], sent["partition_epoch"], members)


async def alter_isr(
    small: SmallController, isr: tuple[int, ...], leader: int = 1, **overrides: int
) -> PartitionRecord | ErrorCode:
    [outcome] = await small.replicas.alter_partitions(leader, [proposal(small, isr, **overrides)])
    return outcome.code if isinstance(outcome, KafkaError) else outcome


@async_test
async def test_partitions_of_a_request_are_one_commit_and_a_rejected_one_stops_no_other() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    await small.add_topic(partitions=30)
    small.log.commits.clear()
    proposals = [proposal(small, (1, 2), partition=p, leader_epoch=0 if p else 7) for p in range(30)]
    first, *others = await small.replicas.alter_partitions(1, proposals)
    assert isinstance(first, KafkaError) and first.code is ErrorCode.not_controller
    assert [state.isr for state in others if isinstance(state, PartitionRecord)] == [(1, 2)] * 29
    assert small.log.commits == [29]


@async_test
async def test_rule_1_a_proposal_is_accepted_only_for_the_current_leader_and_partition_epoch() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    await small.add_topic()
    assert await alter_isr(small, (1, 2), leader_epoch=-1) is ErrorCode.fenced_leader_epoch
    assert await alter_isr(small, (1, 2), leader_epoch=1) is ErrorCode.not_controller
    assert await alter_isr(small, (1, 2), partition_epoch=1) is ErrorCode.not_controller
    assert await alter_isr(small, (1, 2), leader=2) is ErrorCode.invalid_request
    assert await alter_isr(small, (2, 3)) is ErrorCode.invalid_request  # without the leader
    assert await alter_isr(small, (1, 1)) is ErrorCode.invalid_request
    done = await alter_isr(small, (1, 2))
    assert isinstance(done, PartitionRecord)
    assert (done.isr, done.leader_epoch, done.partition_epoch) == ((1, 2), 0, 1)
    assert await alter_isr(small, (1,), partition_epoch=0) is ErrorCode.invalid_update_version


@async_test
async def test_an_accepted_proposal_of_the_same_isr_invalidates_earlier_proposals() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    await small.add_topic()
    before = proposal(small, (1,))
    done = await alter_isr(small, (1, 2, 3))
    assert isinstance(done, PartitionRecord) and (done.isr, done.partition_epoch) == ((1, 2, 3), 1)
    [outcome] = await small.replicas.alter_partitions(1, [before])
    assert isinstance(outcome, KafkaError) and outcome.code is ErrorCode.invalid_update_version


@async_test
async def test_rule_4_only_unfenced_registered_replicas_may_join_the_isr() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    await small.add_topic()
    await alter_isr(small, (1,))
    assert await alter_isr(small, (1, 2), epoch_2=5) is ErrorCode.ineligible_replica
    await small.brokers.fence_broker(2, small.image.brokers[2].epoch, "a test")
    assert await alter_isr(small, (1, 2)) is ErrorCode.ineligible_replica
    await small.heartbeat(3, want_shut_down=True)
    assert await alter_isr(small, (1, 3)) is ErrorCode.ineligible_replica
    assert await alter_isr(small, (1, 4)) is ErrorCode.invalid_request
    await small.heartbeat(2)
    done = await alter_isr(small, (1, 2), epoch_2=-1)  # a leader without KIP-903 sends no broker epoch
    assert isinstance(done, PartitionRecord) and done.isr == (1, 2)


@async_test
async def test_a_replica_that_leaves_an_isr_below_min_insync_stays_eligible() -> None:
    small = await SmallController(min_insync_replicas="2").add_brokers(1, 2, 3)
    await small.add_topic()
    for isr, eligible in (((1, 2), ()), ((1,), (2,)), ((1, 3), ()), ((1,), (3,))):
        done = await alter_isr(small, isr)
        assert isinstance(done, PartitionRecord) and (done.isr, done.eligible) == (isr, eligible)
    await small.controller.alter_configs(2, "t", {"min.insync.replicas": "1"})
    assert small.state().eligible == ()  # with a lower minimum the high watermark no longer needs them


@async_test
async def test_a_lower_default_of_min_insync_replicas_ends_eligibility_too() -> None:
    small = await SmallController(min_insync_replicas="2").add_brokers(1, 2)
    await small.add_topic(replicas=(1, 2))
    await small.add_topic("own", replicas=(1, 2), min_insync_replicas="2")
    for topic in ("t", "own"):
        state = small.state(topic=topic)
        await small.replicas.alter_partitions(1, [IsrChangeRequest(state.topic, 0, 0, 0, [(1, -1)])])
        assert small.state(topic=topic).eligible == (2,)
    await small.controller.alter_configs(4, "", {"min.insync.replicas": "1"})
    assert [small.state(topic=topic).eligible for topic in ("t", "own")] == [(), (2,)]


@async_test
async def test_a_new_controller_clears_eligible_replicas_by_its_own_settings() -> None:
    small = await SmallController(min_insync_replicas="2").add_brokers(1, 2)
    await small.add_topic(replicas=(1, 2))
    await alter_isr(small, (1,))
    await small.replicas.clear_unneeded_eligible_replicas()
    assert small.state().eligible == (2,)
    successor = SmallController(min_insync_replicas="1")
    successor.image.apply_records((n, record) for n, record in enumerate(small.image.to_records(0)))
    await successor.replicas.clear_unneeded_eligible_replicas()
    assert successor.state().eligible == ()


# --- reassignment


async def reassign(small: SmallController, replicas: tuple[int, ...] | None, **options: bool) -> ErrorCode | None:
    [outcome] = await small.replicas.reassign_partitions([PartitionReassignment("t", 0, replicas)], **options)
    return None if outcome is None else outcome.code


@async_test
async def test_rule_12_a_reassignment_ends_when_every_target_is_in_sync() -> None:
    small = await SmallController().add_brokers(1, 2, 3, 4)
    await small.add_topic()
    assert await reassign(small, (4, 2, 1)) is None
    state = small.state()
    assert (state.replicas, state.adding, state.removing) == ((4, 2, 1, 3), (4,), (3,))
    assert [s.partition for _, s in small.replicas.ongoing_reassignments()] == [0]
    await alter_isr(small, (1, 3))
    done = await alter_isr(small, (1, 3, 4))
    assert isinstance(done, PartitionRecord) and done.removing == (3,)  # target 2 is not in sync
    done = await alter_isr(small, (1, 2, 3, 4))
    assert isinstance(done, PartitionRecord)
    assert (done.replicas, done.isr, done.adding, done.removing, done.leader) == ((4, 2, 1), (4, 2, 1), (), (), 1)
    assert list(small.replicas.ongoing_reassignments()) == []


@async_test
async def test_a_leader_outside_of_the_target_replicas_is_replaced() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    await small.add_topic(replicas=(1,))
    await reassign(small, (2, 3))
    assert await alter_isr(small, (1, 2, 3)) is ErrorCode.new_leader_elected
    assert (small.state().leader, small.state().leader_epoch, small.state().replicas) == (2, 1, (2, 3))


@async_test
async def test_a_reassignment_can_be_cancelled_and_replaced() -> None:
    small = await SmallController().add_brokers(1, 2, 3, 4)
    await small.add_topic(replicas=(1, 2))
    assert await reassign(small, None) is ErrorCode.no_reassignment_in_progress
    await reassign(small, (3, 4))
    await alter_isr(small, (1, 2, 3))
    await reassign(small, (4, 2))  # replica 3 is no longer a target
    state = small.state()
    assert (state.replicas, state.isr, state.adding, state.removing) == ((4, 2, 1), (2, 1), (4,), (1,))
    assert await reassign(small, None) is None
    assert (set(small.state().replicas), set(small.state().isr)) == ({1, 2}, {1, 2})
    assert not reassignment.is_reassigning(small.state())


@async_test
async def test_a_reassignment_without_new_replicas_completes_at_once() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    await small.add_topic()
    await reassign(small, (3, 2, 1))
    assert (small.state().replicas, small.state().leader) == ((3, 2, 1), 1)
    await reassign(small, (2,))
    assert (small.state().replicas, small.state().isr, small.state().leader) == ((2,), (2,), 2)


@async_test
async def test_invalid_reassignments_are_rejected() -> None:
    small = await SmallController().add_brokers(1, 2)
    await small.add_topic(replicas=(1,))
    assert await reassign(small, ()) is ErrorCode.invalid_replica_assignment
    assert await reassign(small, (1, 1)) is ErrorCode.invalid_replica_assignment
    assert await reassign(small, (9,)) is ErrorCode.invalid_replica_assignment
    assert await reassign(small, (1, 2), same_factor=True) is ErrorCode.invalid_replication_factor
    assert await reassign(small, (2,), same_factor=True) is None
    [outcome] = await small.replicas.reassign_partitions([PartitionReassignment("nowhere", 0, (1,))])
    assert outcome is not None and outcome.code is ErrorCode.unknown_topic_or_partition


@async_test
async def test_deleting_a_topic_ends_its_reassignments() -> None:
    small = await SmallController().add_brokers(1, 2)
    await small.add_topic(replicas=(1,))
    await reassign(small, (2,))
    old = proposal(small, (1, 2))
    await small.controller.delete_topic("t")
    await small.add_topic(replicas=(1,))
    assert list(small.replicas.ongoing_reassignments()) == []
    [outcome] = await small.replicas.alter_partitions(1, [old])
    assert isinstance(outcome, KafkaError) and outcome.code is ErrorCode.unknown_topic_id  # rule 13


@given(st.data())
def test_rule_12_begin_and_cancel_keep_adding_and_removing_sets_exact(data: st.DataObject) -> None:
    replica_lists = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(tuple)
    before = data.draw(replica_lists)
    isr = data.draw(st.lists(st.sampled_from(before), min_size=1, unique=True))
    state = PartitionRecord(TOPIC, 0, before, tuple(isr), isr[0])
    candidates = ElectionCandidates(dict.fromkeys(range(6), ()))
    rules = TopicElectionRules(1, allow_unclean=False)
    for targets in data.draw(st.lists(replica_lists, min_size=1, max_size=3)):
        try:
            state = reassignment.begin_reassignment(state, targets, {}, candidates, rules) or state
        except KafkaError:
            continue
        assert reassignment.target_replicas(state) == targets
        if reassignment.is_reassigning(state):
            assert set(reassignment.original_replicas(state)) == set(before)
            assert set(state.adding) == set(targets) - set(before)
            assert set(state.removing) == set(before) - set(targets)
        else:
            assert set(targets) <= set(isr) or set(targets) == set(before)
            before = targets
        assert set(state.isr) <= set(state.replicas)
        assert state.isr
        isr = list(state.isr)
    if reassignment.is_reassigning(state):
        try:
            cancelled = reassignment.cancel_reassignment(state, candidates, rules)
        except KafkaError:
            return
        assert cancelled is not None and set(cancelled.replicas) == set(before)


# --- elections


@async_test
async def test_preferred_leaders_are_elected_where_they_are_in_sync() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    await small.add_topic(partitions=3)
    await small.add_topic("other", replicas=(3, 1))
    await small.brokers.fence_broker(1, small.image.brokers[1].epoch, "a test")
    await small.heartbeat(1)
    state = small.state(0)
    await small.replicas.alter_partitions(
        2, [IsrChangeRequest(state.topic, 0, state.leader_epoch, state.partition_epoch, [(1, -1), (2, -1), (3, -1)])]
    )
    outcomes = await small.replicas.elect_preferred_leaders([("t", 0), ("t", 1), ("other", 0), ("t", 9)])
    codes = {key: None if outcome is None else outcome.code for key, outcome in outcomes.items()}
    assert codes == {
        ("t", 0): None,
        ("t", 1): ErrorCode.preferred_leader_not_available,
        ("other", 0): ErrorCode.election_not_needed,
        ("t", 9): ErrorCode.unknown_topic_or_partition,
    }
    assert [small.state(p).leader for p in range(3)] == [1, 2, 2]
    outcomes_of_all = await small.replicas.elect_preferred_leaders(None)
    assert list(outcomes_of_all) == [("t", 1), ("t", 2)]  # without partitions that need no election
    assert await small.replicas.restore_preferred_leaders() == 0


@async_test
async def test_an_unclean_election_is_for_partitions_without_a_leader() -> None:
    small = await SmallController().add_brokers(1, 2)
    await small.add_topic(partitions=2, replicas=(1, 2))
    await small.add_topic("alone", replicas=(1,))
    for partition in range(2):
        await small.replicas.alter_partitions(1, [proposal(small, (1,), partition)])
    await small.brokers.fence_broker(1, small.image.brokers[1].epoch, "a test")
    outcomes = await small.replicas.elect_unclean_leaders([("t", 0), ("alone", 0)])
    assert outcomes["t", 0] is None
    assert outcomes["alone", 0] is not None
    assert outcomes["alone", 0].code is ErrorCode.eligible_leaders_not_available
    assert (small.state(0).leader, small.state(0).isr) == (2, (2,))
    second_outcomes = await small.replicas.elect_unclean_leaders([("t", 0)])
    assert second_outcomes["t", 0] is not None and second_outcomes["t", 0].code is ErrorCode.election_not_needed


@async_test
async def test_a_failed_commit_is_reported_and_changes_nothing() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    await small.add_topic()
    small.log.commit_error = KafkaError(ErrorCode.not_controller)
    with pytest.raises(KafkaError, match="not_controller"):
        await alter_isr(small, (1,))
    assert small.state().isr == (1, 2, 3)
