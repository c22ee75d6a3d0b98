"""Division of brokers into cells, and placement of new partitions in them."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.metadata.cells import MIN_CELL_SIZE, divide_into_cells
from ottla_broker.metadata.placement import (
    UsableBroker,
    assign_replicas,
    count_domains,
    group_by_cell,
    least_loaded_start,
)


def even_cluster(brokers: int, racks: int, workers: int = 1) -> list[UsableBroker]:
    """Brokers that are dealt out to the racks in turn; without racks if `racks` is 0. `workers`:
    brokers on each node.
    """
    if not racks:
        return [UsableBroker(it, node=f"n{it // workers}") for it in range(brokers)]
    return [UsableBroker(it, f"r{it % racks}", f"n{it // racks // workers}") for it in range(brokers)]


@st.composite
def any_clusters(draw: st.DrawFn) -> list[UsableBroker]:
    """Up to 60 brokers anywhere in few or many racks, and on few or many nodes."""
    least = draw(st.sampled_from([1, 20, 40]))
    ids = draw(st.lists(st.integers(0, 99), min_size=least, max_size=60, unique=True))
    names = list[list[str | None]]
    racks = draw(
        st.sampled_from(names([[None], ["a"], ["a", "b"], ["a", "b", "c"], list("abcdefgh"), [None, "a", "b"]]))
    )
    nodes = draw(
        st.sampled_from(names([[None], ["n1", "n2", "n3", "n4"], [f"n{it}" for it in range(25)], [None, "n1"]]))
    )
    return [UsableBroker(it, draw(st.sampled_from(racks)), draw(st.sampled_from(nodes))) for it in ids]


def members_of_cells(cells: Mapping[int, int]) -> set[frozenset[int]]:
    by_cell = defaultdict(set)
    for broker, cell in cells.items():
        by_cell[cell].add(broker)
    return set(map(frozenset, by_cell.values()))


@given(any_clusters(), st.randoms())
@settings(deadline=None)
def test_a_cell_has_whole_nodes_and_enough_brokers_racks_and_nodes(brokers: list[UsableBroker], random: Random) -> None:
    cells = divide_into_cells(brokers)
    assert set(cells) == {it.broker for it in brokers}
    assert set(cells.values()) == set(range(len(set(cells.values()))))
    assert len({(it.node_key, cells[it.broker]) for it in brokers}) == len({it.node_key for it in brokers})
    shuffled = list(brokers)
    random.shuffle(shuffled)
    assert divide_into_cells(shuffled) == cells
    by_cell = group_by_cell(brokers, cells)
    if len(by_cell) > 1:
        for cell in by_cell.values():
            assert len(cell) >= MIN_CELL_SIZE
            assert count_domains(cell).can_hold(3, count_domains(brokers))


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("racks", [0, 1, 2, 3, 4, 5])
def test_another_broker_changes_at_most_the_last_cell(racks: int, workers: int) -> None:
    for count in range(1, 120):
        before = members_of_cells(divide_into_cells(even_cluster(count, racks, workers)))
        after = members_of_cells(divide_into_cells(even_cluster(count + 1, racks, workers)))
        assert len(before - after) <= 1
        assert len(before) <= len(after) <= len(before) + 1


@pytest.mark.parametrize("racks", [0, 1, 2, 3])
def test_a_cell_has_9_to_19_brokers_and_a_small_cluster_is_one(racks: int) -> None:
    for count in range(1, 320):
        sizes = Counter(divide_into_cells(even_cluster(count, racks)).values()).values()
        assert max(sizes) <= 19
        assert (len(sizes) == 1) if count < 18 else (min(sizes) >= 9)
    assert len(sizes) in (31, 35)  # of 319


def test_larger_racks_are_divided_among_the_cells_of_the_smaller_ones() -> None:
    brokers = [UsableBroker(it, "aabbc"[it % 5]) for it in range(150)]
    by_cell = group_by_cell(brokers, divide_into_cells(brokers))
    assert len(by_cell) == 10
    for cell in by_cell.values():
        assert {it.rack for it in cell} == {"a", "b", "c"}
        assert len(cell) == 15


@given(any_clusters(), st.integers(1, 40), st.data())
@settings(deadline=None)
def test_replicas_are_in_one_cell_that_can_hold_them(
    registered: list[UsableBroker], partitions: int, data: st.DataObject
) -> None:
    cells = divide_into_cells(registered)
    down = data.draw(st.sets(st.sampled_from([it.broker for it in registered]), max_size=6))
    usable = [it for it in registered if it.broker not in down] or registered
    factor = data.draw(st.integers(1, min(5, len(usable))))
    start, shift = data.draw(st.integers(0, 100)), data.draw(st.integers(0, 100))
    placed = assign_replicas(partitions, factor, usable, start=start, shift=shift, cells=cells)
    broker_of, all_domains = {it.broker: it for it in usable}, count_domains(usable)
    can_hold = {
        cell: count_domains(brokers).can_hold(factor, all_domains)
        for cell, brokers in group_by_cell(usable, cells).items()
    }
    for replicas in placed:
        domains = count_domains([broker_of[it] for it in replicas])
        assert len(set(replicas)) == factor
        assert domains.racks == min(factor, all_domains.racks)
        assert domains.nodes == min(factor, all_domains.nodes)
        if can_hold[cells[replicas[0]]]:
            assert len({cells[it] for it in replicas}) == 1
    leaders = Counter(dict.fromkeys(broker_of, 0))
    leaders.update(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(any_clusters(), st.integers(1, 40), st.data())
def test_a_cluster_of_one_cell_is_placed_as_without_cells(
    brokers: list[UsableBroker], partitions: int, data: st.DataObject
) -> None:
    small = brokers[:17]
    factor = data.draw(st.integers(1, min(5, len(small))))
    led = {it.broker: data.draw(st.integers(0, 3)) for it in small}
    cells = divide_into_cells(small)
    start = least_loaded_start(small, led, cells)
    assert start == least_loaded_start(small, led)
    assert assign_replicas(partitions, factor, small, start=start, replica_counts=led, cells=cells) == assign_replicas(
        partitions, factor, small, start=start, replica_counts=led
    )


@given(st.sampled_from([0, 1, 3]), st.integers(2, 6), st.integers(1, 5), st.integers(1, 3))
@settings(deadline=None, max_examples=30)
def test_leaders_and_replicas_are_even_over_all_brokers(racks: int, cells: int, rounds: int, factor: int) -> None:
    brokers = even_cluster(9 * cells, racks)
    placed = assign_replicas(rounds * len(brokers), factor, brokers, cells=divide_into_cells(brokers))
    assert set(Counter(it[0] for it in placed).values()) == {rounds}
    counts = Counter(broker for it in placed for broker in it)
    assert max(counts.values()) - min(counts.values()) <= 2


def test_a_small_topic_is_led_in_many_cells_and_all_racks() -> None:
    brokers = even_cluster(54, 3)
    cells = divide_into_cells(brokers)
    leaders = [it[0] for it in assign_replicas(6, 3, brokers, cells=cells)]
    assert {cells[it] for it in leaders} == set(range(6))
    assert Counter(it % 3 for it in leaders) == {0: 2, 1: 2, 2: 2}


def max_followed_leaders(placed: Sequence[Sequence[int]]) -> int:
    """The most leaders that one broker follows."""
    followed = defaultdict(set)
    for leader, *followers in placed:
        for it in followers:
            followed[it].add(leader)
    return max(map(len, followed.values()))


@pytest.mark.parametrize(("topics", "partitions"), [(10, 1000), (1000, 10)])
def test_each_of_300_brokers_follows_at_most_8_leaders(topics: int, partitions: int) -> None:
    brokers = even_cluster(300, 3)
    cells = divide_into_cells(brokers)
    placed: list[tuple[int, ...]] = []
    led, held = Counter[int](), Counter[int]()
    for number in range(topics):
        start = least_loaded_start(brokers, led, cells)
        added = assign_replicas(partitions, 3, brokers, start=start, shift=number, replica_counts=held, cells=cells)
        led.update(it[0] for it in added)
        held.update(broker for it in added for broker in it)
        placed += added
    assert max_followed_leaders(placed) <= 8
    assert max(led.values()) - min(led.values()) <= 1
    assert max(held.values()) - min(held.values()) <= 3
