"""Restarts of brokers, as the overview describes them."""

import asyncio
from collections.abc import Mapping
from uuid import UUID

import pytest

from ottla_broker.console.broker_history import BrokerHistory
from ottla_broker.console.partition_census import MAX_NAMED, PartitionCensus, take_census
from ottla_broker.console.restarts import MAX_BLOCKERS, RECENT_S, Restart, describe_restarts, describe_roll
from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.wire.roll_report import RollBlocker, RollReport
from tests.unit.console.registrations import registration

TOPIC = UUID(int=7)
ALL_IN_SYNC = [PartitionRecord(TOPIC, index, (1, 2), (1, 2), 2) for index in range(3)]
WITHOUT_2 = [PartitionRecord(TOPIC, index, (1, 2), (1,), 1) for index in range(3)]


def census_of(states: list[PartitionRecord]) -> PartitionCensus:
    image = MetadataImage()
    image.topics["t"] = TopicImage("t", TOPIC, {one.partition: one for one in states})
    return asyncio.run(take_census(image, lambda _: 1))


def describe(
    history: BrokerHistory, states: list[PartitionRecord], now_s: float, bytes_behind: Mapping[int, int] | None = None
) -> list[Restart]:
    return describe_restarts([1, 2], history, census_of(states), bytes_behind or {}, now_s)


def test_a_restart_is_described_from_its_shutdown_until_all_replicas_are_in_sync() -> None:
    history, other = BrokerHistory(), registration(1)
    history.observe([other, registration(2, 5)], 0)
    assert describe(history, ALL_IN_SYNC, 1) == []
    history.observe([other, registration(2, 5, shutting_down=True)], 2)
    assert describe(history, ALL_IN_SYNC, 3) == [
        Restart(2, "shutting down", 1, "3 partitions to get another leader"),
    ]
    assert describe(history, WITHOUT_2, 3) == [Restart(2, "shutting down", 1, "its process to end")]
    history.observe([other, registration(2, 5, fenced=True, shutting_down=True)], 4)
    assert describe(history, WITHOUT_2, 6) == [Restart(2, "stopped", 2, "its process to start again")]
    history.observe([other, registration(2, 9, fenced=True)], 7)
    assert describe(history, WITHOUT_2, 8) == [
        Restart(2, "starting", 1, "its process to read the metadata log to the end")
    ]
    history.observe([other, registration(2, 9)], 9)
    assert describe(history, WITHOUT_2, 10, {2: 3 << 20}) == [
        Restart(2, "restarted", 1, "3 partitions to catch up, 3.0 MiB behind")
    ]
    assert describe(history, WITHOUT_2[:1] + ALL_IN_SYNC[1:], 10) == [
        Restart(2, "restarted", 1, "1 partition to catch up")
    ]
    history.observe([other, registration(2, 9)], 11)
    assert describe(history, ALL_IN_SYNC, 11) == [Restart(2, "restarted", 2, "nothing: all its replicas are in sync")]
    assert describe(history, ALL_IN_SYNC, 9 + RECENT_S) == []


def test_a_broker_that_joins_the_cluster_has_not_restarted() -> None:
    history, other = BrokerHistory(), registration(1)
    history.observe([other], 0)
    history.observe([other, registration(2, 5, fenced=True)], 1)
    assert [it.state for it in describe(history, ALL_IN_SYNC, 2)] == ["starting"]
    history.observe([other, registration(2, 5)], 3)
    assert describe(history, ALL_IN_SYNC, 4) == []


def test_a_lost_broker_is_described_as_fenced_and_not_as_restarting() -> None:
    history = BrokerHistory()
    history.observe([registration(2, 5)], 0)
    history.observe([registration(2, 5, fenced=True)], 30)
    (lost,) = describe_restarts([2], history, census_of(WITHOUT_2), {}, 40)
    assert (lost.state, lost.age_s) == ("fenced", 10)
    assert "does not run, or does not reach the controller" in lost.waits_for


def test_a_restart_between_two_observations_is_seen_by_the_epoch() -> None:
    history = BrokerHistory()
    for epoch, at_s in ((5, 0.0), (9, 10.0), (12, 20.0)):
        history.observe([registration(2, epoch)], at_s)
    assert history.phase(2).since_s == 20


def test_times_from_before_the_first_observation_are_unknown() -> None:
    history = BrokerHistory()
    history.observe([], 0)
    history.observe([registration(2, 5, fenced=True)], 1)
    assert (history.phase(2).state, history.phase(2).since_s) == ("fenced", None)
    history.observe([registration(2, 5, fenced=True), registration(3, 7, fenced=True)], 2)
    assert (history.phase(3).state, history.phase(3).since_s) == ("starting", 2)
    assert history.phase(77).state == "fenced"


def test_replicas_that_a_reassignment_adds_are_not_behind() -> None:
    adding = [PartitionRecord(TOPIC, index, (1, 2), (1,), 1, adding=(2,)) for index in range(3)]
    assert census_of(adding).behind == {}
    many = [PartitionRecord(TOPIC, index, (1, 2), (1,), 1) for index in range(MAX_NAMED + 5)]
    census = census_of(many)
    assert census.behind == {2: MAX_NAMED + 5}
    assert len(census.behind_named[2]) == MAX_NAMED


BLOCKER = RollBlocker(2, "orders", 3, (2,), 1)


@pytest.mark.parametrize(
    ("report", "sentences"),
    [
        (
            RollReport((1, 3), "settings num.partitions", (2,)),
            [
                "Brokers 1, 3 still to be restarted: settings num.partitions.",
                "The next step waits for broker 2 to serve again.",
            ],
        ),
        (
            RollReport((2,), "image", blocked_by=(BLOCKER,)),
            [
                "Broker 2 still to be restarted: image.",
                "Broker 2 waits for orders-3, which needs one other replica in sync; in sync: 2.",
            ],
        ),
        (
            RollReport((2,), "image", blocked_by=(RollBlocker(2, "secret", 0, (), 2),)),
            [
                "Broker 2 still to be restarted: image.",
                "Broker 2 waits for a partition that you may not describe, which needs 2 other replicas in sync; "
                "in sync: no broker.",
            ],
        ),
        (
            RollReport(waits_for=(3,)),
            ["Every broker has been restarted.", "The next step waits for broker 3 to serve again."],
        ),
    ],
)
def test_a_roll_is_described_in_sentences(report: RollReport, sentences: list[str]) -> None:
    assert list(describe_roll(report, lambda topic: topic != "secret")) == sentences


def test_a_roll_that_waits_for_many_partitions_names_the_first() -> None:
    named = list(describe_roll(RollReport((2,), "image", blocked_by=(BLOCKER,) * 25), lambda _: True))
    assert len(named) == MAX_BLOCKERS + 2
    assert named[-1] == "15 more partitions hold it up."
    *_, last = describe_roll(RollReport((2,), "image", blocked_by=(BLOCKER,) * (MAX_BLOCKERS + 1)), lambda _: True)
    assert last == "1 more partition holds it up."
