"""Rules of electing the metadata log's leader, one by one; `raft_model` explores them together."""

from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla_broker.metadata.raft_rules import (
    ElectionState,
    ElectionTimeouts,
    EpochAndOffset,
    RaftState,
    Replica,
    Role,
    VoteRequest,
    answer_vote,
    count_vote,
    election_timeout_s,
    end_quorum_epoch,
    expire,
    hear_leader,
    observe_epoch,
    resign,
    restart,
)
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.metadata.voter_set import ReplicaKey

A, B, C, D = (ReplicaKey(broker, UUID(int=broker)) for broker in (1, 2, 3, 4))
END = EpochAndOffset(4, 100)
ME = Replica(A, frozenset({A, B, C}), END)
ALONE = Replica(A, frozenset({A}), END)
OBSERVER = replace(ME, key=D)


def vote_request(epoch: int = 5, candidate: ReplicaKey = B, log_end: EpochAndOffset = END) -> VoteRequest:
    return VoteRequest(candidate, epoch, log_end)


def pre_vote_request(log_end: EpochAndOffset = END) -> VoteRequest:
    return VoteRequest(B, 5, log_end, is_pre_vote=True)


def test_a_vote_is_granted_to_a_log_that_is_as_long() -> None:
    state, granted = answer_vote(RaftState(epoch=4), vote_request(), ME)
    assert granted and state.stored == ElectionState(5, NO_LEADER, B)


@pytest.mark.parametrize("shorter", [EpochAndOffset(4, 99), EpochAndOffset(3, 1000)])
def test_a_shorter_log_gets_no_vote_but_its_epoch_is_adopted(shorter: EpochAndOffset) -> None:
    for request in (vote_request(log_end=shorter), pre_vote_request(log_end=shorter)):
        state, granted = answer_vote(RaftState(epoch=4), request, ME)
        assert not granted and state.stored == ElectionState(5)


def test_a_replica_votes_for_one_candidate_in_an_epoch() -> None:
    state, _ = answer_vote(RaftState(epoch=4), vote_request(candidate=B), ME)
    assert answer_vote(state, vote_request(candidate=C), ME) == (state, False)
    assert answer_vote(state, vote_request(candidate=B), ME) == (state, True)
    assert answer_vote(restart(state.stored, A), vote_request(candidate=C), ME)[1] is False


def test_a_candidate_with_another_directory_is_another_candidate() -> None:
    state, _ = answer_vote(RaftState(epoch=4), vote_request(candidate=B), ME)
    assert not answer_vote(state, vote_request(candidate=ReplicaKey(2, UUID(int=99))), ME)[1]


def test_a_vote_of_an_older_epoch_is_refused() -> None:
    state = RaftState(epoch=6)
    assert answer_vote(state, vote_request(5), ME) == (state, False)


def test_a_pre_vote_is_refused_while_the_leader_is_heard() -> None:
    follower = RaftState(Role.FOLLOWER, 5, leader=3)
    assert answer_vote(follower, pre_vote_request(), ME) == (follower, True)
    heard = hear_leader(follower)
    assert answer_vote(heard, pre_vote_request(), ME) == (heard, False)
    prospective = expire(heard, ME)
    assert answer_vote(prospective, pre_vote_request(), ME) == (prospective, True)


def test_a_leader_refuses_votes_of_its_epoch_and_steps_down_for_a_newer_one() -> None:
    leader = RaftState(Role.LEADER, 5, leader=1, voted=A)
    assert answer_vote(leader, vote_request(), ME) == (leader, False)
    assert answer_vote(leader, pre_vote_request(), ME) == (leader, False)
    state, granted = answer_vote(leader, vote_request(6), ME)
    assert granted and state.role is Role.UNATTACHED and state.epoch == 6


def test_a_replica_outside_of_its_own_voter_set_votes() -> None:
    assert answer_vote(RaftState(epoch=4), vote_request(), OBSERVER)[1]


def test_an_election_asks_for_pre_votes_and_then_for_votes_in_the_next_epoch() -> None:
    prospective = expire(RaftState(Role.FOLLOWER, 5, leader=3, hears_leader=True), ME)
    assert (prospective.role, prospective.epoch, prospective.leader) == (Role.PROSPECTIVE, 5, 3)
    assert prospective.stored == ElectionState(5, 3)
    candidate = count_vote(prospective, B, prospective, granted=True, me=ME)
    assert candidate.stored == ElectionState(6, NO_LEADER, A) and candidate.role is Role.CANDIDATE
    late = count_vote(candidate, C, prospective, granted=True, me=ME)
    assert late == candidate
    leader = count_vote(candidate, C, candidate, granted=True, me=ME)
    assert leader.role is Role.LEADER and leader.stored == ElectionState(6, 1, A)


def test_an_election_that_cannot_be_won_ends_at_once() -> None:
    prospective = expire(RaftState(Role.FOLLOWER, 5, leader=3), ME)
    state = count_vote(prospective, C, prospective, granted=False, me=ME)
    assert state.role is Role.PROSPECTIVE
    state = count_vote(state, B, prospective, granted=False, me=ME)
    assert (state.role, state.leader, state.failed_elections) == (Role.FOLLOWER, 3, 1)
    candidate = RaftState(Role.CANDIDATE, 6, voted=A, granted=frozenset({A}))
    assert expire(candidate, ME) == RaftState(epoch=6, voted=A, failed_elections=1)


def test_the_only_voter_leads_without_asking() -> None:
    leader = expire(RaftState(epoch=3), ALONE)
    assert leader.role is Role.LEADER and leader.stored == ElectionState(4, 1, A)


def test_a_broker_that_is_no_voter_never_stands() -> None:
    lost = expire(RaftState(Role.FOLLOWER, 5, leader=3, hears_leader=True), OBSERVER)
    assert lost == RaftState(epoch=5)
    assert election_timeout_s(lost, OBSERVER, ElectionTimeouts(), Random(1)) is None
    ended = end_quorum_epoch(RaftState(Role.FOLLOWER, 5, leader=3), 5, 3, (D,), OBSERVER)
    assert ended.role is Role.FOLLOWER


def test_a_voter_whose_removal_may_not_be_committed_stands_and_does_not_count_itself() -> None:
    """Only its log has the record that makes B the only voter: it has to lead until B has it."""
    removed = Replica(A, frozenset({B}), END, was_voter=True)
    lost = restart(ElectionState(4, 1, A), A)
    assert election_timeout_s(lost, removed, ElectionTimeouts(), Random(1)) is not None
    prospective = expire(lost, removed)
    assert prospective.role is Role.PROSPECTIVE
    candidate = count_vote(prospective, B, prospective, granted=True, me=removed)
    assert (candidate.role, candidate.epoch) == (Role.CANDIDATE, 5)
    assert count_vote(candidate, B, candidate, granted=True, me=removed).role is Role.LEADER


def test_a_replica_follows_a_leader_of_its_own_or_a_newer_epoch() -> None:
    assert observe_epoch(RaftState(epoch=5, voted=B), 5, 3, ME) == RaftState(Role.FOLLOWER, 5, 3, B)
    candidate = RaftState(Role.CANDIDATE, 6, voted=A, granted=frozenset({A}))
    assert observe_epoch(candidate, 6, 3, ME) == RaftState(Role.FOLLOWER, 6, 3, A)
    leader = RaftState(Role.LEADER, 5, leader=1, voted=A)
    assert observe_epoch(leader, 7, 3, ME) == RaftState(Role.FOLLOWER, 7, 3)
    assert observe_epoch(leader, 4, 3, ME) == leader
    assert observe_epoch(leader, 8, NO_LEADER, ME) == RaftState(epoch=8)


def test_a_broker_does_not_lead_because_a_message_names_it_leader() -> None:
    restarted = restart(ElectionState(5, 1, A), A)
    assert restarted.role is Role.UNATTACHED and restarted.voted == A
    assert observe_epoch(restarted, 5, 1, ME) == restarted
    assert observe_epoch(restarted, 6, 1, ME).role is Role.UNATTACHED


def test_the_first_successor_stands_at_once_and_the_second_later() -> None:
    follower = RaftState(Role.FOLLOWER, 5, leader=3, hears_leader=True)
    first = end_quorum_epoch(follower, 5, 3, (A, B), ME)
    assert first.role is Role.CANDIDATE and first.epoch == 6
    second = end_quorum_epoch(follower, 5, 3, (B, A), ME)
    assert second.role is Role.FOLLOWER and answer_vote(second, pre_vote_request(), ME)[1]
    assert end_quorum_epoch(follower, 4, 2, (A,), ME) == follower


def test_a_leader_that_resigned_does_not_vote_in_its_epoch() -> None:
    resigned = resign(RaftState(Role.LEADER, 5, leader=1, voted=A))
    assert resigned.role is Role.RESIGNED
    assert not answer_vote(resigned, vote_request(5), ME)[1]
    assert answer_vote(resigned, vote_request(6), ME)[1]


def test_elections_that_fail_are_repeated_at_growing_random_intervals() -> None:
    timeouts, random = ElectionTimeouts(backoff_max_s=0.5), Random(1)
    first = [election_timeout_s(RaftState(epoch=5, failed_elections=1), ME, timeouts, random) for _ in range(50)]
    later = [election_timeout_s(RaftState(epoch=5, failed_elections=9), ME, timeouts, random) for _ in range(50)]
    assert all(0.03 <= (pause or 0) <= 0.06 for pause in first)
    assert all(0.03 <= (pause or 0) <= 0.5 for pause in later) and len(set(later)) > 40
    assert any((pause or 0) > 0.3 for pause in later)


replicas = st.sampled_from([A, B, C])
log_ends = st.builds(EpochAndOffset, st.integers(3, 5), st.integers(98, 102))
states = st.builds(
    RaftState,
    st.sampled_from([Role.UNATTACHED, Role.PROSPECTIVE, Role.RESIGNED]),
    st.integers(3, 6),
    voted=st.none() | replicas,
)


@given(states, st.lists(st.builds(VoteRequest, replicas, st.integers(3, 7), log_ends, st.booleans()), max_size=8))
def test_no_sequence_of_requests_gets_two_votes_in_one_epoch(state: RaftState, requests: list[VoteRequest]) -> None:
    votes: dict[int, ReplicaKey] = {}
    if state.voted is not None:
        votes[state.epoch] = state.voted
    for request in requests:
        before = state.epoch
        state, granted = answer_vote(state, request, ME)
        assert state.epoch == max(before, request.epoch)
        if granted and not request.is_pre_vote:
            assert request.log_end >= END and votes.setdefault(request.epoch, request.candidate) == request.candidate
        state = restart(state.stored, A) if granted else state
