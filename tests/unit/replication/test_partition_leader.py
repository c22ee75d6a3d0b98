"""A partition's leader: high watermark, ISR changes and waiting producers (rules 1, 3 and 4)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.replication.partition import ALL_REPLICAS
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test
from tests.unit.replication.leader_partition import (
    BATCH,
    FakeClusterView,
    create_leader,
    partition_record,
    record_fetch,
    update_metadata,
)


def test_rule_3_high_watermark_is_the_smallest_log_end_in_the_isr(tmp_path: Path) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2))
    for _ in range(4):
        partition.append_records(BATCH, acks=1)
    assert partition.log.high_watermark == 0
    record_fetch(partition, 2, 3)
    assert partition.log.high_watermark == 3
    record_fetch(partition, 3, 1)  # not in the ISR
    assert partition.log.high_watermark == 3
    record_fetch(partition, 2, 1)  # it has lost records; the high watermark stays
    assert partition.log.high_watermark == 3


def test_rule_3_proposed_isr_member_bounds_the_high_watermark_at_once(tmp_path: Path) -> None:
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1, 2))
    partition.append_records(BATCH, acks=1)
    record_fetch(partition, 2, 1)
    record_fetch(partition, 3, 1)
    assert view.proposed == [(1, 2, 3)]
    partition.append_records(BATCH, acks=1)
    record_fetch(partition, 2, 2)
    assert partition.log.high_watermark == 1  # the controller may have added 3
    record_fetch(partition, 3, 2)
    assert partition.log.high_watermark == 2


def test_rule_3_isr_member_bounds_the_high_watermark_until_its_removal_is_committed(tmp_path: Path) -> None:
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1, 2, 3))
    partition.append_records(BATCH, acks=1)
    record_fetch(partition, 2, 1)
    for view.time_s in (100.0, 111.0):
        partition.shrink_isr(10.0)
    assert view.proposed == [(1, 2)]
    assert partition.log.high_watermark == 0
    update_metadata(partition, isr=(1, 2))
    assert partition.log.high_watermark == 1


def test_rule_3_high_watermark_does_not_advance_below_min_insync_replicas(
    tmp_path: Path,
) -> None:
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1, 2), min_insync_replicas=2)
    update_metadata(partition, isr=(1,))
    partition.append_records(BATCH, acks=1)
    assert partition.log.high_watermark == 0
    with pytest.raises(KafkaError) as raised:
        partition.append_records(BATCH, acks=ALL_REPLICAS)
    assert raised.value.code is ErrorCode.not_enough_replicas
    assert partition.log.end == 1
    record_fetch(partition, 2, 1)
    update_metadata(partition, isr=(1, 2))
    assert partition.log.high_watermark == 1


def test_rule_1_proposal_ends_with_any_newer_partition_epoch(tmp_path: Path) -> None:
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1, 2))
    record_fetch(partition, 3, 0)
    proposal = partition.pending_isr_change
    assert proposal is not None
    assert proposal.partition_epoch == partition.registration.partition_epoch
    partition.append_records(BATCH, acks=1)
    record_fetch(partition, 2, 1)
    assert partition.log.high_watermark == 0
    view.joinable.clear()
    update_metadata(partition, isr=(1, 2))  # another change: the proposal has an older epoch and cannot be accepted
    assert partition.pending_isr_change is None
    assert partition.log.high_watermark == 1
    partition.update_registration(partition_record((1, 2, 3), leader_epoch=1))  # an older record
    assert partition.registration.isr == (1, 2)


@async_test
async def test_rule_1_leader_that_the_controller_fences_serves_nothing_until_newer_metadata(
    tmp_path: Path,
) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2))
    waiting = partition.commit_future(partition.append_records(BATCH, acks=ALL_REPLICAS))
    assert waiting is not None
    record_fetch(partition, 3, 0)
    assert partition.pending_isr_change is not None
    woken: list[int] = []
    partition.read_waiters.add(lambda: woken.append(1))
    partition.on_newer_leader(partition.pending_isr_change)
    assert not partition.is_leader
    assert woken
    with pytest.raises(KafkaError) as raised:
        await waiting
    assert raised.value.code is ErrorCode.not_leader_or_follower
    update_metadata(partition, leader_epoch=2)
    assert partition.is_leader


def test_rule_4_only_registered_incarnations_of_unfenced_brokers_join_the_isr(tmp_path: Path) -> None:
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1, 2))
    partition.leader.record_fetch(3, 29, 0, 0)  # an earlier incarnation
    assert not view.proposed
    del view.joinable[3]  # fenced
    record_fetch(partition, 3, 0)
    assert not view.proposed
    view.joinable[3] = 30
    partition.on_brokers_changed()  # as the replica manager does
    assert view.proposed == [(1, 2, 3)]
    with pytest.raises(KafkaError):
        partition.leader.record_fetch(3, 29, 0, 0)  # a late fetch of the earlier incarnation


def test_follower_joins_the_isr_at_the_high_watermark_and_the_epoch_start(tmp_path: Path) -> None:
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1, 2), records=3)
    assert partition.leader.epoch_start_offset == 3
    record_fetch(partition, 3, 2)
    assert not view.proposed
    record_fetch(partition, 3, 3)
    assert view.proposed == [(1, 2, 3)]


def test_follower_that_catches_up_while_it_is_removed_rejoins_without_another_fetch(tmp_path: Path) -> None:
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1, 2, 3), records=3)
    record_fetch(partition, 2, 0)
    record_fetch(partition, 3, 0)
    for view.time_s in range(0, 20, 5):
        partition.shrink_isr(10.0)
    assert view.proposed == [(1,)]
    record_fetch(partition, 2, 3)  # it has all records
    record_fetch(partition, 3, 2)
    update_metadata(partition, isr=(1,))
    assert view.proposed == [(1,), (1, 2)]


@pytest.mark.parametrize("replicas", [(1, 2), (1, 2, 3)])
def test_follower_that_registers_again_while_a_proposal_is_rejected_joins_without_another_fetch(
    tmp_path: Path, replicas: tuple[int, ...]
) -> None:
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1,))
    update_metadata(partition, replicas=replicas)
    record_fetch(partition, 2, 0)  # an incarnation that the controller has just replaced
    proposal = partition.pending_isr_change
    assert proposal is not None
    partition.leader.record_fetch(2, 21, 0, 0)  # the next incarnation, whose fetch waits for new records
    view.joinable[2] = 21
    partition.on_brokers_changed()
    partition.leader.on_isr_change_rejected(proposal)
    assert view.proposed == [(1, 2), (1, 2)]
    second = partition.pending_isr_change
    assert second is not None
    partition.leader.on_isr_change_rejected(second)  # no third proposal without a new fetch
    assert len(view.proposed) == 2


def test_new_leader_reaches_its_epoch_start_when_earlier_records_are_replicated(
    tmp_path: Path,
) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2), records=3)
    assert not partition.has_reached_epoch_start
    record_fetch(partition, 2, 2)
    assert not partition.has_reached_epoch_start
    record_fetch(partition, 2, 3)
    assert partition.has_reached_epoch_start
    alone = create_leader(tmp_path / "alone", FakeClusterView(), isr=(1,), records=3)
    assert alone.has_reached_epoch_start


def test_log_ends_of_followers_from_an_earlier_leader_epoch_are_discarded(tmp_path: Path) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2))
    partition.append_records(BATCH, acks=1)
    record_fetch(partition, 2, 1)
    update_metadata(partition, leader=2, leader_epoch=2)
    update_metadata(partition, leader=1, leader_epoch=3)
    partition.append_records(BATCH, acks=1)
    assert partition.log.high_watermark == 1
    assert partition.log.epochs.entries()[-1] == (3, 1)
    record_fetch(partition, 2, 2)
    assert partition.log.high_watermark == 2


@async_test
async def test_waiting_producers_get_an_error_when_leadership_is_lost_or_the_isr_too_small(
    tmp_path: Path,
) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2), min_insync_replicas=2)
    for change, code in (
        ({"isr": (1,)}, ErrorCode.not_enough_replicas_after_append),
        ({"leader": 2, "leader_epoch": 2}, ErrorCode.not_leader_or_follower),
    ):
        update_metadata(partition, isr=(1, 2))
        waiting = partition.commit_future(partition.append_records(BATCH, acks=ALL_REPLICAS))
        assert waiting is not None
        update_metadata(partition, **change)
        with pytest.raises(KafkaError) as raised:
            await waiting
        assert raised.value.code is code


def test_followers_that_are_idle_or_keep_up_stay_in_the_isr(tmp_path: Path) -> None:
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1, 2, 3))
    record_fetch(partition, 2, 0)
    record_fetch(partition, 3, 0)
    for view.time_s in range(100, 200, 5):  # no records for a long time
        partition.shrink_isr(10.0)
    for view.time_s in range(200, 300, 5):  # 2 is always one record behind, 3 does not fetch
        partition.append_records(BATCH, acks=1)
        record_fetch(partition, 2, partition.log.end - 1)
        partition.shrink_isr(10.0)
    assert view.proposed == [(1, 2)]


@async_test
async def test_caught_up_follower_that_may_join_bounds_the_high_watermark(tmp_path: Path) -> None:
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1,))
    partition.append_records(BATCH, acks=1)
    view.joinable.clear()
    record_fetch(partition, 2, 1)  # caught up, and not allowed to join yet
    view.joinable[2] = 20
    partition.append_records(BATCH, acks=1)
    assert partition.log.high_watermark == 1
    record_fetch(partition, 2, 2)
    assert partition.log.high_watermark == 2
    assert view.proposed == [(1, 2)]


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
def test_rule_3_high_watermark_never_exceeds_the_log_end_of_a_possible_isr_member(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]], min_isr: int
) -> None:
    """Random steps. A proposal may be committed before the leader has the metadata."""

    async def run() -> None:
        view = FakeClusterView()
        partition = create_leader(tmp_path_factory.mktemp("t"), view, min_insync_replicas=min_isr)
        ends = {2: 0, 3: 0}
        previous = 0
        for step in steps:
            match step:
                case ("append",):
                    partition.append_records(BATCH, acks=1)
                case ("fetch", broker, lag):
                    ends[broker] = max(ends[broker], partition.log.end - lag)
                    record_fetch(partition, broker, ends[broker])
                case ("commit", accepted) if partition.pending_isr_change is not None:
                    isr = partition.pending_isr_change.isr if accepted else partition.registration.isr
                    update_metadata(partition, isr=isr)
                case ("shrink", seconds):
                    view.time_s += seconds
                    partition.shrink_isr(10.0)
                case ("controller", isr):
                    isr = tuple(broker for broker in partition.registration.isr if broker in isr)
                    update_metadata(partition, isr=isr)
            watermark = partition.log.high_watermark
            assert watermark >= previous
            if watermark > previous:
                maximal = {
                    *partition.registration.isr,
                    *(partition.pending_isr_change.isr if partition.pending_isr_change else ()),
                }
                assert all(ends[broker] >= watermark for broker in maximal - {1})
                assert len(partition.registration.isr) >= min_isr
            previous = watermark

    asyncio.run(run())


def test_rule_4_fetches_of_an_unknown_incarnation_acknowledge_nothing(tmp_path: Path) -> None:
    """Its registration may have removed it from the ISR, before the leader has that metadata."""
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1, 2))
    partition.append_records(BATCH, acks=1)
    record_fetch(partition, 2, 0)
    view.registered = {2: 20}
    partition.leader.record_fetch(2, 21, 1, 0)
    assert partition.log.high_watermark == 0
    view.registered = {2: 21}
    partition.on_brokers_changed()  # the fetch counts now, without another one
    assert partition.log.high_watermark == 1


def test_high_watermark_does_not_advance_while_there_are_eligible_leader_replicas(tmp_path: Path) -> None:
    """Regardless of this broker's min.insync.replicas: the controller may have another value."""
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2))
    partition.append_records(BATCH, acks=1)
    update_metadata(partition, isr=(1,), eligible=(2,))
    assert partition.log.high_watermark == 0
    with pytest.raises(KafkaError) as raised:
        partition.append_records(BATCH, acks=ALL_REPLICAS)
    assert raised.value.code is ErrorCode.not_enough_replicas
    update_metadata(partition, eligible=())
    assert partition.log.high_watermark == 1
