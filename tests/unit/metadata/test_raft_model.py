"""No committed record is lost and no epoch has two leaders in any explored world; and the model
detects deliberately wrong rules.
"""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from ottla_broker.metadata import raft_rules, voter_set
from ottla_broker.metadata.raft_rules import (
    ElectionState,
    EpochAndOffset,
    RaftState,
    Replica,
    Role,
    VoteRequest,
)
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.metadata.voter_set import ReplicaKey, VoterSet
from tests.unit.metadata.raft_model import contested_world, led_world
from tests.unit.metadata.raft_search import Exploration, explore, random_walk
from tests.unit.metadata.raft_world import Budget, RaftWorld, Rules, world_of

WALKS = 24
STEPS = 250
MAX_WALKS = 1_000
LONG_BUDGET = Budget(epochs=1_000, crashes=4, wipes=3, records=20, changes=15, resignations=3)


def large_world(seed: int) -> RaftWorld:
    """A random start for a long walk."""
    random = Random(seed)
    brokers = random.choice((3, 3, 4, 5))
    return random.choice(
        (
            led_world(LONG_BUDGET),
            contested_world(LONG_BUDGET),
            world_of(brokers, random.randint(2, brokers), LONG_BUDGET),
        )
    )


def test_no_short_history_violates_an_invariant() -> None:
    """Explores all worlds within small budgets."""
    for budget in (
        Budget(epochs=1, records=1, crashes=1),
        Budget(epochs=2, changes=1, resignations=1),
    ):
        explored = explore(world_of(3, 3, budget), Rules(), 4_000)
        assert explored.violation is None, str(explored)


def test_no_long_history_violates_an_invariant() -> None:
    walks = [random_walk(large_world(seed), Rules(), Random(seed), STEPS) for seed in range(WALKS)]
    assert all(walk.violation is None for walk in walks), "\n".join(str(walk) for walk in walks if walk.violation)
    steps_taken = [label for walk in walks for label in walk.trace]
    for label in ("loses its disk", "restarts", "truncates", "EndQuorumEpoch", "voters", "appends"):
        assert sum(label in one for one in steps_taken) > 5, label


# --- deliberately wrong rules


def vote_again(state: RaftState, request: VoteRequest, me: Replica) -> tuple[RaftState, bool]:
    forgetful = state if request.epoch > state.epoch else replace(state, voted=None, leader=NO_LEADER)
    return raft_rules.answer_vote(forgetful, request, me)


def vote_for_any_log(state: RaftState, request: VoteRequest, me: Replica) -> tuple[RaftState, bool]:
    return raft_rules.answer_vote(state, request, replace(me, log_end=EpochAndOffset(-1, 0)))


def vote_for_longer_log_of_older_epoch(state: RaftState, request: VoteRequest, me: Replica) -> tuple[RaftState, bool]:
    end = request.log_end if request.log_end.offset >= me.log_end.offset else me.log_end
    return raft_rules.answer_vote(state, replace(request, log_end=end), me)


def pre_vote_always_granted(state: RaftState, request: VoteRequest, me: Replica) -> tuple[RaftState, bool]:
    if request.is_pre_vote:
        return state, True
    return raft_rules.answer_vote(state, request, me)


def become_candidate_without_pre_vote(state: RaftState, me: Replica) -> RaftState:
    expired = raft_rules.expire(state, me)
    return raft_rules.stand_for_election(expired, me) if expired.role is Role.PROSPECTIVE else expired


def lead_with_one_vote(state: RaftState, voter: ReplicaKey, request_state: RaftState, **others: Any) -> RaftState:
    counted = raft_rules.count_vote(state, voter, request_state, **others)
    return (
        replace(counted, role=Role.LEADER, leader=others["me"].key.broker)
        if counted.role is Role.CANDIDATE
        else counted
    )


def restart_in_previous_epoch(stored: ElectionState, me: ReplicaKey) -> RaftState:
    return raft_rules.restart(ElectionState(max(stored.epoch - 1, 0)), me)


def restart_without_vote(stored: ElectionState, me: ReplicaKey) -> RaftState:
    return raft_rules.restart(stored._replace(voted=None), me)


def restart_as_leader(stored: ElectionState, me: ReplicaKey) -> RaftState:
    if stored.leader == me.broker:
        return RaftState(Role.LEADER, stored.epoch, stored.leader, stored.voted)
    return raft_rules.restart(stored, me)


def several_changes_at_once(current: VoterSet, proposed: VoterSet, **offsets: int) -> bool:
    relaxed = offsets | {"voters_offset": -1}
    return voter_set.can_change_voters(current, proposed, **relaxed)


def commit_older_epochs(acknowledged: dict[ReplicaKey, int], voters: frozenset[ReplicaKey], **offsets: int) -> int:
    return voter_set.next_high_watermark(acknowledged, voters, **(offsets | {"epoch_start_offset": -1}))


def commit_with_half(acknowledged: dict[ReplicaKey, int], voters: frozenset[ReplicaKey], **offsets: int) -> int:
    fewer = frozenset(sorted(voters, key=lambda voter: acknowledged.get(voter, 0))[1:]) or voters
    return voter_set.next_high_watermark(acknowledged, fewer, **offsets)


WRONG_RULES = {
    "a replica votes twice in an epoch": Rules(answer_vote=vote_again),
    "a replica votes for a shorter log": Rules(answer_vote=vote_for_any_log),
    "a replica votes for a longer log of an older epoch": Rules(answer_vote=vote_for_longer_log_of_older_epoch),
    "a vote is answered before it is on disk": Rules(syncs_first=False),
    "pre-votes are granted beside a leader": Rules(answer_vote=pre_vote_always_granted),
    "a voter becomes a candidate without a pre-vote": Rules(expire=become_candidate_without_pre_vote),
    "one other vote elects a leader": Rules(count_vote=lead_with_one_vote),
    "an epoch is used again after a restart": Rules(restart=restart_in_previous_epoch),
    "a vote is forgotten in a restart": Rules(restart=restart_without_vote),
    "a leader stays leader after a restart": Rules(restart=restart_as_leader),
    "two changes of voters at once": Rules(can_change_voters=several_changes_at_once),
    "records of older epochs are counted": Rules(next_high_watermark=commit_older_epochs),
    "less than a majority commits": Rules(next_high_watermark=commit_with_half),
    "an empty disk passes as the lost one": Rules(directories_differ=False),
}


def find_violation(rules: Rules) -> Exploration:
    """Searches short histories exhaustively, then long ones at random."""
    short = Budget(epochs=2, records=1, crashes=1, changes=2, wipes=1)
    for start in (
        world_of(3, 3, short),
        world_of(3, 3, Budget(epochs=1, crashes=1)),
        led_world(short),
        contested_world(Budget(epochs=4)),
    ):
        exploration = explore(start, rules, 2_500)
        if exploration.violation is not None:
            return exploration
    for seed in range(MAX_WALKS):
        exploration = random_walk(large_world(seed), rules, Random(seed), STEPS)
        if exploration.violation is not None:
            break
    return exploration


@pytest.mark.parametrize("rule", WRONG_RULES)
def test_a_wrong_rule_is_detected(rule: str) -> None:
    assert find_violation(WRONG_RULES[rule]).violation is not None
