"""Placement of new partitions: racks alternate, and brokers get equal numbers of replicas."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.metadata.placement import UsableBroker, alternate_racks, assign_replicas, least_loaded_start


@st.composite
def clusters(draw: st.DrawFn) -> list[UsableBroker]:
    ids = draw(st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True))
    with_racks = draw(st.booleans())
    return [UsableBroker(i, draw(st.sampled_from(["a", "b", "c"])) if with_racks else None) for i in ids]


@given(clusters(), st.integers(1, 40), st.data())
def test_replicas_are_distinct_brokers_and_leaders_are_even(
    usable: list[UsableBroker], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(usable)))
    start, shift = data.draw(st.integers(0, 100)), data.draw(st.integers(0, 100))
    placed = assign_replicas(partitions, factor, usable, start=start, shift=shift)
    assert len(placed) == partitions
    ids = {p.broker for p in usable}
    for replicas in placed:
        assert len(replicas) == factor == len(set(replicas))
        assert set(replicas) <= ids
    leaders = Counter(dict.fromkeys(ids, 0))
    leaders.update(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(clusters(), st.integers(1, 20), st.data())
def test_replicas_span_as_many_racks_as_they_can(
    usable: list[UsableBroker], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(usable)))
    rack_of = {p.broker: p.rack if p.rack is not None else p.broker for p in usable}
    for replicas in assign_replicas(partitions, factor, usable):
        assert len({rack_of[broker] for broker in replicas}) == min(factor, len(set(rack_of.values())))


@st.composite
def clusters_on_nodes(draw: st.DrawFn) -> list[UsableBroker]:
    """Up to 40 brokers on few nodes in few racks. These can be more than the placement compares for
    one replica. Some brokers report no node.
    """
    ids = draw(st.lists(st.integers(0, 60), min_size=1, max_size=40, unique=True))
    names = list[list[str | None]]
    racks = draw(st.sampled_from(names([[None], ["a"], ["a", "b", "c"], [None, "a", "b"]])))
    nodes = draw(st.sampled_from(names([["n1"], ["n1", "n2"], ["n1", "n2", "n3", "n4"], [None, "n1", "n2"]])))
    return [UsableBroker(it, draw(st.sampled_from(racks)), draw(st.sampled_from(nodes))) for it in ids]


@given(clusters_on_nodes(), st.integers(1, 20), st.data())
def test_no_two_replicas_are_on_a_node_while_another_is_free(
    usable: list[UsableBroker], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, min(5, len(usable))))
    start, shift = data.draw(st.integers(0, 100)), data.draw(st.integers(0, 100))
    rack_of = {it.broker: it.rack or (it.node and f"node {it.node}") or it.broker for it in usable}
    node_of = {it.broker: (it.rack, it.node or it.broker) for it in usable}
    placed = assign_replicas(partitions, factor, usable, start=start, shift=shift)
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({node_of[it] for it in replicas}) == min(factor, len(set(node_of.values())))
        assert len({rack_of[it] for it in replicas}) == min(factor, len(set(rack_of.values())))
    leaders = Counter(dict.fromkeys(rack_of, 0))
    leaders.update(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(st.integers(2, 6), st.integers(1, 4), st.integers(1, 60))
@settings(deadline=None)
def test_replicas_are_even_on_nodes_of_equal_size(nodes: int, workers: int, partitions: int) -> None:
    usable = [UsableBroker(it, node=f"n{it // workers}") for it in range(nodes * workers)]
    for factor in {1, 2, min(3, nodes)}:
        counts = Counter(
            broker for replicas in assign_replicas(partitions * len(usable), factor, usable) for broker in replicas
        )
        assert max(counts.values()) - min(counts.values()) <= 2


@given(clusters(), st.integers(1, 40), st.data())
def test_brokers_that_share_one_node_are_placed_as_without_nodes(
    usable: list[UsableBroker], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(usable)))
    on_one_node = [UsableBroker(it.broker, it.rack, "host") for it in usable]
    assert assign_replicas(partitions, factor, on_one_node) == assign_replicas(partitions, factor, usable)


@given(st.integers(2, 9), st.integers(1, 100))
@settings(deadline=None)
def test_replicas_are_even_without_racks(brokers: int, partitions: int) -> None:
    usable = [UsableBroker(i) for i in range(brokers)]
    for factor in {1, 2, min(3, brokers)}:
        counts = Counter(
            broker for replicas in assign_replicas(partitions * brokers, factor, usable) for broker in replicas
        )
        assert max(counts.values()) - min(counts.values()) <= 2
        if factor == 1:
            assert len(set(counts.values())) == 1  # the partition count is a multiple of the broker count


@pytest.mark.parametrize("factor", [0, -1, 4])
def test_the_error_names_a_replication_factor_that_cannot_be_met(factor: int) -> None:
    with pytest.raises(ValueError, match=f"replication factor {factor} .* brokers, 3"):
        assign_replicas(1, factor, [UsableBroker(1), UsableBroker(2), UsableBroker(3)])


def test_neighbours_on_the_ring_are_in_different_racks() -> None:
    order = alternate_racks([UsableBroker(1, "a"), UsableBroker(2, "a"), UsableBroker(3, "b"), UsableBroker(4, "b")])
    assert [p.rack for p in order] == ["a", "b", "a", "b"]


def test_neighbours_on_the_ring_are_on_different_nodes_of_different_racks() -> None:
    brokers = [UsableBroker(it, "ab"[it // 4], f"n{it // 2 % 2}") for it in range(8)]
    assert [it.broker for it in alternate_racks(brokers)] == [0, 4, 2, 6, 1, 5, 3, 7]


def test_the_next_topic_begins_with_the_broker_that_leads_least() -> None:
    usable = [UsableBroker(1), UsableBroker(2), UsableBroker(3)]
    start = least_loaded_start(usable, {1: 3, 2: 1, 3: 2})
    assert assign_replicas(1, 1, usable, start=start) == [(2,)]
