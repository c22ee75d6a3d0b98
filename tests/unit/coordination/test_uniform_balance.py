"""Targets that are rebalanced from change to change are as good as recomputed ones."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.coordination.assignors import (
    NO_PARTITIONS,
    AssignableMember,
    Assignment,
    TopicIdPartition,
    assign_uniformly,
    partitions_of,
)
from ottla_broker.coordination.uniform_balance import UniformBalance

COUNTS = {UUID(int=1): 7, UUID(int=2): 5}
changes = st.lists(st.tuples(st.booleans(), st.integers(0, 7)), min_size=1, max_size=30)


def owners_of(targets: dict[str, Assignment]) -> dict[TopicIdPartition, str]:
    return {partition: member for member, target in targets.items() for partition in partitions_of(target)}


def count_moves(before: dict[str, Assignment], after: dict[str, Assignment]) -> int:
    owners = owners_of(before)
    return sum(owners.get(partition) != member for partition, member in owners_of(after).items())


@given(changes)
def test_each_change_moves_as_few_partitions_as_a_new_computation(steps: list[tuple[bool, int]]) -> None:
    targets: dict[str, Assignment] = {}
    balance = UniformBalance((), targets, COUNTS)
    for joins, number in steps:
        member_id = f"m{number}"
        if joins and member_id not in targets:
            balance.add(member_id)
            targets[member_id] = NO_PARTITIONS
        elif not joins and member_id in targets:
            balance.set_target(member_id, targets.pop(member_id), NO_PARTITIONS)
            balance.remove(member_id)
        assert balance.is_valid(COUNTS)
        topics = frozenset(COUNTS)
        anew = assign_uniformly({id: AssignableMember(topics, target) for id, target in targets.items()}, COUNTS)
        before = dict(targets)
        for changed, target in balance.rebalance(targets).items():
            balance.set_target(changed, targets[changed], target)
            targets[changed] = target
        if targets:
            sizes = [len(partitions_of(target)) for target in targets.values()]
            assert (len(owners_of(targets)), sum(sizes)) == (12, 12)
            assert max(sizes) - min(sizes) <= 1
            assert count_moves(before, targets) == count_moves(before, anew)


def test_a_member_that_leaves_changes_the_targets_of_those_who_get_its_partitions() -> None:
    counts = {UUID(int=1): 1000}
    targets = {f"m{at}": {UUID(int=1): frozenset({at})} for at in range(1000)}
    balance = UniformBalance(targets, targets, counts)
    assert balance.rebalance(targets) == {}
    balance.set_target("m3", targets.pop("m3"), NO_PARTITIONS)
    balance.remove("m3")
    ((_, target),) = balance.rebalance(targets).items()
    assert 3 in target[UUID(int=1)]


def test_a_balance_is_not_valid_for_other_topics_or_targets_of_strangers() -> None:
    topic = UUID(int=1)
    balance = UniformBalance(["m"], {}, {topic: 4})
    assert not balance.is_valid({topic: 5})
    assert not balance.is_valid({UUID(int=2): 4})
    balance.set_target("stranger", NO_PARTITIONS, {topic: frozenset({1})})
    assert not balance.is_valid({topic: 4})
