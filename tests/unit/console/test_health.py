"""The sentence of the overview, and the problems below it."""

import asyncio
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.health import assess_health
from ottla_broker.console.partition_census import MAX_NAMED, take_census
from ottla_broker.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from ottla_broker.metadata.records import PartitionRecord
from tests.unit.console.registrations import registration

TOPIC = UUID(int=7)


def image_of(*states: PartitionRecord, name: str = "t") -> MetadataImage:
    image = MetadataImage()
    image.topics[name] = TopicImage(name, TOPIC, {one.partition: one for one in states})
    return image


def partition(
    index: int, replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, adding: tuple[int, ...] = ()
) -> PartitionRecord:
    return PartitionRecord(TOPIC, index, replicas, isr, leader, adding=adding)


def assess(image: MetadataImage, *brokers: BrokerRegistration, controller: int = 1, min_insync: int = 1) -> list[str]:
    census = asyncio.run(take_census(image, lambda _: min_insync))
    health = assess_health(brokers or (registration(1),), controller, census)
    return [health.state, health.sentence, *(one.sentence for one in health.problems)]


def test_healthy_cluster_is_one_sentence() -> None:
    state, sentence = assess(image_of(partition(0, (1,), (1,), 1)))
    assert state == "ok"
    assert sentence == "All is well: one broker, every partition has a leader and all its replicas."


def test_partition_without_a_leader_is_an_error() -> None:
    state, sentence, problem = assess(image_of(partition(0, (1,), (1,), -1), partition(1, (1,), (1,), 1)))
    assert state == "error"
    assert problem == "One partition has no leader: nothing is read or written there."
    assert problem in sentence


def test_too_few_replicas_for_acks_all_is_an_error_and_fewer_than_all_a_warning() -> None:
    image = image_of(partition(0, (1, 2), (1,), 1))
    assert assess(image, min_insync=2)[0] == "error"
    state, sentence, problem = assess(image, min_insync=1)
    assert state == "warning"
    assert sentence == "Everything is served, but one partition has replicas that are not in sync."
    assert problem == "One partition has replicas that are not in sync."


def test_replicas_that_are_being_added_are_no_problem() -> None:
    assert assess(image_of(partition(0, (1, 2), (1,), 1, adding=(2,))))[0] == "ok"


def test_fenced_brokers_are_named_and_a_missing_controller_is_an_error() -> None:
    image = image_of(partition(0, (1,), (1,), 1))
    fenced = assess(image, registration(1), registration(2, fenced=True), registration(3, fenced=True))
    assert fenced[2:] == ["Brokers 2, 3 are fenced."]
    assert assess(image, controller=-1)[0] == "error"


@given(
    st.lists(
        st.tuples(st.sampled_from([-1, 1]), st.sampled_from([(1,), (1, 2)]), st.booleans()), min_size=1, max_size=120
    )
)
def test_counts_hold_every_partition_once(states: list[tuple[int, tuple[int, ...], bool]]) -> None:
    records = [
        partition(index, (1, 2), isr, leader, adding=(2,) if adding else ())
        for index, (leader, isr, adding) in enumerate(states)
    ]
    census = asyncio.run(take_census(image_of(*records), lambda _: 1))
    assert census.partitions == len(records)
    assert census.counts["offline"] == sum(one.leader == -1 for one in records)
    under_replicated_ones = [one for one in records if one.leader != -1 and len(one.isr) < 2 and not one.adding]
    assert census.counts["under_replicated"] == len(under_replicated_ones)
    assert len(census.under_replicated) == min(MAX_NAMED, len(under_replicated_ones))
    assert census.leaders[1] == sum(one.leader == 1 for one in records)
    assert census.replicas[2] == len(records)
