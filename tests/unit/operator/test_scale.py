"""More brokers, and fewer: every step from what is seen, until nothing is left to do."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metadata.placement import UsableBroker, assign_replicas
from ottla_operator.plan.moves import PartitionReplicas, apply_moves
from ottla_operator.plan.scale import (
    MovePartitions,
    RecordSpread,
    RemoveBroker,
    ScaleInputs,
    ScalingBlocked,
    ScalingComplete,
    WaitToScale,
    next_scale_step,
)


def partitions(brokers: int, topics: dict[str, tuple[int, int]]) -> list[PartitionReplicas]:
    """`topics`: name → (partitions, replicas)."""
    return [
        PartitionReplicas(topic, index, replicas, replicas, replicas[0], 10)
        for topic, (count, factor) in topics.items()
        for index, replicas in enumerate(
            assign_replicas(count, factor, [UsableBroker(it) for it in range(1, brokers + 1)])
        )
    ]


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3), st.integers(1, 9), st.booleans())
def test_it_ends_with_the_brokers_that_are_wanted(
    before: int, after: int, factor: int, count: int, on_scale: bool
) -> None:
    here = partitions(before, {"own": (4, min(before, 3)), "a": (count, min(before, factor))})
    present, spread = set(range(1, before + 1)), frozenset(range(1, before + 1))
    wanted = frozenset(range(1, after + 1))
    present |= wanted
    begun = here
    for _ in range(20):
        seen = ScaleInputs(
            wanted, frozenset(present), tuple(map(UsableBroker, sorted(present))), here, 0, spread, {"own": 3}, on_scale
        )
        match next_scale_step(seen):
            case MovePartitions(moves):
                assert moves
                here = apply_moves(here, moves)
            case RemoveBroker(broker):
                assert broker not in wanted and broker == max(present), (
                    "a StatefulSet lets its last pod go, and no other"
                )
                assert not any(broker in it.replicas for it in here)
                present.remove(broker)
            case RecordSpread(brokers):
                spread = brokers
            case ScalingBlocked(why):
                assert after < min(before, factor)
                assert "replicas, which need as many brokers" in why
                assert present > wanted
                assert here == begun, "what cannot be done to its end was begun"
                return
            case ScalingComplete():
                break
            case WaitToScale(why):
                raise AssertionError(why)
    assert present == wanted == spread
    assert {len(it.replicas) for it in here if it.topic == "own"} == {
        min(3, after) if after < min(before, 3) or after > before else min(before, 3)
    }
    if on_scale and after != before:
        for counts in (
            [sum(it in at.replicas for at in here) for it in wanted],
            [sum(it == at.replicas[0] for at in here) for it in wanted],
        ):
            assert max(counts) - min(counts) <= 1


def scale(**more: object) -> ScaleInputs:
    here = partitions(3, {"a": (3, 2)})
    given = {
        "desired": frozenset({1, 2, 3}), "present": frozenset({1, 2, 3}), "available": (UsableBroker(1), UsableBroker(2), UsableBroker(3)), "partitions": here,
        "moving": 0, "spread_over": frozenset({1, 2, 3}), "replication_factors": {},
    }  # fmt: skip
    return ScaleInputs(**(given | more))  # type: ignore[arg-type]


def test_nothing_to_do() -> None:
    assert next_scale_step(scale()) == ScalingComplete()
    assert (
        next_scale_step(scale(moving=3, available=(UsableBroker(1),))) == ScalingComplete()
    )  # somebody else's move, a broker that is away: not about brokers' number


def test_a_first_start_moves_nothing() -> None:
    assert next_scale_step(scale(spread_over=frozenset())) == RecordSpread(frozenset({1, 2, 3}))


def test_it_waits_for_what_comes_by_itself() -> None:
    smaller = scale(desired=frozenset({1, 2}), available=(UsableBroker(1), UsableBroker(3)))
    assert next_scale_step(smaller) == WaitToScale("broker 2 is not there yet")
    assert next_scale_step(scale(desired=frozenset({1, 2}), moving=2)) == WaitToScale("2 partitions are moving")


def test_a_broker_that_leaves_and_is_away_is_drained_all_the_same() -> None:
    step = next_scale_step(scale(desired=frozenset({1, 2}), available=(UsableBroker(1), UsableBroker(2))))
    assert isinstance(step, MovePartitions)
    assert step.reason == "off broker 3"
    assert all(3 not in it.after for it in step.moves)


def test_one_that_holds_nothing_waits_for_those_after_it() -> None:
    here = [PartitionReplicas("a", 0, (3,), (3,), 3)]
    smaller = {"desired": frozenset({1}), "partitions": here}
    step = next_scale_step(scale(**smaller))
    assert isinstance(step, MovePartitions) and [it.after for it in step.moves] == [(1,)]
    assert next_scale_step(scale(**smaller | {"partitions": apply_moves(here, step.moves)})) == RemoveBroker(3)


def test_the_brokers_own_topics_stay_as_they_are_where_others_are_in_the_way() -> None:
    here = partitions(3, {"own": (2, 3), "a": (1, 3)})
    step = next_scale_step(scale(desired=frozenset({1, 2}), partitions=here, replication_factors={"own": 2}))
    assert isinstance(step, ScalingBlocked) and "a-0 has 3 replicas" in step.reason


def test_the_next_goes_when_the_metadata_log_does_without_the_one_before() -> None:
    here = [PartitionReplicas("a", 0, (1,), (1,), 1)]
    smaller = {"desired": frozenset({1}), "partitions": here}
    assert next_scale_step(scale(**smaller, voters=frozenset({1, 2, 3}))) == RemoveBroker(3)
    two = {"present": frozenset({1, 2}), "available": (UsableBroker(1), UsableBroker(2))}
    assert next_scale_step(scale(**smaller, **two, voters=frozenset({1, 2, 3}))) == WaitToScale(
        "the metadata log still counts on broker 3, which was let go"
    )
    assert next_scale_step(scale(**smaller, **two, voters=frozenset({1, 2}))) == RemoveBroker(2)
