"""What partitions wait for."""

from uuid import UUID

import pytest

from ottla_broker.console.waiting_partitions import describe_waiting
from ottla_broker.metadata.records import PartitionRecord
from tests.unit.console.registrations import registration

BROKERS = {1: registration(1), 2: registration(2), 3: registration(3, fenced=True)}


@pytest.mark.parametrize(
    ("replicas", "isr", "leader", "adding", "removing", "problem", "waits_for"),
    [
        ((3,), (3,), -1, (), (), "no leader", "broker 3 to return, which has every acknowledged record"),
        (
            *((1,), (), -1, (), (), "no leader"),
            "an unclean election: no replica is known to have every acknowledged record",
        ),
        ((1, 2), (1,), 1, (), (), "not in sync: 2", "broker 2 to catch up"),
        ((1, 2, 3), (1,), 1, (), (), "not in sync: 2, 3", "broker 3 to return and broker 2 to catch up"),
        ((1, 9), (1,), 1, (), (), "not in sync: 9", "broker 9 to return"),
        ((1, 3, 9), (1,), 1, (), (), "not in sync: 3, 9", "brokers 3, 9 to return"),
        ((2, 1), (1,), 1, (2,), (1,), "reassigned to broker 2", "broker 2 to catch up"),
        ((2, 1), (1, 2), 1, (2,), (1,), "reassigned to broker 2", "the controller to end it"),
    ],
)
def test_waiting_partition_names_the_brokers_that_it_needs(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    leader: int,
    adding: tuple[int, ...],
    removing: tuple[int, ...],
    problem: str,
    waits_for: str,
) -> None:
    state = PartitionRecord(UUID(int=1), 4, replicas, isr, leader, adding=adding, removing=removing)
    shown = describe_waiting("t", state, BROKERS)
    assert (shown.topic, shown.partition, shown.problem, shown.waits_for) == ("t", 4, problem, waits_for)
