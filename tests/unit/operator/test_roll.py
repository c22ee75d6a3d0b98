"""Rolling restarts: searched by hypothesis against a model of a cluster."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.roll import (
    Blocker,
    BrokerState,
    PartitionState,
    RestartBroker,
    RollBlocked,
    RollComplete,
    find_blockers,
    metadata_log_state,
    next_roll_step,
    step_without_partitions,
)

IDS = [1, 2, 3, 4]


@dataclass
class Model:
    """Brokers that return at once or never, and replicas that catch up when the test lets them."""

    ready: set[int]
    outdated: set[int]
    partitions: list[PartitionState]
    broken: set[int] = field(default_factory=set)

    def states(self) -> list[BrokerState]:
        return [BrokerState(it, it in self.ready, "new settings" if it in self.outdated else "") for it in IDS]

    def heal(self) -> None:
        """Replicas of ready brokers catch up."""
        self.partitions = [
            PartitionState(
                it.topic,
                it.partition,
                it.replicas,
                tuple(dict.fromkeys([*it.isr, *(at for at in it.replicas if at in self.ready)])),
                it.min_isr,
            )
            for it in self.partitions
        ]

    def restart(self, broker: int) -> None:
        """The broker leaves the ISRs, and returns at once unless it is broken."""
        self.outdated.discard(broker)
        self.ready.discard(broker)
        self.partitions = [
            PartitionState(
                it.topic,
                it.partition,
                it.replicas,
                tuple(at for at in it.isr if at != broker) or it.isr,
                it.min_isr,
            )
            for it in self.partitions
        ]
        if broker not in self.broken:
            self.ready.add(broker)


@st.composite
def models(draw: st.DrawFn) -> Model:
    partitions = []
    for index in range(draw(st.integers(0, 6))):
        replicas = draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True))
        isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
        partitions.append(PartitionState("t", index, tuple(replicas), tuple(isr), draw(st.integers(1, 3))))
    some = st.sets(st.sampled_from(IDS))
    return Model(set(IDS) - draw(some), draw(some), partitions)


def writable_partitions(partitions: list[PartitionState]) -> set[int]:
    """Partitions that are writable and can lose a replica."""
    return {it.partition for it in partitions if len(it.isr) >= it.min_isr and len(it.replicas) > it.min_isr}


@given(models(), st.sampled_from([*IDS, None]), st.data())
def test_no_partition_becomes_read_only_and_the_roll_ends(
    model: Model, controller: int | None, data: st.DataObject
) -> None:
    for _ in range(100):
        before = writable_partitions(model.partitions)
        was_ready = set(model.ready)
        match next_roll_step(model.states(), model.partitions, controller):
            case RollComplete():
                assert not model.outdated
                return
            case RestartBroker(broker):
                assert broker in model.outdated
                pending = model.outdated & model.ready
                if broker in was_ready:
                    assert was_ready == set(IDS), "a ready broker was restarted while another was down"
                    if broker == controller:
                        assert all(find_blockers(it, model.partitions) for it in pending - {broker})
                model.restart(broker)
                if broker in was_ready:
                    assert before <= writable_partitions(model.partitions)
            case RollBlocked():
                model.ready |= set(IDS) - model.broken
                model.heal()
        if data.draw(st.booleans()):
            model.heal()
    raise AssertionError("the roll does not end")


def served_partitions(partitions: list[PartitionState], up: set[int]) -> set[int]:
    """Partitions that are writable by replicas that are in sync and up, and can lose one."""
    return writable_partitions([replace(it, isr=tuple(at for at in it.isr if at in up)) for it in partitions])


@given(models(), st.integers(1, 4), st.sets(st.sampled_from(IDS)), st.sampled_from([*IDS, None]))
def test_a_broker_that_is_down_does_not_count_though_isrs_still_have_it(
    model: Model, at_once: int, unready: set[int], controller: int | None
) -> None:
    """Brokers that restart stay in the reported ISRs; some that are in sync are reported
    unready.
    """
    up, outdated = set(IDS), model.outdated
    for _ in IDS:
        states = [BrokerState(it, it in up - unready, "new" if it in outdated else "", it in up) for it in IDS]
        step = next_roll_step(states, model.partitions, controller, at_once)
        if not isinstance(step, RestartBroker):
            return
        before = served_partitions(model.partitions, up)
        up.discard(step.broker)
        outdated.discard(step.broker)
        assert before <= served_partitions(model.partitions, up)


@given(models(), st.sampled_from(IDS))
def test_a_broker_that_does_not_return_stops_the_roll(model: Model, broken: int) -> None:
    model.broken = {broken}
    model.ready, model.outdated = set(IDS), set(IDS)
    restarted = []
    for _ in range(20):
        model.heal()
        step = next_roll_step(model.states(), model.partitions, None)
        if isinstance(step, RestartBroker):
            restarted.append(step.broker)
            model.restart(step.broker)
        elif broken not in model.ready:
            assert step == (RollBlocked(down=(broken,)) if model.outdated else RollComplete())
            assert restarted[-1] == broken
            return
    raise AssertionError("the roll went on")


def test_a_blocker_names_its_partition() -> None:
    lagging = PartitionState("orders", 3, (1, 2, 3), (1, 2), 2)
    brokers = [BrokerState(it, True, "new settings" if it == 1 else "") for it in (1, 2, 3)]
    step = next_roll_step(brokers, [lagging], 3)
    assert step == RollBlocked(blocked_by=(Blocker(1, "orders", 3, (1, 2), 2),))
    assert str(step.blocked_by[0]) == "orders-3 has 1, 2 in sync and needs 2 besides broker 1"


def test_partitions_that_can_never_spare_a_replica_block_nothing() -> None:
    alone = PartitionState("a", 0, (1,), (1,), 1)
    strict = PartitionState("b", 0, (1, 2), (1, 2), 2)
    assert not find_blockers(1, [alone, strict])
    assert find_blockers(1, [PartitionState("b", 0, (1, 2), (1,), 2)])  # no replica in sync would be left


def test_the_controller_is_restarted_last() -> None:
    brokers = [BrokerState(it, True, "new settings") for it in (1, 2, 3)]
    assert next_roll_step(brokers, [], 1) == RestartBroker(2, "new settings")


def test_max_unavailable_allows_several_brokers_to_be_down_once_one_serves_with_the_new_settings() -> None:
    first_is_down = [BrokerState(1, False, ""), BrokerState(2, True, "x"), BrokerState(3, True, "x")]
    assert next_roll_step(first_is_down, [], None, max_unavailable=2) == RollBlocked(down=(1,))
    second_is_down = [BrokerState(1, True, ""), BrokerState(2, False, ""), BrokerState(3, True, "x")]
    assert next_roll_step(second_is_down, [], None, max_unavailable=2) == RestartBroker(3, "x")
    assert next_roll_step(second_is_down, [], None, max_unavailable=1) == RollBlocked(down=(2,))


def test_an_unready_broker_that_is_in_sync_is_restarted_if_it_can_be_spared() -> None:
    slow = BrokerState(2, False, "new settings", is_registered=True)
    partition = PartitionState("orders", 0, (1, 2, 3), (1, 2, 3), 2)
    assert next_roll_step([BrokerState(1, True, ""), slow, BrokerState(3, True, "")], [partition], 2) == RestartBroker(
        2, "new settings"
    )
    assert next_roll_step(
        [BrokerState(1, False, ""), slow, BrokerState(3, True, "")], [partition], None
    ) == RollBlocked((1, 2), (Blocker(2, "orders", 0, (2, 3), 2),))


def test_some_steps_do_not_depend_on_partitions() -> None:
    assert step_without_partitions([BrokerState(1, True, "")]) == RollComplete()
    assert step_without_partitions([BrokerState(1, False, "new settings"), BrokerState(2, True, "")]) == RestartBroker(
        1, "new settings"
    )
    assert step_without_partitions([BrokerState(1, False, ""), BrokerState(2, True, "new settings")]) == RollBlocked(
        down=(1,)
    )
    assert step_without_partitions([BrokerState(1, True, ""), BrokerState(2, True, "new settings")]) is None


@pytest.mark.parametrize(
    ("voters", "in_sync", "needed"),
    [
        ([1], [1], []),  # the only one: there is no controller for as long as a restart takes
        ([1, 2], [1, 2], []),
        ([1, 2], [1], [1]),
        ([1, 2, 3], [1, 2, 3], []),
        ([1, 2, 3], [1, 3], [1, 3]),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4], []),
        ([1, 2, 3, 4, 5], [1, 2, 3], [1, 2, 3]),
    ],
)
def test_the_metadata_log_keeps_its_majority(voters: list[int], in_sync: list[int], needed: list[int]) -> None:
    log = metadata_log_state("__cluster_metadata", voters, in_sync)
    assert [it for it in range(1, 7) if find_blockers(it, [log])] == needed


def test_the_metadata_log_may_block_a_restart() -> None:
    brokers = [BrokerState(1, True, "new settings"), BrokerState(2, True, "")]
    step = next_roll_step(brokers, [metadata_log_state("__cluster_metadata", [1, 2], [1])], 1)
    assert isinstance(step, RollBlocked)
    assert list(map(str, step.blocked_by)) == ["__cluster_metadata-0 has 1 in sync and needs 1 besides broker 1"]
