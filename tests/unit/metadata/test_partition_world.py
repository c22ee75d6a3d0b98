"""Rules 1, 3, 4, 5 and 12 together, on a model of a partition."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.metadata.broker_plans import election_candidates
from ottla_broker.metadata.election import elect_unclean_leader
from ottla_broker.metadata.records import NO_LEADER
from tests.unit.metadata.partition_world import PartitionWorld

BROKERS = 4
broker_ids = st.integers(0, BROKERS - 1)
Step = Callable[[PartitionWorld], None]

steps: st.SearchStrategy[Step] = st.one_of(
    broker_ids.map(lambda b: lambda w: w.produce(b)),
    broker_ids.map(lambda b: lambda w: w.fetch(b)),
    broker_ids.map(lambda b: lambda w: w.read_metadata(b)),
    st.just(lambda w: [w.read_metadata(b) for b in range(BROKERS)]),
    st.just(lambda w: [w.fetch(b) for b in range(BROKERS)]),
    st.just(lambda w: [w.produce(b) for b in range(BROKERS)]),
    st.tuples(broker_ids, st.integers(-1, BROKERS - 1)).map(lambda s: lambda w: w.propose(*s)),
    st.tuples(broker_ids, st.booleans()).map(lambda s: lambda w: w.deliver(s[0], duplicate=s[1])),
    broker_ids.map(lambda b: lambda w: w.kill(b)),
    broker_ids.map(lambda b: lambda w: w.start(b)),
    broker_ids.map(lambda b: lambda w: w.restart(b)),
    broker_ids.map(lambda b: lambda w: w.fence(b)),
    broker_ids.map(lambda b: lambda w: w.send_heartbeat(b)),
    broker_ids.map(lambda b: lambda w: w.shut_down(b)),
    st.tuples(broker_ids, st.integers(0, 3)).map(lambda s: lambda w: w.lose_power(*s)),
    broker_ids.map(lambda b: lambda w: w.wipe(b)),
    st.lists(broker_ids, min_size=1, max_size=3, unique=True).map(lambda t: lambda w: w.reassign(t)),
    st.just(lambda w: w.cancel()),
    st.just(lambda w: w.elect_preferred()),
)


@given(st.integers(1, 3), st.integers(1, 3), st.booleans(), st.lists(steps, max_size=80))
@settings(max_examples=300, deadline=None)
def test_an_elected_leader_has_every_acknowledged_record(
    min_insync: int, initial_isr_size: int, synced: bool, events: list[Step]
) -> None:
    world = PartitionWorld(BROKERS, (0, 1, 2), min_insync, synced=synced, initial_isr_size=initial_isr_size)
    for step in events:
        step(world)
        world.check()


def test_a_replica_that_lost_power_leads_when_the_last_trusted_one_has_lost_its_disk() -> None:
    world = PartitionWorld(3, (0, 1, 2), 2, synced=True)
    for broker in range(3):
        world.read_metadata(broker)
    world.produce(0)
    world.fetch(1)
    world.fetch(2)
    assert len(world.acknowledged) == 1
    world.wipe(0)
    for broker in (1, 2):
        world.lose_power(broker, keeps=9)
        world.start(broker)
    world.start(0)
    for broker in range(3):
        world.send_heartbeat(broker)
    assert world.state.leader in (1, 2)
    world.check()


def test_without_synced_records_an_administrator_has_to_elect_from_the_last_known_replicas() -> None:
    world = PartitionWorld(3, (0, 1, 2), 3)
    for broker in (1, 2):
        world.lose_power(broker, keeps=0)
        world.start(broker)
    world.losses = 0  # allows one loss more than the topic tolerates
    world.wipe(0)
    world.start(0)
    for broker in range(3):
        world.send_heartbeat(broker)
    assert (world.state.leader, world.state.isr, world.state.last_known) == (NO_LEADER, (), (1, 2))
    chosen = elect_unclean_leader(world.state, election_candidates(world.image), world.rules)
    assert chosen is not None
    assert (chosen.leader, chosen.isr) == (1, (1,))


def test_an_unclean_election_prefers_a_replica_with_records_to_an_emptied_one() -> None:
    world = PartitionWorld(3, (0, 1, 2), 1)
    world.kill(2)
    world.fence(2)
    world.kill(1)
    world.fence(1)
    world.losses = -2  # allows one loss more than the topic tolerates
    world.wipe(0)
    world.start(0)
    world.send_heartbeat(0)
    assert (world.state.leader, world.state.isr, world.state.emptied) == (NO_LEADER, (), (0,))
    empty = elect_unclean_leader(world.state, election_candidates(world.image), world.rules)
    assert empty is not None and empty.leader == 0, "no other replica runs"
    world.start(1)
    world.send_heartbeat(1)
    chosen = elect_unclean_leader(world.state, election_candidates(world.image), world.rules)
    assert chosen is not None
    assert (chosen.leader, chosen.isr, chosen.emptied) == (1, (1,), (0,))


def test_a_replica_that_lost_power_and_fell_behind_since_is_not_elected() -> None:
    world = PartitionWorld(3, (0, 1, 2), 2, synced=True)
    world.lose_power(1, keeps=0)
    world.start(1)
    for broker in range(3):
        world.read_metadata(broker)
    world.produce(0)
    world.fetch(2)
    assert len(world.acknowledged) == 1, "the high watermark has moved without broker 1"
    world.wipe(0)
    world.lose_power(2, keeps=9)
    world.start(2)
    world.start(0)
    for broker in (1, 0):
        world.send_heartbeat(broker)
    assert world.state.leader == NO_LEADER
    world.send_heartbeat(2)
    assert world.state.leader == 2
    world.check()
