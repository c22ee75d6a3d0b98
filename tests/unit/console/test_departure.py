"""What would happen if a broker left."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.departure import MAX_NAMED, Departure, assess_partition
from ottla_broker.metadata.election import ElectionCandidates, TopicElectionRules
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord

TOPIC = UUID(int=7)
BROKERS = (1, 2, 3, 4)


def simulate(
    *states: PartitionRecord, broker: int = 1, unfenced: tuple[int, ...] = BROKERS, min_insync: int = 1,
    allow_unclean: bool = False,
) -> Departure:  # fmt: skip
    remaining = ElectionCandidates(dict.fromkeys(unfenced, ())).without(broker)
    rules, departure = TopicElectionRules(min_insync, allow_unclean), Departure(broker)
    for state in states:
        if broker in state.replicas:
            departure.add(assess_partition("t", state, broker, remaining, rules))
    return departure


def partition(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, index: int = 0) -> PartitionRecord:
    return PartitionRecord(TOPIC, index, replicas, isr, leader)


def test_each_partition_is_counted_once_with_its_worst_effect() -> None:
    departure = simulate(
        partition((1,), (1,), 1, 0),
        partition((1, 2, 3), (1, 2, 3), 1, 1),
        partition((1, 2, 3), (1, 2), 2, 2),
        partition((1, 2, 3), (1, 2, 3), 2, 3),
        partition((2, 3, 4), (2, 3, 4), 2, 4),
        partition((1, 5), (5,), NO_LEADER, 5),
        partition((1, 2, 3), (2,), 2, 6),
        min_insync=2,
    )
    assert {kind: [one.partition for one in named] for kind, named in departure.named.items()} == {
        "offline": [0],
        "already_offline": [5],
        "below_min_isr": [2],
        "unclean": [],
        "new_leader": [1],
    }
    assert (departure.replicas, departure.unaffected, dict(departure.leaders)) == (6, 2, {2: 1})


def test_a_replica_without_all_records_leads_only_where_the_topic_allows_it() -> None:
    state = partition((1, 2), (1,), 1)
    assert simulate(state).counts == {"offline": 1}
    assert simulate(state, allow_unclean=True).counts == {"unclean": 1}


def test_named_partitions_are_bounded_and_all_are_counted() -> None:
    departure = simulate(*(partition((1,), (1,), 1, index) for index in range(MAX_NAMED + 5)))
    assert len(departure.named["offline"]) == MAX_NAMED
    assert departure.counts["offline"] == departure.replicas == MAX_NAMED + 5


@st.composite
def states(draw: st.DrawFn) -> tuple[list[PartitionRecord], tuple[int, ...]]:
    """Partitions that a controller could have, and the unfenced brokers."""
    unfenced = tuple(sorted(draw(st.sets(st.sampled_from(BROKERS), min_size=1))))
    partitions = []
    for index in range(draw(st.integers(0, 6))):
        replicas = tuple(draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True)))
        isr = tuple(one for one in replicas if draw(st.booleans())) or replicas[:1]
        live = [one for one in isr if one in unfenced]
        partitions.append(
            partition(replicas, isr if len(isr) == 1 else tuple(live) or isr[:1], live[0] if live else -1, index)
        )
    return partitions, unfenced


@given(states(), st.sampled_from(BROKERS), st.integers(1, 3), st.booleans())
def test_departure_counts_every_replica_once_and_elects_only_brokers_that_remain(
    cluster: tuple[list[PartitionRecord], tuple[int, ...]], broker: int, min_insync: int, allow_unclean: bool
) -> None:
    partitions, unfenced = cluster
    departure = simulate(
        *partitions, broker=broker, unfenced=unfenced, min_insync=min_insync, allow_unclean=allow_unclean
    )
    assert departure.replicas == sum(broker in one.replicas for one in partitions)
    assert departure.replicas == departure.unaffected + sum(departure.counts.values())
    for kind, named in departure.named.items():
        for one in named:
            assert one.after.leader != broker
            assert one.after.leader == NO_LEADER or one.after.leader in set(unfenced) - {broker}
            assert (one.after.leader == NO_LEADER) == (kind in ("offline", "already_offline"))
            assert kind != "offline" or one.before.leader != NO_LEADER
            assert kind != "already_offline" or one.before.leader == NO_LEADER
            assert kind == "unclean" or one.after.leader in (NO_LEADER, *one.before.isr)
            assert kind != "unclean" or allow_unclean
    if broker not in unfenced and not allow_unclean:  # the broker is fenced already
        assert not departure.counts["offline"]
