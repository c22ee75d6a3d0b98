"""Scaling up and down: every step from the observed state, until nothing is left to do."""

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


def partitions(broker_count: int, topics: dict[str, tuple[int, int]]) -> list[PartitionReplicas]:
    """`topics`: name → (partitions, replicas)."""
    return [
        PartitionReplicas(topic, index, replicas, replicas, replicas[0], 10)
        for topic, (count, factor) in topics.items()
        for index, replicas in enumerate(
            assign_replicas(count, factor, [UsableBroker(it) for it in range(1, broker_count + 1)])
        )
    ]


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3), st.integers(1, 9), st.booleans())
def test_scaling_ends_with_the_desired_brokers(
    before: int, after: int, factor: int, count: int, on_scale: bool
) -> None:
    found = partitions(before, {"own": (4, min(before, 3)), "a": (count, min(before, factor))})
    present, spread = set(range(1, before + 1)), frozenset(range(1, before + 1))
    desired = frozenset(range(1, after + 1))
    present |= desired
    original = found
    for _ in range(20):
        observed = ScaleInputs(
            desired,
            frozenset(present),
            tuple(map(UsableBroker, sorted(present))),
            found,
            0,
            spread,
            {"own": 3},
            on_scale,
        )
        match next_scale_step(observed):
            case MovePartitions(moves):
                assert moves
                found = apply_moves(found, moves)
            case RemoveBroker(broker):
                assert broker not in desired and broker == max(present), "a StatefulSet removes only its last pod"
                assert not any(broker in it.replicas for it in found)
                present.remove(broker)
            case RecordSpread(brokers):
                spread = brokers
            case ScalingBlocked(reason):
                assert after < min(before, factor)
                assert "as many brokers; without" in reason
                assert present > desired
                assert found == original, "a scaling that cannot be completed was started"
                return
            case ScalingComplete():
                break
            case WaitToScale(reason):
                raise AssertionError(reason)
    assert present == desired == spread
    assert {len(it.replicas) for it in found if it.topic == "own"} == {
        min(3, after) if after < min(before, 3) or after > before else min(before, 3)
    }
    if on_scale and after != before:
        for counts in (
            [sum(it in at.replicas for at in found) for it in desired],
            [sum(it == at.replicas[0] for at in found) for it in desired],
        ):
            assert max(counts) - min(counts) <= 1


def inputs(**more: object) -> ScaleInputs:
    """A cluster of three brokers that has its desired size, with these changes."""
    found = partitions(3, {"a": (3, 2)})
    fields = {
        "desired": frozenset({1, 2, 3}),
        "present": frozenset({1, 2, 3}),
        "available": (UsableBroker(1), UsableBroker(2), UsableBroker(3)),
        "partitions": found,
        "moving": 0,
        "spread_over": frozenset({1, 2, 3}),
        "replication_factors": {},
    }
    return ScaleInputs(**(fields | more))  # type: ignore[arg-type]


def test_a_cluster_of_the_desired_size_is_complete() -> None:
    assert next_scale_step(inputs()) == ScalingComplete()
    assert next_scale_step(inputs(moving=3, available=(UsableBroker(1),))) == ScalingComplete()


def test_a_first_start_moves_nothing() -> None:
    assert next_scale_step(inputs(spread_over=frozenset())) == RecordSpread(frozenset({1, 2, 3}))


def test_scaling_waits_for_missing_brokers_and_other_moves() -> None:
    smaller = inputs(desired=frozenset({1, 2}), available=(UsableBroker(1), UsableBroker(3)))
    assert next_scale_step(smaller) == WaitToScale("waiting for broker 2")
    assert next_scale_step(inputs(desired=frozenset({1, 2}), moving=2)) == WaitToScale("2 partitions being reassigned")


def test_a_broker_that_is_down_is_drained_too() -> None:
    step = next_scale_step(inputs(desired=frozenset({1, 2}), available=(UsableBroker(1), UsableBroker(2))))
    assert isinstance(step, MovePartitions)
    assert step.reason == "off broker 3"
    assert all(3 not in it.after for it in step.moves)


def test_the_highest_broker_is_removed_first() -> None:
    found = [PartitionReplicas("a", 0, (3,), (3,), 3)]
    smaller = {"desired": frozenset({1}), "partitions": found}
    step = next_scale_step(inputs(**smaller))
    assert isinstance(step, MovePartitions) and [it.after for it in step.moves] == [(1,)]
    assert next_scale_step(inputs(**smaller | {"partitions": apply_moves(found, step.moves)})) == RemoveBroker(3)


def test_internal_topics_are_not_changed_while_others_block_the_scaling() -> None:
    found = partitions(3, {"own": (2, 3), "a": (1, 3)})
    step = next_scale_step(inputs(desired=frozenset({1, 2}), partitions=found, replication_factors={"own": 2}))
    assert isinstance(step, ScalingBlocked) and "a-0 has 3 replicas" in step.reason


def test_the_next_broker_is_removed_once_the_removed_one_is_no_voter() -> None:
    found = [PartitionReplicas("a", 0, (1,), (1,), 1)]
    smaller = {"desired": frozenset({1}), "partitions": found}
    assert next_scale_step(inputs(**smaller, voters=frozenset({1, 2, 3}))) == RemoveBroker(3)
    two = {"present": frozenset({1, 2}), "available": (UsableBroker(1), UsableBroker(2))}
    assert next_scale_step(inputs(**smaller, **two, voters=frozenset({1, 2, 3}))) == WaitToScale(
        "waiting for the metadata log to drop removed broker 3 as a voter"
    )
    assert next_scale_step(inputs(**smaller, **two, voters=frozenset({1}))) == RemoveBroker(2)
