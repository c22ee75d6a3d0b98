"""A partition as its leader, among followers: rules 1, 3 and 4 of the design's section 5."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.replication.partition import ALL_REPLICAS
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.replication.leading import BATCH, Peers, committed, fetch, led, state


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 20))

    return run


def test_rule_3_the_high_watermark_is_the_smallest_end_of_the_isr(tmp_path: Path) -> None:
    partition = led(tmp_path, Peers(), isr=(1, 2))
    for _ in range(4):
        partition.append_records(BATCH, acks=1)
    assert partition.log.high_watermark == 0
    fetch(partition, 2, 3)
    assert partition.log.high_watermark == 3
    fetch(partition, 3, 1)  # not in the ISR
    assert partition.log.high_watermark == 3
    fetch(partition, 2, 1)  # it has lost something: the high watermark stays
    assert partition.log.high_watermark == 3


def test_rule_3_a_proposed_member_counts_from_the_moment_it_is_proposed(tmp_path: Path) -> None:
    peers = Peers()
    partition = led(tmp_path, peers, isr=(1, 2))
    partition.append_records(BATCH, acks=1)
    fetch(partition, 2, 1)
    fetch(partition, 3, 1)
    assert peers.proposed == [(1, 2, 3)]
    partition.append_records(BATCH, acks=1)
    fetch(partition, 2, 2)
    assert partition.log.high_watermark == 1  # whether the controller has let 3 in is not known
    fetch(partition, 3, 2)
    assert partition.log.high_watermark == 2


def test_rule_3_a_member_that_is_proposed_to_leave_counts_until_it_has_left(tmp_path: Path) -> None:
    peers = Peers()
    partition = led(tmp_path, peers, isr=(1, 2, 3))
    partition.append_records(BATCH, acks=1)
    fetch(partition, 2, 1)
    for peers.time_s in (100.0, 111.0):
        partition.shrink_isr(10.0)
    assert peers.proposed == [(1, 2)]
    assert partition.log.high_watermark == 0
    committed(partition, isr=(1, 2))
    assert partition.log.high_watermark == 1


def test_rule_3_the_high_watermark_stands_still_while_the_isr_is_smaller_than_min_insync_replicas(
    tmp_path: Path,
) -> None:
    peers = Peers()
    partition = led(tmp_path, peers, isr=(1, 2), min_insync_replicas=2)
    committed(partition, isr=(1,))
    partition.append_records(BATCH, acks=1)
    assert partition.log.high_watermark == 0
    with pytest.raises(KafkaError) as refused:
        partition.append_records(BATCH, acks=ALL_REPLICAS)
    assert refused.value.code is ErrorCode.not_enough_replicas
    assert partition.log.end == 1
    fetch(partition, 2, 1)
    committed(partition, isr=(1, 2))
    assert partition.log.high_watermark == 1


def test_rule_1_a_proposal_counts_until_a_newer_partition_epoch_is_known_whatever_that_brings(tmp_path: Path) -> None:
    peers = Peers()
    partition = led(tmp_path, peers, isr=(1, 2))
    fetch(partition, 3, 0)
    proposal = partition.pending_isr_change
    assert proposal is not None
    assert proposal.partition_epoch == partition.registration.partition_epoch
    partition.append_records(BATCH, acks=1)
    fetch(partition, 2, 1)
    assert partition.log.high_watermark == 0
    peers.joinable.clear()
    committed(partition, isr=(1, 2))  # another change won: the proposal names an older epoch, and will never be taken
    assert partition.pending_isr_change is None
    assert partition.log.high_watermark == 1
    partition.update_registration(state((1, 2, 3), leader_epoch=1))  # older than what is known
    assert partition.registration.isr == (1, 2)


@on_a_loop
async def test_rule_1_a_leader_that_the_controller_calls_old_serves_nothing_until_it_is_told_more(
    tmp_path: Path,
) -> None:
    partition = led(tmp_path, Peers(), isr=(1, 2))
    waiting = partition.commit_future(partition.append_records(BATCH, acks=ALL_REPLICAS), ALL_REPLICAS)
    assert waiting is not None
    fetch(partition, 3, 0)
    assert partition.pending_isr_change is not None
    woken: list[int] = []
    partition.read_waiters.add(lambda: woken.append(1))
    partition.on_newer_leader(partition.pending_isr_change)
    assert not partition.is_leader
    assert woken
    with pytest.raises(KafkaError) as lost:
        await waiting
    assert lost.value.code is ErrorCode.not_leader_or_follower
    committed(partition, leader_epoch=2)
    assert partition.is_leader


def test_rule_4_only_the_registered_life_of_an_unfenced_broker_joins(tmp_path: Path) -> None:
    peers = Peers()
    partition = led(tmp_path, peers, isr=(1, 2))
    partition.leader.record_fetch(3, 29, 0, 0)  # an earlier life
    assert not peers.proposed
    del peers.joinable[3]  # fenced
    fetch(partition, 3, 0)
    assert not peers.proposed
    peers.joinable[3] = 30
    partition.on_brokers_changed()  # what hosting does when the image's brokers change
    assert peers.proposed == [(1, 2, 3)]
    with pytest.raises(KafkaError):
        partition.leader.record_fetch(3, 29, 0, 0)  # what the earlier life had under way comes late


def test_a_follower_joins_when_it_has_the_high_watermark_and_the_start_of_the_epoch(tmp_path: Path) -> None:
    peers = Peers()
    partition = led(tmp_path, peers, isr=(1, 2), records=3)
    assert partition.leader.epoch_start_offset == 3
    fetch(partition, 3, 2)
    assert not peers.proposed
    fetch(partition, 3, 3)
    assert peers.proposed == [(1, 2, 3)]


def test_who_catches_up_while_it_is_taken_out_of_a_quiet_isr_comes_back_without_another_fetch(tmp_path: Path) -> None:
    peers = Peers()
    partition = led(tmp_path, peers, isr=(1, 2, 3), records=3)
    fetch(partition, 2, 0)
    fetch(partition, 3, 0)
    for peers.time_s in range(0, 20, 5):
        partition.shrink_isr(10.0)
    assert peers.proposed == [(1,)]
    fetch(partition, 2, 3)  # there is nothing more for it to ask for
    fetch(partition, 3, 2)
    committed(partition, isr=(1,))
    assert peers.proposed == [(1,), (1, 2)]


def test_who_comes_while_a_proposal_is_refused_joins_without_another_fetch(tmp_path: Path) -> None:
    peers = Peers()
    partition = led(tmp_path, peers, isr=(1,))
    fetch(partition, 2, 0)  # by a life that the controller has just given up
    proposal = partition.pending_isr_change
    assert proposal is not None
    partition.leader.record_fetch(2, 21, 0, 0)  # the next one; there is nothing more for it to ask for
    peers.joinable[2] = 21
    partition.on_brokers_changed()
    partition.leader.on_isr_change_rejected(proposal)
    assert peers.proposed == [(1, 2), (1, 2)]
    again = partition.pending_isr_change
    assert again is not None
    partition.leader.on_isr_change_rejected(again)  # and that is all: nothing has come meanwhile
    assert len(peers.proposed) == 2


def test_a_new_leader_is_unsettled_until_what_its_predecessor_may_have_acknowledged_is_replicated(
    tmp_path: Path,
) -> None:
    partition = led(tmp_path, Peers(), isr=(1, 2), records=3)
    assert not partition.has_reached_epoch_start
    fetch(partition, 2, 2)
    assert not partition.has_reached_epoch_start
    fetch(partition, 2, 3)
    assert partition.has_reached_epoch_start
    alone = led(tmp_path / "alone", Peers(), isr=(1,), records=3)
    assert alone.has_reached_epoch_start


def test_what_was_heard_of_followers_in_an_earlier_epoch_counts_no_more(tmp_path: Path) -> None:
    partition = led(tmp_path, Peers(), isr=(1, 2))
    partition.append_records(BATCH, acks=1)
    fetch(partition, 2, 1)
    committed(partition, leader=2, leader_epoch=2)
    committed(partition, leader=1, leader_epoch=3)
    partition.append_records(BATCH, acks=1)
    assert partition.log.high_watermark == 1
    assert partition.log.epochs.entries()[-1] == (3, 1)
    fetch(partition, 2, 2)
    assert partition.log.high_watermark == 2


@on_a_loop
async def test_waiting_producers_are_told_when_leadership_goes_and_when_the_isr_becomes_too_small(
    tmp_path: Path,
) -> None:
    partition = led(tmp_path, Peers(), isr=(1, 2), min_insync_replicas=2)
    for change, code in (
        ({"isr": (1,)}, ErrorCode.not_enough_replicas_after_append),
        ({"leader": 2, "leader_epoch": 2}, ErrorCode.not_leader_or_follower),
    ):
        committed(partition, isr=(1, 2))
        waiting = partition.commit_future(partition.append_records(BATCH, acks=ALL_REPLICAS), ALL_REPLICAS)
        assert waiting is not None
        committed(partition, **change)
        with pytest.raises(KafkaError) as told:
            await waiting
        assert told.value.code is code


def test_an_idle_follower_is_not_late_and_one_that_reads_on_is_not_either(tmp_path: Path) -> None:
    peers = Peers()
    partition = led(tmp_path, peers, isr=(1, 2, 3))
    fetch(partition, 2, 0)
    fetch(partition, 3, 0)
    for peers.time_s in range(100, 200, 5):  # nothing happens for a long time
        partition.shrink_isr(10.0)
    for peers.time_s in range(200, 300, 5):  # 2 is always a little behind, 3 does nothing
        partition.append_records(BATCH, acks=1)
        fetch(partition, 2, partition.log.end - 1)
        partition.shrink_isr(10.0)
    assert peers.proposed == [(1, 2)]


@on_a_loop
async def test_one_about_to_join_holds_the_high_watermark_for_a_moment(tmp_path: Path) -> None:
    peers = Peers()
    partition = led(tmp_path, peers, isr=(1,))
    partition.append_records(BATCH, acks=1)
    peers.joinable.clear()
    fetch(partition, 2, 1)  # caught up, but it may not join yet
    peers.joinable[2] = 20
    partition.append_records(BATCH, acks=1)
    assert partition.log.high_watermark == 1
    fetch(partition, 2, 2)
    assert partition.log.high_watermark == 2
    assert peers.proposed == [(1, 2)]


actions = st.lists(
    st.one_of(
        st.just(("append",)),
        st.tuples(st.just("fetch"), st.sampled_from((2, 3)), st.integers(0, 3)),
        st.tuples(st.just("commit"), st.booleans()),
        st.tuples(st.just("shrink"), st.integers(0, 12)),
        st.tuples(st.just("controller"), st.sampled_from(((1,), (1, 2), (1, 3)))),
    ),
    max_size=40,
)


@given(actions, st.integers(1, 3))
@settings(max_examples=150, deadline=None, database=None)
def test_rule_3_whatever_happens_the_high_watermark_is_below_the_end_of_all_who_may_be_in_the_isr(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]], min_isr: int
) -> None:
    """The controller is played by the test: a proposal may have been taken although nobody knows it yet."""

    async def run() -> None:
        peers = Peers()
        partition = led(tmp_path_factory.mktemp("t"), peers, min_insync_replicas=min_isr)
        ends = {2: 0, 3: 0}
        told = 0
        for step in steps:
            match step:
                case ("append",):
                    partition.append_records(BATCH, acks=1)
                case ("fetch", broker, back):
                    ends[broker] = max(ends[broker], partition.log.end - back)
                    fetch(partition, broker, ends[broker])
                case ("commit", taken) if partition.pending_isr_change is not None:
                    isr = partition.pending_isr_change.isr if taken else partition.registration.isr
                    committed(partition, isr=isr)
                case ("shrink", seconds):
                    peers.time_s += seconds
                    partition.shrink_isr(10.0)
                case ("controller", isr):
                    isr = tuple(broker for broker in partition.registration.isr if broker in isr)
                    committed(partition, isr=isr)
            watermark = partition.log.high_watermark
            assert watermark >= told
            if watermark > told:
                maximal = {
                    *partition.registration.isr,
                    *(partition.pending_isr_change.isr if partition.pending_isr_change else ()),
                }
                assert all(ends[broker] >= watermark for broker in maximal - {1})
                assert len(partition.registration.isr) >= min_isr
            told = watermark

    asyncio.run(run())


def test_rule_4_a_life_that_the_leader_has_not_heard_of_acknowledges_nothing(tmp_path: Path) -> None:
    """With its registration it may have left the ISR, and the leader does not know yet."""
    peers = Peers()
    partition = led(tmp_path, peers, isr=(1, 2))
    partition.append_records(BATCH, acks=1)
    fetch(partition, 2, 0)
    peers.registered = {2: 20}
    partition.leader.record_fetch(2, 21, 1, 0)
    assert partition.log.high_watermark == 0
    peers.registered = {2: 21}
    partition.on_brokers_changed()  # now it has, and the follower need not ask again
    assert partition.log.high_watermark == 1


def test_the_high_watermark_stands_still_while_others_are_trusted_without_being_in_sync(tmp_path: Path) -> None:
    """Whatever this broker's own min.insync.replicas is: the controller's may have been another."""
    partition = led(tmp_path, Peers(), isr=(1, 2))
    partition.append_records(BATCH, acks=1)
    committed(partition, isr=(1,), eligible=(2,))
    assert partition.log.high_watermark == 0
    with pytest.raises(KafkaError) as caught:
        partition.append_records(BATCH, acks=ALL_REPLICAS)
    assert caught.value.code is ErrorCode.not_enough_replicas
    committed(partition, eligible=())
    assert partition.log.high_watermark == 1
