"""Rules 1, 3, 4, 5 and 12 together, on a model of everything that can happen to a partition."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.metadata.partition_world import World

BROKERS = 4
one = st.integers(0, BROKERS - 1)
Step = Callable[[World], None]

steps: st.SearchStrategy[Step] = st.one_of(
    one.map(lambda b: lambda w: w.produce(b)),
    one.map(lambda b: lambda w: w.fetch(b)),
    one.map(lambda b: lambda w: w.learn(b)),
    st.just(lambda w: [w.learn(b) for b in range(BROKERS)]),
    st.just(lambda w: [w.fetch(b) for b in range(BROKERS)]),
    st.just(lambda w: [w.produce(b) for b in range(BROKERS)]),
    st.tuples(one, st.integers(-1, BROKERS - 1)).map(lambda s: lambda w: w.propose(*s)),
    st.tuples(one, st.booleans()).map(lambda s: lambda w: w.deliver(s[0], again=s[1])),
    one.map(lambda b: lambda w: w.kill(b)),
    one.map(lambda b: lambda w: w.start(b)),
    one.map(lambda b: lambda w: w.restart(b)),
    one.map(lambda b: lambda w: w.fence(b)),
    one.map(lambda b: lambda w: w.hear(b)),
    one.map(lambda b: lambda w: w.leave(b)),
    st.tuples(one, st.integers(0, 3)).map(lambda s: lambda w: w.lose_power(*s)),
    one.map(lambda b: lambda w: w.wipe(b)),
    st.lists(one, min_size=1, max_size=3, unique=True).map(lambda t: lambda w: w.reassign(t)),
    st.just(lambda w: w.cancel()),
    st.just(lambda w: w.prefer()),
)


@given(st.integers(1, 3), st.integers(1, 3), st.lists(steps, max_size=80))
@settings(max_examples=200, deadline=None)
def test_whoever_is_made_leader_has_all_that_was_acknowledged(
    min_insync: int, began_with: int, happens: list[Step]
) -> None:
    world = World(BROKERS, (0, 1, 2), min_insync, began_with=began_with)
    for step in happens:
        step(world)
        world.check()
