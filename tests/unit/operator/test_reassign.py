"""Reassignment plans: properties, searched by hypothesis."""

import itertools
from collections import Counter
from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metadata.placement import UsableBroker, assign_replicas
from ottla_operator.plan.moves import Move, PartitionReplicas, estimate_cost
from ottla_operator.plan.preferred_leaders import balance_preferred_leaders
from ottla_operator.plan.reassign import ImpossibleAssignment, change_replication_factor, drain_brokers, spread_replicas
from ottla_operator.plan.replica_layout import ReplicaLayout

BROKERS = range(1, 7)
RACKS = st.sampled_from([None, "a", "b", "c"])


@st.composite
def clusters(
    draw: st.DrawFn, racks: st.SearchStrategy[str | None] = RACKS
) -> tuple[list[PartitionReplicas], list[UsableBroker]]:
    """Any partitions on any brokers."""
    brokers = draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=6, unique=True))
    usable = [UsableBroker(it, draw(racks)) for it in brokers]
    partitions = []
    for topic, count in (("a", draw(st.integers(0, 8))), ("b", draw(st.integers(0, 3))), ("c", 1)):
        for index in range(count):
            replicas = draw(st.lists(st.sampled_from(brokers), min_size=1, max_size=4, unique=True))
            isr = tuple(draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
            partitions.append(
                PartitionReplicas(
                    topic, index, tuple(replicas), isr, draw(st.sampled_from([-1, *isr])), draw(st.integers(0, 9))
                )
            )
    return partitions, usable


def apply_moves(
    partitions: Sequence[PartitionReplicas], moves: Sequence[Move]
) -> dict[tuple[str, int], tuple[int, ...]]:
    """Replicas after the moves. Asserts that each move is of an existing partition, and each
    partition moves at most once.
    """
    found = {(it.topic, it.partition): it.replicas for it in partitions}
    seen = set()
    for it in moves:
        assert found[it.topic, it.partition] == it.before != it.after
        assert (it.topic, it.partition) not in seen
        assert len(set(it.after)) == len(it.after)
        seen.add((it.topic, it.partition))
        found[it.topic, it.partition] = it.after
    return found


def replica_counts(layout: dict[tuple[str, int], tuple[int, ...]], brokers: Collection[int]) -> list[int]:
    return [sum(it in replicas for replicas in layout.values()) for it in brokers]


def count_racks(replicas: Collection[int], usable: Sequence[UsableBroker]) -> int:
    names = {it.broker: it.rack for it in usable}
    return len({names.get(it) or f"broker {it}" for it in replicas})


@given(clusters(), st.data())
def test_spreading_is_even_in_every_rack_and_uses_all_racks(
    cluster: tuple[list[PartitionReplicas], list[UsableBroker]], data: st.DataObject
) -> None:
    partitions, usable = cluster
    more = [UsableBroker(it, data.draw(RACKS)) for it in (7, 8)[: data.draw(st.integers(0, 2))]]
    everywhere = [*usable, *more]
    layout = apply_moves(partitions, spread_replicas(partitions, everywhere))
    for it in partitions:
        after = layout[it.topic, it.partition]
        assert len(after) == len(it.replicas)
        most = count_racks([it.broker for it in everywhere], everywhere)
        assert count_racks(after, everywhere) == min(len(after), most)
    for rack in {it.rack for it in everywhere} - {None}:
        of_rack = replica_counts(layout, [it.broker for it in everywhere if it.rack == rack])
        assert max(of_rack) - min(of_rack) <= 1
    assert not [it for it in spread_replicas([_with_layout(it, layout) for it in partitions], everywhere) if it.adding]


@given(clusters(racks=st.sampled_from([None, "a", "b"])), st.data())
def test_spreading_uses_all_nodes_and_all_racks(
    cluster: tuple[list[PartitionReplicas], list[UsableBroker]], data: st.DataObject
) -> None:
    partitions, usable = cluster
    nodes = st.sampled_from(["n1", "n2", "n3"])
    everywhere = [
        *(UsableBroker(it.broker, it.rack, data.draw(nodes)) for it in usable),
        *(UsableBroker(it, data.draw(RACKS), data.draw(nodes)) for it in (7, 8)[: data.draw(st.integers(0, 2))]),
    ]
    layout = apply_moves(partitions, spread_replicas(partitions, everywhere))
    key = {it.broker: it for it in everywhere}
    for it in partitions:
        after = layout[it.topic, it.partition]
        assert len(after) == len(it.replicas)
        for domain in ("node_key", "rack_key"):
            most = len({getattr(broker, domain) for broker in everywhere})
            assert len({getattr(key[broker], domain) for broker in after}) == min(len(after), most)
    assert not [it for it in spread_replicas([_with_layout(it, layout) for it in partitions], everywhere) if it.adding]


@given(clusters(), st.integers(1, 6), st.data())
def test_no_plan_brings_replicas_onto_fewer_nodes(
    cluster: tuple[list[PartitionReplicas], list[UsableBroker]], factor: int, data: st.DataObject
) -> None:
    partitions, usable = cluster
    nodes = st.sampled_from([None, "n1", "n2", "n3"])
    usable = [UsableBroker(it.broker, it.rack, data.draw(nodes)) for it in usable]
    node = {it.broker: it.node_key for it in usable}
    leaving = {usable[0].broker} if data.draw(st.booleans()) else set()
    rest = [it for it in usable if it.broker not in leaving]
    try:
        drained = apply_moves(partitions, drain_brokers(partitions, usable, leaving))
        changed = apply_moves(partitions, change_replication_factor(partitions, usable, {"a"}, factor))
    except ImpossibleAssignment:
        return
    for it in partitions:
        stayed = {node[broker] for broker in it.replicas if broker not in leaving}
        free = {node[broker.broker] for broker in rest} - stayed
        after = {node[broker] for broker in drained[it.topic, it.partition]}
        assert len(after) == len(stayed) + bool(free and leaving & set(it.replicas))
        replicas = changed[it.topic, it.partition]
        if len(replicas) > len(it.replicas):
            most = len(set(node.values()))
            before = {node[broker] for broker in it.replicas}
            added = len(replicas) - len(it.replicas)
            assert len({node[broker] for broker in replicas}) == min(most, len(before) + added)


@given(clusters(racks=st.none()), st.integers(0, 3))
def test_without_racks_spreading_is_even_and_moves_no_more_than_it_must(
    cluster: tuple[list[PartitionReplicas], list[UsableBroker]], added_count: int
) -> None:
    partitions, usable = cluster
    everywhere = [*usable, *(UsableBroker(7 + it) for it in range(added_count))]
    brokers = [it.broker for it in everywhere]
    before = replica_counts(apply_moves(partitions, ()), brokers)
    moves = spread_replicas(partitions, everywhere)
    after = replica_counts(apply_moves(partitions, moves), brokers)
    assert max(after) - min(after) <= 1
    low, rest = divmod(sum(before), len(before))
    high = low + (rest > 0)
    least = max(sum(max(0, it - high) for it in before), sum(max(0, low - it) for it in before))
    assert estimate_cost(moves).replicas == least
    leads = Counter(it[0] for it in apply_moves(partitions, moves).values())
    if all(len(it.replicas) == len(brokers) for it in partitions):  # every broker can lead every partition
        assert max(leads[it] for it in brokers) - min(leads[it] for it in brokers) <= 1


@given(clusters(), st.data())
def test_draining_empties_a_broker_and_moves_nothing_else(
    cluster: tuple[list[PartitionReplicas], list[UsableBroker]], data: st.DataObject
) -> None:
    partitions, usable = cluster
    leaving = data.draw(
        st.lists(st.sampled_from(usable), max_size=2, unique=True).map(lambda it: {at.broker for at in it})
    )
    rest = [it for it in usable if it.broker not in leaving]
    if any(len(it.replicas) > len(rest) for it in partitions if leaving & set(it.replicas)):
        with pytest.raises(ImpossibleAssignment, match=r"needs? as many brokers"):
            drain_brokers(partitions, usable, leaving)
        return
    moves = drain_brokers(partitions, usable, leaving)
    layout = apply_moves(partitions, moves)
    for it in partitions:
        after = layout[it.topic, it.partition]
        assert not leaving & set(after)
        assert set(it.replicas) - leaving <= set(after)
        assert len(after) == len(it.replicas)
        if not leaving & set(it.replicas):
            assert after == it.replicas
        stayed = count_racks(set(it.replicas) - leaving, rest)
        most = count_racks([it.broker for it in rest], rest)
        assert count_racks(after, rest) >= min(stayed + bool(leaving & set(it.replicas)), most)
    # No replica that moved could have gone to a broker that holds two fewer, with no fewer racks.
    load = dict(zip([it.broker for it in rest], replica_counts(layout, [it.broker for it in rest]), strict=True))
    for step in moves:
        for new, other in itertools.product(step.adding, load):
            swapped = [other if at == new else at for at in step.after]
            if other not in step.after and load[new] - load[other] >= 2:
                assert count_racks(swapped, rest) < count_racks(step.after, rest)


@given(clusters(), st.integers(1, 7))
def test_a_changed_replication_factor_keeps_the_leader_and_racks_and_removes_lagging_replicas_first(
    cluster: tuple[list[PartitionReplicas], list[UsableBroker]], factor: int
) -> None:
    partitions, usable = cluster
    if factor > len(usable):
        with pytest.raises(ImpossibleAssignment, match=f"{factor} replicas need as many brokers"):
            change_replication_factor(partitions, usable, {"a", "c"}, factor)
        return
    layout = apply_moves(partitions, change_replication_factor(partitions, usable, {"a", "c"}, factor))
    most = count_racks([it.broker for it in usable], usable)
    for it in partitions:
        after = layout[it.topic, it.partition]
        if it.topic == "b":
            assert after == it.replicas
            continue
        assert len(after) == factor
        assert set(it.replicas) <= set(after) or set(after) <= set(it.replicas)
        if it.leader >= 0:
            assert it.leader in after
        assert count_racks(after, usable) >= min(count_racks(it.replicas, usable), most, factor) or len(after) < len(
            it.replicas
        )
        if set(after) < set(it.replicas):  # lagging replicas are removed before those in sync
            assert set(after) <= set(it.isr) or set(it.isr) <= set(after)


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True), max_size=5),
    st.data(),
)
def test_no_order_of_the_same_replicas_balances_leaders_better(replicas: list[list[int]], data: st.DataObject) -> None:
    changeable = data.draw(st.sets(st.integers(0, 4)))
    topics = [data.draw(st.sampled_from("ab")) for _ in replicas]
    made = [list(it) for it in replicas]
    balance_preferred_leaders(made, topics, changeable, range(4))
    assert [set(it) for it in made] == [set(it) for it in replicas]
    assert all(
        new == old for index, (new, old) in enumerate(zip(made, replicas, strict=True)) if index not in changeable
    )

    def leader_imbalance(leaders: Sequence[int]) -> tuple[int, int]:
        led = [sum(it == broker for it in leaders) for broker in range(4)]
        return max(led), -min(led)

    choices = [it if index in changeable else it[:1] for index, it in enumerate(replicas)]
    every = [leader_imbalance(leaders) for leaders in itertools.product(*choices)]
    assert leader_imbalance([it[0] for it in made]) == (
        min(most for most, _ in every),
        min(least for _, least in every),
    )


@given(st.integers(1, 5), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 3))
def test_leaders_are_balanced_over_all_topics_and_in_each(broker_count: int, counts: list[int], shift: int) -> None:
    """Every broker has a replica of every partition."""
    replicas, topics = [], []
    for topic, count in enumerate(counts):
        for _ in range(count):
            order = list(range(broker_count))
            order.insert(0, order.pop(shift % broker_count))
            replicas.append(order)
            topics.append(str(topic))
    balance_preferred_leaders(replicas, topics, range(len(topics)), range(broker_count))
    for wanted in (None, *set(topics)):
        led = Counter(it[0] for it, topic in zip(replicas, topics, strict=True) if wanted in (None, topic))
        numbers = [led[it] for it in range(broker_count)]
        assert max(numbers) - min(numbers) <= 1


def test_a_broker_that_is_down_keeps_its_replicas() -> None:
    partitions = [PartitionReplicas("a", it, (1, 2), (1,), 1) for it in range(4)]
    moves = spread_replicas(partitions, [UsableBroker(1), UsableBroker(3)])  # broker 2 is down
    assert all(2 in it.after for it in moves)
    assert sum(3 in it.after for it in moves) == 2


def test_partitions_can_be_spread_over_some_brokers() -> None:
    partitions = [PartitionReplicas("a", it, (1, 2), (1, 2), 1) for it in range(4)]
    layout = apply_moves(partitions, spread_replicas(partitions, [UsableBroker(3), UsableBroker(4)], leaving={1, 2}))
    assert all(set(it) == {3, 4} for it in layout.values())
    assert Counter(it[0] for it in layout.values()) == {3: 2, 4: 2}


def test_an_added_broker_gets_partitions_of_every_topic() -> None:
    """The added broker must not get all partitions of one topic."""
    partitions = [
        PartitionReplicas(topic, it, (1 + it % 2,), (1 + it % 2,), 1 + it % 2) for topic in "abc" for it in range(6)
    ]
    moves = spread_replicas(partitions, [UsableBroker(1), UsableBroker(2), UsableBroker(3)])
    assert Counter(it.topic for it in moves) == {"a": 2, "b": 2, "c": 2}


def test_the_cost_of_moves_is_estimated() -> None:
    moves = [
        Move("a", 0, (1, 2), (1, 3), 1, 100),
        Move("a", 1, (1, 2), (3, 4), 2, 50),
        Move("a", 2, (1, 2), (2, 1), 1, 999),
    ]
    found = estimate_cost(moves)
    assert (found.partitions, found.replicas, found.bytes) == (3, 3, 200)
    assert found.busiest_bytes == 150  # broker 3 takes in two partitions
    assert found.duration_s(50) == 3
    assert estimate_cost([]).duration_s(1) == 0


def test_a_large_cluster_is_balanced_with_the_fewest_copies() -> None:
    brokers = [UsableBroker(it, f"rack {it % 3}") for it in range(12)]
    shapes = [assign_replicas(100, 3, brokers[:9], start=it, shift=it) for it in range(30)]
    partitions = [
        PartitionReplicas(f"t{topic}", it, replicas, replicas, replicas[0], it)
        for topic, shape in enumerate(shapes)
        for it, replicas in enumerate(shape)
    ]
    layout = apply_moves(partitions, moves := spread_replicas(partitions, brokers))
    found = replica_counts(layout, range(12))
    assert max(found) - min(found) <= 1
    leads = Counter(it[0] for it in layout.values())
    assert max(leads.values()) - min(leads.values()) <= 1
    assert estimate_cost(moves).replicas == 3 * 750


def test_brokers_of_which_no_replica_can_move_are_not_searched_again_for_every_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No replica of the two brokers in the smallest rack can move, however full they are."""
    brokers = [UsableBroker(it, "small" if it < 2 else "middle" if it < 6 else "large") for it in range(14)]
    assignments = list(itertools.permutations(range(12), 3))
    partitions = [
        PartitionReplicas(f"t{number % 10}", number, replicas, replicas, replicas[0])
        for number, replicas in enumerate(assignments[:: len(assignments) // 300])
    ]
    calls = 0
    keeps_spread = ReplicaLayout.keeps_spread

    def counted(layout: ReplicaLayout, index: int, old: int, new: int) -> bool:
        nonlocal calls
        calls += 1
        return keeps_spread(layout, index, old, new)

    monkeypatch.setattr(ReplicaLayout, "keeps_spread", counted)
    layout = apply_moves(partitions, spread_replicas(partitions, brokers))
    small, middle, large = (replica_counts(layout, range(*it)) for it in ((0, 2), (2, 6), (6, 14)))
    assert min(small) > max(middle) > max(large)
    assert calls < 20 * 3 * len(partitions), f"{calls / len(partitions) / 3:.0f} calls of keeps_spread for each replica"


def _with_layout(it: PartitionReplicas, layout: dict[tuple[str, int], tuple[int, ...]]) -> PartitionReplicas:
    return PartitionReplicas(it.topic, it.partition, layout[it.topic, it.partition], it.isr, it.leader, it.bytes)
