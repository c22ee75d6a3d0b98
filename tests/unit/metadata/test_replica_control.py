"""ISR changes, reassignments and elections, as the controller decides them: rules 1, 4 and 12."""

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
from tests.unit.metadata.small_controller import SmallController, on_a_loop

TOPIC = UUID(int=9)


def proposal(small: SmallController, isr: tuple[int, ...], partition: int = 0, **wrong: int) -> IsrChangeRequest:
    state = small.state(partition)
    epochs = {"leader_epoch": state.leader_epoch, "partition_epoch": state.partition_epoch}
    of = {key: wrong.pop(key, value) for key, value in epochs.items()}
    registered = {broker.id: broker.epoch for broker in small.image.brokers.values()}
    members = [(broker, wrong.get(f"epoch_{broker}", registered.get(broker, -1))) for broker in isr]
    return IsrChangeRequest(state.topic, partition, of["leader_epoch"], of["partition_epoch"], members)


async def altered(
    small: SmallController, isr: tuple[int, ...], leader: int = 1, **wrong: int
) -> PartitionRecord | ErrorCode:
    [outcome] = await small.replicas.alter_partitions(leader, [proposal(small, isr, **wrong)])
    return outcome.code if isinstance(outcome, KafkaError) else outcome


@on_a_loop
async def test_many_partitions_of_a_request_are_one_commit_and_a_refusal_stops_nothing() -> None:
    small = await SmallController().come(1, 2, 3)
    await small.topic(partitions=30)
    small.log.commits.clear()
    asked = [proposal(small, (1, 2), partition=p, leader_epoch=0 if p else 7) for p in range(30)]
    first, *others = await small.replicas.alter_partitions(1, asked)
    assert isinstance(first, KafkaError) and first.code is ErrorCode.not_controller
    assert [state.isr for state in others if isinstance(state, PartitionRecord)] == [(1, 2)] * 29
    assert small.log.commits == [29]


@on_a_loop
async def test_rule_1_a_proposal_holds_only_for_the_state_that_its_leader_saw() -> None:
    small = await SmallController().come(1, 2, 3)
    await small.topic()
    assert await altered(small, (1, 2), leader_epoch=-1) is ErrorCode.fenced_leader_epoch
    assert await altered(small, (1, 2), leader_epoch=1) is ErrorCode.not_controller
    assert await altered(small, (1, 2), partition_epoch=1) is ErrorCode.not_controller
    assert await altered(small, (1, 2), leader=2) is ErrorCode.invalid_request
    assert await altered(small, (2, 3)) is ErrorCode.invalid_request  # without its leader
    assert await altered(small, (1, 1)) is ErrorCode.invalid_request
    done = await altered(small, (1, 2))
    assert isinstance(done, PartitionRecord)
    assert (done.isr, done.leader_epoch, done.partition_epoch) == ((1, 2), 0, 1)
    assert await altered(small, (1,), partition_epoch=0) is ErrorCode.invalid_update_version


@on_a_loop
async def test_an_isr_as_it_is_makes_what_was_proposed_before_impossible() -> None:
    small = await SmallController().come(1, 2, 3)
    await small.topic()
    before = proposal(small, (1,))
    done = await altered(small, (1, 2, 3))
    assert isinstance(done, PartitionRecord) and (done.isr, done.partition_epoch) == ((1, 2, 3), 1)
    [late] = await small.replicas.alter_partitions(1, [before])
    assert isinstance(late, KafkaError) and late.code is ErrorCode.invalid_update_version


@on_a_loop
async def test_rule_4_who_may_join_an_isr() -> None:
    small = await SmallController().come(1, 2, 3)
    await small.topic()
    await altered(small, (1,))
    assert await altered(small, (1, 2), epoch_2=5) is ErrorCode.ineligible_replica
    await small.brokers.fence_broker(2, small.image.brokers[2].epoch, "a test")
    assert await altered(small, (1, 2)) is ErrorCode.ineligible_replica
    await small.beat(3, want_shut_down=True)
    assert await altered(small, (1, 3)) is ErrorCode.ineligible_replica
    assert await altered(small, (1, 4)) is ErrorCode.invalid_request
    await small.beat(2)
    done = await altered(small, (1, 2), epoch_2=-1)  # a leader of before KIP-903 does not say
    assert isinstance(done, PartitionRecord) and done.isr == (1, 2)


@on_a_loop
async def test_who_leaves_an_isr_that_is_too_small_stays_eligible() -> None:
    small = await SmallController(min_insync_replicas="2").come(1, 2, 3)
    await small.topic()
    for isr, eligible in (((1, 2), ()), ((1,), (2,)), ((1, 3), ()), ((1,), (3,))):
        done = await altered(small, isr)
        assert isinstance(done, PartitionRecord) and (done.isr, done.eligible) == (isr, eligible)
    await small.controller.alter_configs(2, "t", {"min.insync.replicas": "1"})
    assert small.state().eligible == ()  # the high watermark moves without them from now on


@on_a_loop
async def test_a_lower_default_of_min_insync_replicas_ends_eligibility_too() -> None:
    small = await SmallController(min_insync_replicas="2").come(1, 2)
    await small.topic(replicas=(1, 2))
    await small.topic("own", replicas=(1, 2), min_insync_replicas="2")
    for topic in ("t", "own"):
        state = small.state(topic=topic)
        await small.replicas.alter_partitions(1, [IsrChangeRequest(state.topic, 0, 0, 0, [(1, -1)])])
        assert small.state(topic=topic).eligible == (2,)
    await small.controller.alter_configs(4, "", {"min.insync.replicas": "1"})
    assert [small.state(topic=topic).eligible for topic in ("t", "own")] == [(), (2,)]


@on_a_loop
async def test_a_new_controller_forgets_the_eligible_by_its_own_settings() -> None:
    small = await SmallController(min_insync_replicas="2").come(1, 2)
    await small.topic(replicas=(1, 2))
    await altered(small, (1,))
    await small.replicas.clear_unneeded_eligible_replicas()
    assert small.state().eligible == (2,)
    later = SmallController(min_insync_replicas="1")
    later.image.apply_records((n, record) for n, record in enumerate(small.image.to_records(0)))
    await later.replicas.clear_unneeded_eligible_replicas()
    assert later.state().eligible == ()


# --- reassignment


async def move(small: SmallController, replicas: tuple[int, ...] | None, **how: bool) -> ErrorCode | None:
    [outcome] = await small.replicas.reassign_partitions([PartitionReassignment("t", 0, replicas)], **how)
    return None if outcome is None else outcome.code


@on_a_loop
async def test_rule_12_a_move_ends_when_every_target_is_in_sync() -> None:
    small = await SmallController().come(1, 2, 3, 4)
    await small.topic()
    assert await move(small, (4, 2, 1)) is None
    state = small.state()
    assert (state.replicas, state.adding, state.removing) == ((4, 2, 1, 3), (4,), (3,))
    assert [s.partition for _, s in small.replicas.ongoing_reassignments()] == [0]
    await altered(small, (1, 3))
    done = await altered(small, (1, 3, 4))
    assert isinstance(done, PartitionRecord) and done.removing == (3,)  # 2, which stays, is not in sync
    done = await altered(small, (1, 2, 3, 4))
    assert isinstance(done, PartitionRecord)
    assert (done.replicas, done.isr, done.adding, done.removing, done.leader) == ((4, 2, 1), (4, 2, 1), (), (), 1)
    assert list(small.replicas.ongoing_reassignments()) == []


@on_a_loop
async def test_a_leader_that_has_no_part_in_the_result_is_told_so() -> None:
    small = await SmallController().come(1, 2, 3)
    await small.topic(replicas=(1,))
    await move(small, (2, 3))
    assert await altered(small, (1, 2, 3)) is ErrorCode.new_leader_elected
    assert (small.state().leader, small.state().leader_epoch, small.state().replicas) == (2, 1, (2, 3))


@on_a_loop
async def test_a_move_can_be_cancelled_and_replaced() -> None:
    small = await SmallController().come(1, 2, 3, 4)
    await small.topic(replicas=(1, 2))
    assert await move(small, None) is ErrorCode.no_reassignment_in_progress
    await move(small, (3, 4))
    await altered(small, (1, 2, 3))
    await move(small, (4, 2))  # 3 is wanted no more
    state = small.state()
    assert (state.replicas, state.isr, state.adding, state.removing) == ((4, 2, 1), (2, 1), (4,), (1,))
    assert await move(small, None) is None
    assert (set(small.state().replicas), set(small.state().isr)) == ({1, 2}, {1, 2})
    assert not reassignment.is_reassigning(small.state())


@on_a_loop
async def test_a_move_that_brings_nobody_new_is_there_at_once() -> None:
    small = await SmallController().come(1, 2, 3)
    await small.topic()
    await move(small, (3, 2, 1))
    assert (small.state().replicas, small.state().leader) == ((3, 2, 1), 1)
    await move(small, (2,))
    assert (small.state().replicas, small.state().isr, small.state().leader) == ((2,), (2,), 2)


@on_a_loop
async def test_what_cannot_be_moved_is_refused() -> None:
    small = await SmallController().come(1, 2)
    await small.topic(replicas=(1,))
    assert await move(small, ()) is ErrorCode.invalid_replica_assignment
    assert await move(small, (1, 1)) is ErrorCode.invalid_replica_assignment
    assert await move(small, (9,)) is ErrorCode.invalid_replica_assignment
    assert await move(small, (1, 2), same_factor=True) is ErrorCode.invalid_replication_factor
    assert await move(small, (2,), same_factor=True) is None
    [outcome] = await small.replicas.reassign_partitions([PartitionReassignment("nowhere", 0, (1,))])
    assert outcome is not None and outcome.code is ErrorCode.unknown_topic_or_partition


@on_a_loop
async def test_a_topic_that_is_deleted_takes_its_moves_with_it() -> None:
    small = await SmallController().come(1, 2)
    await small.topic(replicas=(1,))
    await move(small, (2,))
    old = proposal(small, (1, 2))
    await small.controller.delete_topic("t")
    await small.topic(replicas=(1,))
    assert list(small.replicas.ongoing_reassignments()) == []
    [outcome] = await small.replicas.alter_partitions(1, [old])
    assert isinstance(outcome, KafkaError) and outcome.code is ErrorCode.unknown_topic_id  # rule 13


@given(st.data())
def test_rule_12_no_begin_and_no_cancel_takes_more_than_it_should(data: st.DataObject) -> None:
    ids = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(tuple)
    before = data.draw(ids)
    isr = data.draw(st.lists(st.sampled_from(before), min_size=1, unique=True))
    state = PartitionRecord(TOPIC, 0, before, tuple(isr), isr[0])
    voters = ElectionCandidates(dict.fromkeys(range(6), ()))
    rules = TopicElectionRules(1, allow_unclean=False)
    for wanted in data.draw(st.lists(ids, min_size=1, max_size=3)):
        try:
            state = reassignment.begin_reassignment(state, wanted, {}, voters, rules) or state
        except KafkaError:
            continue
        assert reassignment.target_replicas(state) == wanted
        if reassignment.is_reassigning(state):
            assert set(reassignment.original_replicas(state)) == set(before)
            assert set(state.adding) == set(wanted) - set(before)
            assert set(state.removing) == set(before) - set(wanted)
        else:
            assert set(wanted) <= set(isr) or set(wanted) == set(before)
            before = wanted
        assert set(state.isr) <= set(state.replicas)
        assert state.isr
        isr = list(state.isr)
    if reassignment.is_reassigning(state):
        try:
            back = reassignment.cancel_reassignment(state, voters, rules)
        except KafkaError:
            return
        assert back is not None and set(back.replicas) == set(before)


# --- elections


@on_a_loop
async def test_preferred_leaders_come_back_where_they_can() -> None:
    small = await SmallController().come(1, 2, 3)
    await small.topic(partitions=3)
    await small.topic("other", replicas=(3, 1))
    await small.brokers.fence_broker(1, small.image.brokers[1].epoch, "a test")
    await small.beat(1)
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
    everything = await small.replicas.elect_preferred_leaders(None)
    assert list(everything) == [("t", 1), ("t", 2)]  # those that are as they should be are left out
    assert await small.replicas.restore_preferred_leaders() == 0


@on_a_loop
async def test_an_unclean_election_is_for_partitions_without_a_leader() -> None:
    small = await SmallController().come(1, 2)
    await small.topic(partitions=2, replicas=(1, 2))
    await small.topic("alone", replicas=(1,))
    for partition in range(2):
        await small.replicas.alter_partitions(1, [proposal(small, (1,), partition)])
    await small.brokers.fence_broker(1, small.image.brokers[1].epoch, "a test")
    outcomes = await small.replicas.elect_unclean_leaders([("t", 0), ("alone", 0)])
    assert outcomes["t", 0] is None
    assert outcomes["alone", 0] is not None
    assert outcomes["alone", 0].code is ErrorCode.eligible_leaders_not_available
    assert (small.state(0).leader, small.state(0).isr) == (2, (2,))
    again = await small.replicas.elect_unclean_leaders([("t", 0)])
    assert again["t", 0] is not None and again["t", 0].code is ErrorCode.election_not_needed


@on_a_loop
async def test_a_commit_that_fails_is_told_and_changes_nothing() -> None:
    small = await SmallController().come(1, 2, 3)
    await small.topic()
    small.log.refuses = KafkaError(ErrorCode.not_controller)
    with pytest.raises(KafkaError, match="not_controller"):
        await altered(small, (1,))
    assert small.state().isr == (1, 2, 3)
