"""Reassignment plans of clusters with several cells."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.metadata.cells import divide_into_cells
from ottla_broker.metadata.placement import UsableBroker, assign_replicas, count_domains, group_by_cell
from ottla_operator.plan.moves import PartitionReplicas, apply_moves, estimate_cost
from ottla_operator.plan.reassign import change_replication_factor, drain_brokers, spread_replicas


def even_cluster(broker_count: int, rack_count: int) -> list[UsableBroker]:
    return [UsableBroker(it, f"r{it % rack_count}" if rack_count else None) for it in range(broker_count)]


@st.composite
def large_clusters(draw: st.DrawFn) -> list[UsableBroker]:
    """18 to 40 brokers, without racks or in up to four of them, each on its own node or on up to
    twelve shared ones.
    """
    names = list[list[str | None]]
    racks = draw(st.sampled_from(names([[None], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"]])))
    nodes = draw(st.sampled_from(names([[None], [f"n{it}" for it in range(12)]])))
    count = draw(st.integers(18, 40))
    return [UsableBroker(it, draw(st.sampled_from(racks)), draw(st.sampled_from(nodes))) for it in range(count)]


@st.composite
def partitions_on(draw: st.DrawFn, brokers: Sequence[int]) -> list[PartitionReplicas]:
    """Up to 40 partitions with up to five replicas on any of these brokers."""
    found = []
    for index in range(draw(st.integers(1, 40))):
        count = draw(st.integers(1, 5))
        replicas = tuple(draw(st.lists(st.sampled_from(brokers), min_size=count, max_size=count, unique=True)))
        topic = draw(st.sampled_from("ab"))
        found.append(PartitionReplicas(topic, index, replicas, replicas, replicas[0], draw(st.integers(0, 9))))
    return found


def ids(brokers: Collection[UsableBroker]) -> list[int]:
    return [it.broker for it in brokers]


def cells_of(it: PartitionReplicas, cells: Mapping[int, int]) -> set[int]:
    return {cells[broker] for broker in it.replicas}


def some_cell_can_hold(count: int, targets: Sequence[UsableBroker], cells: Mapping[int, int]) -> bool:
    every = count_domains(targets)
    return any(count_domains(it).can_hold(count, every) for it in group_by_cell(targets, cells).values())


def replica_counts(partitions: Sequence[PartitionReplicas]) -> Counter[int]:
    return Counter(broker for it in partitions for broker in it.replicas)


def mean_loads(
    partitions: Sequence[PartitionReplicas], targets: Sequence[UsableBroker], cells: Mapping[int, int]
) -> list[tuple[float, int]]:
    """For each cell: the mean number of replicas on a broker, and the number of brokers."""
    held = replica_counts(partitions)
    return [
        (sum(held[it] for it in ids(cell)) / len(cell), len(cell)) for cell in group_by_cell(targets, cells).values()
    ]


@given(large_clusters(), st.data())
@settings(deadline=None)
def test_spreading_brings_each_partition_into_one_cell_with_all_racks_and_nodes(
    brokers: list[UsableBroker], data: st.DataObject
) -> None:
    partitions = data.draw(partitions_on(ids(brokers)))
    cells, every = divide_into_cells(brokers), count_domains(brokers)
    broker_of = {it.broker: it for it in brokers}
    after = apply_moves(partitions, spread_replicas(partitions, brokers))
    for old, it in zip(partitions, after, strict=True):
        count = len(old.replicas)
        assert len(it.replicas) == count == len(set(it.replicas))
        if some_cell_can_hold(count, brokers, cells):
            assert len(cells_of(it, cells)) == 1
        found = count_domains([broker_of[broker] for broker in it.replicas])
        assert found.racks == min(count, every.racks)
        assert found.nodes == min(count, every.nodes)
    # Where no cell can hold a partition, its replicas decide which cell is nearest, so that a
    # second plan may still make brokers more even.
    again = [it for it in spread_replicas(after, brokers) if it.adding]
    assert not [it for it in again if some_cell_can_hold(len(it.after), brokers, cells)]


@given(st.integers(18, 40), st.data())
@settings(deadline=None)
def test_without_racks_cells_and_their_brokers_are_even(count: int, data: st.DataObject) -> None:
    brokers = even_cluster(count, 0)
    partitions = data.draw(partitions_on(ids(brokers)))
    cells = divide_into_cells(brokers)
    after = apply_moves(partitions, spread_replicas(partitions, brokers))
    held = replica_counts(after)
    for cell in group_by_cell(brokers, cells).values():
        in_cell = [held[it] for it in ids(cell)]
        assert max(in_cell) - min(in_cell) <= 1
    largest = max(len(it.replicas) for it in partitions)
    loads = mean_loads(after, brokers, cells)
    for high, size in loads:
        for low, other_size in loads:
            assert high - low <= largest / 2 * (1 / size + 1 / other_size) + 1e-9


@given(large_clusters(), st.data())
@settings(deadline=None)
def test_no_plan_brings_a_partition_of_one_cell_into_two(brokers: list[UsableBroker], data: st.DataObject) -> None:
    """Also while brokers are down: these count in the division into cells, and replicas on them
    stay.
    """
    cells = divide_into_cells(brokers)
    by_cell = [ids(it) for it in group_by_cell(brokers, cells).values()]
    home = data.draw(st.lists(st.sampled_from(by_cell), min_size=1, max_size=20))
    partitions = []
    for index, cell in enumerate(home):
        replicas = tuple(data.draw(st.lists(st.sampled_from(cell), min_size=1, max_size=3, unique=True)))
        partitions.append(PartitionReplicas("ab"[index % 2], index, replicas, replicas, replicas[0]))
    down = data.draw(st.sets(st.sampled_from(ids(brokers)), max_size=2))
    up = [it for it in brokers if it.broker not in down]
    leaving = {data.draw(st.sampled_from(ids(up)))}
    targets = [it for it in up if it.broker not in leaving]
    for plan_targets, moves in (
        (up, spread_replicas(partitions, up, registered=brokers)),
        (targets, drain_brokers(partitions, up, leaving, registered=brokers)),
        (up, change_replication_factor(partitions, up, {"a"}, 3, registered=brokers)),
    ):
        for old, it in zip(partitions, apply_moves(partitions, moves), strict=True):
            if some_cell_can_hold(3, plan_targets, cells) and all(
                count_domains(cell).can_hold(3, count_domains(plan_targets))
                for cell in group_by_cell(plan_targets, cells).values()
            ):
                assert len(cells_of(it, cells)) == 1
            if moves and plan_targets is up and len(old.replicas) == len(it.replicas):
                assert down & set(old.replicas) == down & set(it.replicas)


def placed_cluster(
    brokers: Sequence[UsableBroker], topic_count: int, partition_count: int, cells: Mapping[int, int] | None = None
) -> list[PartitionReplicas]:
    """Topics as the controller places them."""
    held, found = Counter[int](), []
    for number in range(topic_count):
        placed = assign_replicas(
            partition_count,
            3,
            brokers,
            start=number * partition_count,
            shift=number,
            replica_counts=held,
            cells=divide_into_cells(brokers) if cells is None else cells,
        )
        held.update(broker for it in placed for broker in it)
        found += [PartitionReplicas(f"t{number}", n, it, it, it[0], number) for n, it in enumerate(placed)]
    return found


def max_followed_leaders(partitions: Sequence[PartitionReplicas]) -> int:
    found = defaultdict(set)
    for it in partitions:
        for broker in it.replicas[1:]:
            found[broker].add(it.replicas[0])
    return max(map(len, found.values()))


@pytest.mark.parametrize(
    ("before", "broker_count", "rack_count", "least", "copied", "followed"),
    [
        (15, 16, 0, 112, 112, 15),  # one cell before and after
        (17, 18, 0, 100, 410, 8),  # the only cell is divided
        (18, 27, 3, 600, 620, 6),  # a third cell
        (30, 60, 3, 900, 1010, 6),
        (30, 31, 0, 58, 110, 12),  # the last cell grows
    ],
)
def test_growth_ends_balanced_in_cells_and_copies_little(
    before: int, broker_count: int, rack_count: int, least: int, copied: int, followed: int
) -> None:
    """`least`: replicas that added brokers need to have. `copied`: the most that are copied.
    `followed`: the most leaders that one broker follows.
    """
    partitions, larger = (
        placed_cluster(even_cluster(before, rack_count), 30, 20),
        even_cluster(broker_count, rack_count),
    )
    cells = divide_into_cells(larger)
    moves = spread_replicas(partitions, larger)
    after = apply_moves(partitions, moves)
    assert all(len(cells_of(it, cells)) == 1 for it in after)
    held, led = replica_counts(after), Counter(it.replicas[0] for it in after)
    assert max(held.values()) - min(held[it] for it in ids(larger)) <= 1
    assert max(led.values()) - min(led[it] for it in ids(larger)) <= 1
    assert max_followed_leaders(after) <= followed
    assert least <= estimate_cost(moves).replicas <= copied


def test_a_cluster_that_was_placed_without_cells_is_spread_into_cells_once() -> None:
    brokers = even_cluster(60, 3)
    cells = divide_into_cells(brokers)
    partitions = placed_cluster(brokers, 30, 100, cells={})
    assert any(len(cells_of(it, cells)) > 1 for it in partitions)
    after = apply_moves(partitions, moves := spread_replicas(partitions, brokers))
    assert all(len(cells_of(it, cells)) == 1 for it in after)
    assert set(replica_counts(after).values()) == {150}
    assert 3 * len(partitions) // 3 < estimate_cost(moves).replicas < 3 * len(partitions) // 2
    assert spread_replicas(after, brokers) == ()


def test_a_cell_takes_in_the_replicas_of_its_drained_broker() -> None:
    brokers = even_cluster(27, 3)
    cells = divide_into_cells(brokers)
    partitions = placed_cluster(brokers, 10, 54)
    moves = drain_brokers(partitions, brokers, {4}, registered=brokers)
    assert {cells[it] for move in moves for it in move.adding} == {cells[4]}
    assert {it.removing for it in moves} == {(4,)}


def test_scale_down_merges_the_last_cells() -> None:
    brokers = even_cluster(27, 3)
    partitions = placed_cluster(brokers, 10, 54)
    remaining = brokers[:25]
    cells = divide_into_cells(remaining)
    drained = apply_moves(partitions, drain_brokers(partitions, brokers, {25, 26}))
    assert all(len(cells_of(it, cells)) == 1 for it in drained)
    after = apply_moves(drained, spread_replicas(drained, remaining))
    assert all(len(cells_of(it, cells)) == 1 for it in after)


def test_replicas_are_added_in_the_cell_of_a_partition() -> None:
    brokers = even_cluster(27, 3)
    cells = divide_into_cells(brokers)
    partitions = [PartitionReplicas("a", it, (it,), (it,), it) for it in range(27)]
    after = apply_moves(partitions, change_replication_factor(partitions, brokers, {"a"}, 3))
    assert all(len(it.replicas) == 3 and len(cells_of(it, cells)) == 1 for it in after)
    assert set(replica_counts(after).values()) == {3}


def test_replicas_that_no_cell_can_hold_are_spread_over_all_brokers() -> None:
    brokers = even_cluster(40, 0)
    partitions = [PartitionReplicas("wide", it, tuple(range(20)), (0,), 0) for it in range(2)]
    after = apply_moves(partitions, spread_replicas(partitions, brokers))
    assert set(replica_counts(after).values()) == {1}
