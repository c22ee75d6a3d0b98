"""What is committed is in every later leader's log, whatever befalls brokers and messages; and the model notices rules that are wrong."""

from collections.abc import Callable, Collection
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metadata import quorum_rules
from ottla_broker.metadata.quorum_rules import (
    Voter,
    VoterCandidate,
    can_propose_voters,
    committed_offset,
    election_quorum_size,
    majority_size,
    next_voter_set,
    target_voter_count,
)
from tests.unit.metadata.quorum_model import Broken, World

ROUNDS = 4
STEPS = 600


def play(seed: int) -> World:
    random = Random(seed)
    world = World(random, random.choice((1, 2, 3, 3, 4, 5)))
    for _ in range(ROUNDS):
        world.run(STEPS)
    return world


def test_what_is_committed_is_in_every_later_leaders_log() -> None:
    worlds = [play(seed) for seed in range(150)]
    assert sum(len(world.committed) for world in worlds) > 2_000
    assert sum(world.established for world in worlds) > 500
    assert sum(world.changed for world in worlds) > 400


WRONG: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a leader hears one member too few": lambda patch: patch.setattr(
        quorum_rules, "election_quorum_size", lambda members: members - majority_size(members)
    ),
    "half of the members is a majority": lambda patch: patch.setattr(
        quorum_rules,
        "committed_offset",
        lambda ends, memberships: min(
            sorted((ends.get(m.key, 0) for m in members), reverse=True)[max(0, len(members) // 2 - 1)]
            for members in memberships
        ),
    ),
    "members come whatever they have": lambda patch: patch.setattr(
        quorum_rules, "can_propose_voters", lambda *_, **__: True
    ),
    "a change of members counts before it is written": lambda patch: patch.setattr(
        quorum_rules, "committed_offset", lambda ends, memberships: committed_offset(ends, memberships[-1:])
    ),
}


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_rule_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    WRONG[rule](monkeypatch)
    with pytest.raises(Broken):
        for seed in range(3_000):
            play(seed)


# --- one rule at a time


def member(broker: int, life: int = 0) -> Voter:
    return Voter(broker, UUID(int=broker * 100 + life))


def candidates(brokers: Collection[int], alive: Collection[int]) -> list[VoterCandidate]:
    return [VoterCandidate(member(broker), True, broker in alive) for broker in sorted(brokers)]


@given(st.integers(1, 9), st.integers(1, 9))
def test_a_commit_and_a_take_over_share_a_member(members: int, after: int) -> None:
    if abs(members - after) <= 1:
        assert majority_size(members) + election_quorum_size(members) > members


@given(st.sets(st.integers(1, 7), min_size=1), st.data())
def test_memberships_converge_one_step_at_a_time(brokers: set[int], data: st.DataObject) -> None:
    leader = data.draw(st.sampled_from(sorted(brokers)))
    alive = data.draw(st.sets(st.sampled_from(sorted(brokers)))) | {leader}
    members: tuple[Voter, ...] = (member(leader),)
    for broker in sorted(data.draw(st.sets(st.sampled_from(sorted(brokers))))):
        members = (*members, member(broker)) if broker != leader else members
    for _ in range(20):
        wanted = next_voter_set(members, member(leader), candidates(brokers, alive), len(brokers))
        if wanted is None:
            break
        before, after = {m.key for m in members}, {m.key for m in wanted}
        assert len(before ^ after) == 1
        assert member(leader).key in after
        members = wanted
    assert wanted is None
    assert len(members) <= target_voter_count(len(brokers))
    if alive - {m.broker for m in members}:  # somebody is left to choose from
        assert len(members) == target_voter_count(len(brokers))
        assert {m.broker for m in members} <= alive


def test_a_wiped_member_makes_room_for_its_successor() -> None:
    old = (member(1), member(2), member(3))
    now = [
        VoterCandidate(member(1), True, True),
        VoterCandidate(member(2), True, True),
        VoterCandidate(member(3, life=1), True, True),
    ]
    without = next_voter_set(old, member(1), now, 3)
    assert without == (member(1), member(2))
    assert next_voter_set(without, member(1), now, 3) == (member(1), member(2), member(3, life=1))


def test_the_dead_make_room_only_for_the_living() -> None:
    """Or a leader that hears nobody would make itself the only member, and nobody could succeed it."""
    both = (member(1), member(2))
    assert next_voter_set(both, member(1), candidates({1, 2}, {1}), 2) is None
    assert next_voter_set((*both, member(3)), member(1), candidates({1, 2, 3, 4}, {1, 2, 4}), 4) == both


def test_of_two_the_one_that_leaves_is_taken_out_and_comes_again_when_it_is_back() -> None:
    both = (member(1), member(2))
    leaving = [VoterCandidate(member(1), True, True), VoterCandidate(member(2), True, True, is_shutting_down=True)]
    assert next_voter_set(both, member(1), leaving, 2) == (member(1),)
    assert next_voter_set((member(1),), member(1), leaving, 2) is None
    assert next_voter_set((member(1),), member(1), candidates({1, 2}, {1, 2}), 2) == both
    three = [*leaving, VoterCandidate(member(3), True, True)]
    assert next_voter_set((*both, member(3)), member(1), three, 3) is None  # two of three go on by themselves


def test_what_a_leader_took_over_must_be_on_a_majority_of_new_members() -> None:
    """An earlier leader may have committed it, although this one cannot know."""
    ends = {member(3).key: 5, member(4).key: 0}
    wanted = (member(3), member(4))
    assert not can_propose_voters(wanted, ends, high_watermark=0, epoch_start_offset=5)
    assert can_propose_voters(wanted, ends | {member(4).key: 5}, high_watermark=0, epoch_start_offset=5)


def test_of_two_memberships_the_slower_one_counts() -> None:
    ends = {member(1).key: 9, member(2).key: 5, member(3).key: 7, member(4).key: 1}
    three, four = (member(1), member(2), member(3)), (member(1), member(2), member(3), member(4))
    assert committed_offset(ends, [three]) == 7
    assert committed_offset(ends, [three, four]) == 5
