"""Detecting lost voters, and planning the recovery of their cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.quorum_recovery import (
    MetadataReplica,
    RecoveryRefused,
    VoterKey,
    find_quorum_loss,
    observe_quorum,
    plan_recovery,
)

VOTERS = (1, 2, 3)


def replica(
    broker: int,
    end: int = 10,
    *,
    disk: str = "a",
    cluster: str | None = "old",
    voters: tuple[int, ...] = VOTERS,
    leader: int = -1,
    log_epoch: int = 4,
    epoch: int = 4,
    previous: str | None = None,
) -> MetadataReplica:
    keys = tuple(VoterKey(it, "a", f"host-{it}:9091") for it in voters)
    address = f"host-{broker}:9091"
    return MetadataReplica(
        broker, disk, address, cluster, previous, leader, epoch, (log_epoch, end), min(end, 9), keys if cluster else ()
    )


def empty(broker: int) -> MetadataReplica:
    return replica(broker, 0, disk="new", cluster=None, log_epoch=-1, epoch=0)


def refusal(*replicas: MetadataReplica) -> str:
    with pytest.raises(RecoveryRefused) as refused:
        plan_recovery(replicas, "new")
    return str(refused.value)


def test_voters_whose_disks_were_replaced_are_lost_and_others_may_return() -> None:
    state = observe_quorum([replica(1), empty(2)])
    assert state and (state.alive, dict(state.lost), state.silent) == ((1,), {2: "has another disk"}, (3,))
    assert not state.has_majority and not state.is_lost
    gone = observe_quorum([replica(1), empty(2)], existing=[1, 2])
    assert gone and gone.is_lost and gone.lost[3] == "was removed"


def test_a_loss_is_final_when_no_majority_can_return() -> None:
    assert find_quorum_loss([replica(1), replica(2)], VOTERS, "old") is None, "they can elect a leader"
    waiting = find_quorum_loss([replica(1)], VOTERS, "old")
    assert waiting and not waiting.is_final
    assert waiting.message == (
        "1 of the voters 1, 2, 3 of the metadata log answer, and a majority is 2: "
        "broker 2 does not answer; broker 3 does not answer"
    )
    lost = find_quorum_loss([replica(1), empty(2), empty(3)], VOTERS, "old")
    assert lost and lost.is_final
    assert lost.message.endswith("broker 2 has another disk; broker 3 has another disk")


def test_disks_that_are_all_new_are_a_final_loss_of_a_cluster_that_is_recorded() -> None:
    new = [empty(1), empty(2), empty(3)]
    assert find_quorum_loss(new, VOTERS, None) is None, "the cluster is being founded"
    assert find_quorum_loss(new[:2], VOTERS, "old") is None, "the disk of broker 3 may have it"
    lost = find_quorum_loss(new, VOTERS, "old")
    assert lost and lost.is_final and "no disk of brokers 1, 2, 3 has the metadata of cluster old" in lost.message


def test_a_recovery_continues_from_the_most_advanced_disk_in_a_newer_epoch() -> None:
    recovery = plan_recovery([replica(1, 10), empty(2), replica(4, 12), replica(5, 99, log_epoch=3, epoch=7)], "new")
    assert recovery.leader.broker == 4, "a newer epoch counts before a greater offset"
    assert recovery.epoch == 8 and recovery.cluster_id == "new"
    assert [it.broker for it in recovery.steps] == [1, 5, 4], "the leader is the last, and a new disk joins by itself"
    assert recovery.survivors == (1, 4, 5)


def test_an_interrupted_recovery_continues_as_the_same_cluster() -> None:
    moved = replica(1, 0, cluster="new", previous="old", voters=(), log_epoch=-1, epoch=0)
    recovery = plan_recovery([moved, replica(4, 14), replica(5, 3), empty(2)], "another")
    assert recovery.cluster_id == "new" and recovery.survivors == (1, 4, 5)
    assert [it.broker for it in recovery.steps] == [5, 4]
    stranger = replica(1, 0, cluster="new", previous="other", voters=())
    assert "different clusters" in refusal(stranger, replica(4))


def test_a_cluster_that_has_or_can_elect_a_leader_is_not_recovered() -> None:
    assert "a majority of the voters answers (brokers 1, 3 of 1, 2, 3)" in refusal(replica(1), replica(3))
    assert "broker 1 has a leader, broker 2" in refusal(replica(1, leader=2))
    assert "different clusters (broker 1: old, broker 2: other)" in refusal(replica(1), replica(2, cluster="other"))
    assert "no disk of brokers 1, 2 has the metadata" in refusal(empty(1), empty(2))


@given(
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3)), max_size=6),
    st.sets(st.integers(1, 5), min_size=1),
)
def test_no_recovery_is_planned_beside_a_majority_or_from_a_shorter_log(
    drawn: list[tuple[int, str, int, int]], voters: set[int]
) -> None:
    replicas = [
        replica(broker, end, disk=disk, log_epoch=epoch, epoch=epoch, voters=tuple(sorted(voters)))
        for broker, (_, disk, end, epoch) in {it[0]: it for it in drawn}.items()
    ]
    alive = {it.broker for it in replicas if it.directory == "a" and it.broker in voters}
    try:
        recovery = plan_recovery(replicas, "new")
    except RecoveryRefused:
        assert not replicas or len(alive) > len(voters) // 2
        return
    assert len(alive) <= len(voters) // 2
    assert all(it.log_end <= recovery.leader.log_end and it.epoch < recovery.epoch for it in replicas)
    assert {it.broker for it in recovery.steps} == {it.broker for it in replicas} == set(recovery.survivors)
