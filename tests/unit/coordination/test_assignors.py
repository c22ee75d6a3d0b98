"""Assignors of consumer groups: complete, balanced, sticky."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.coordination.assignors import (
    ASSIGNORS,
    AssignableMember,
    Assignment,
    assign_range,
    assign_uniformly,
    partitions_of,
)
from ottla_broker.coordination.subscription_counts import SubscriptionCounts

TOPICS = [UUID(int=number) for number in range(1, 5)]
counts = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})
subscriptions = st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=6)


def members_of(topics: list[frozenset[UUID]], targets: dict[str, Assignment]) -> dict[str, AssignableMember]:
    return {f"m{at}": AssignableMember(one, targets.get(f"m{at}", {})) for at, one in enumerate(topics)}


def sizes(assignments: dict[str, Assignment]) -> dict[str, int]:
    return {member: len(partitions_of(assignment)) for member, assignment in assignments.items()}


@pytest.mark.parametrize("wanted", [("range", "uniform"), ("uniform", "range")])
def test_which_of_two_assignors_is_used_does_not_depend_on_who_joined_first(wanted: tuple[str, str]) -> None:
    preferences = SubscriptionCounts()
    for name in wanted:
        preferences.add((("t",), ""), name)
    assert preferences.preferred_assignor("range") == "uniform"
    preferences.add((("t",), ""), "range")
    assert preferences.preferred_assignor("uniform") == "range"


@pytest.mark.parametrize("name", ASSIGNORS)
@given(topics=subscriptions, counts=counts, later=subscriptions)
def test_every_partition_has_one_owner_that_subscribes_to_it(
    name: str, topics: list[frozenset[UUID]], counts: dict[UUID, int], later: list[frozenset[UUID]]
) -> None:
    targets: dict[str, Assignment] = {}
    for subscribed in (topics, later):
        members = members_of(subscribed, targets)
        targets = ASSIGNORS[name](members, counts)
        assert targets.keys() == members.keys()
        assigned = [(tp, member) for member, target in targets.items() for tp in partitions_of(target)]
        assert all(tp[0] in members[member].topics for tp, member in assigned)
        wanted = [
            (topic, partition)
            for topic, count in counts.items()
            if any(topic in member.topics for member in members.values())
            for partition in range(count)
        ]
        assert sorted(tp for tp, _ in assigned) == sorted(wanted)


@given(counts=counts, first=st.integers(1, 6), second=st.integers(1, 6))
def test_members_with_the_same_topics_have_equal_shares_and_keep_what_they_can(
    counts: dict[UUID, int], first: int, second: int
) -> None:
    before = assign_uniformly(members_of([frozenset(TOPICS)] * first, {}), counts)
    after = assign_uniformly(members_of([frozenset(TOPICS)] * second, before), counts)
    shares = sizes(after)
    assert max(shares.values()) - min(shares.values()) <= 1
    for member in before.keys() & after.keys():
        kept = set(partitions_of(before[member])) & set(partitions_of(after[member]))
        assert len(kept) == min(len(partitions_of(before[member])), len(partitions_of(after[member])))


@given(topics=subscriptions, counts=counts)
def test_no_partition_can_be_moved_to_a_member_that_has_two_fewer(
    topics: list[frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    members = members_of(topics, {})
    targets = assign_uniformly(members, counts)
    shares = sizes(targets)
    for owner, target in targets.items():
        for topic in target:
            assert all(shares[owner] - shares[other] < 2 for other, member in members.items() if topic in member.topics)


@given(topics=subscriptions, counts=counts)
def test_a_balanced_assignment_stays(topics: list[frozenset[UUID]], counts: dict[UUID, int]) -> None:
    targets = assign_uniformly(members_of(topics, {}), counts)
    assert assign_uniformly(members_of(topics, targets), counts) == targets


def test_range_gives_the_same_partitions_of_topics_of_the_same_size() -> None:
    first, second = TOPICS[:2]
    members = members_of([frozenset((first, second))] * 2, {})
    targets = assign_range(members, {first: 3, second: 3})
    assert targets == {
        "m0": {first: frozenset((0, 1)), second: frozenset((0, 1))},
        "m1": {first: frozenset((2,)), second: frozenset((2,))},
    }


def test_range_orders_static_members_by_their_instance_ids() -> None:
    topic = TOPICS[0]
    members = {
        "a": AssignableMember(frozenset((topic,))),
        "z": AssignableMember(frozenset((topic,)), group_instance_id="1"),
    }
    assert assign_range(members, {topic: 3}) == {"z": {topic: frozenset((0, 1))}, "a": {topic: frozenset((2,))}}


def test_a_member_that_joins_leaves_the_others_their_targets_unless_they_give_up_partitions() -> None:
    members = members_of([frozenset(TOPICS[:1])] * 4, {})
    targets = assign_uniformly(members, {TOPICS[0]: 6})
    after = assign_uniformly(members_of([frozenset(TOPICS[:1])] * 5, targets), {TOPICS[0]: 6})
    assert sizes(targets) == {"m0": 2, "m1": 2, "m2": 1, "m3": 1}
    assert [member for member in targets if after[member] is not targets[member]] == ["m1"]


def test_partitions_that_two_members_have_by_their_targets_are_kept_by_the_first() -> None:
    topic = TOPICS[0]
    members = members_of([frozenset({topic})] * 2, {"m0": {topic: frozenset({0, 1})}, "m1": {topic: frozenset({1})}})
    assert assign_uniformly(members, {topic: 3}) == {"m0": {topic: frozenset({0, 1})}, "m1": {topic: frozenset({2})}}
