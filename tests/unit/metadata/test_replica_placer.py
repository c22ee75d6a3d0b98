"""Placement of replicas over many topics, and the partition index of the image."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.partition_index import PartitionIndex
from ottla_broker.metadata.records import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from ottla_broker.metadata.replica_placer import ReplicaPlacer
from ottla_broker.metadata.topic_plans import NewTopic, TopicPlanner, plan_partition_growth, plan_topic_deletion
from ottla_broker.wire.errors import ErrorCode, KafkaError


def apply(image: MetadataImage, records: list[MetadataRecord]) -> None:
    image.apply_records((image.end_offset + n, record) for n, record in enumerate(records))


def cluster(brokers: int, racks: int = 1, fenced: tuple[int, ...] = (), workers: int = 1) -> MetadataImage:
    """`workers`: brokers on each node."""
    image = MetadataImage()
    for broker in range(brokers):
        registration = RegisterBrokerRecord(
            broker,
            UUID(int=broker),
            {"P": Endpoint("h", 1)},
            rack=f"r{broker % racks}",
            directories=(UUID(int=broker),),
            node=f"n{broker // workers}",
        )
        apply(image, [registration])
        apply(image, [BrokerRegistrationChangeRecord(broker, image.brokers[broker].epoch, fenced=broker in fenced)])
    return image


def count_leaders_and_replicas(image: MetadataImage) -> tuple[Counter[int], Counter[int]]:
    states = [state for topic in image.topics.values() for state in topic.partitions.values()]
    return Counter(state.leader for state in states), Counter(b for state in states for b in state.replicas)


@pytest.mark.parametrize(("brokers", "racks"), [(3, 1), (3, 3), (4, 2), (5, 1), (6, 3), (7, 1)])
@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_leaders_and_replicas_stay_even_over_many_topics(brokers: int, racks: int, partitions: int) -> None:
    image = cluster(brokers, racks)
    for number in range(60):
        apply(image, TopicPlanner(image).plan_creation(NewTopic(f"t{number}", partitions, 3), UUID(int=1000 + number)))
    leaders, replicas = count_leaders_and_replicas(image)
    assert max(leaders.values()) - min(leaders.values()) <= 2
    assert max(replicas.values()) - min(replicas.values()) <= max(4, 60 * partitions * 3 // brokers // 10)


@pytest.mark.parametrize("partitions", [1, 7])
def test_workers_of_one_node_share_no_partition_and_stay_even_over_many_topics(partitions: int) -> None:
    image = cluster(12, workers=4)
    for number in range(60):
        apply(image, TopicPlanner(image).plan_creation(NewTopic(f"t{number}", partitions, 3), UUID(int=1000 + number)))
    for topic in image.topics.values():
        for state in topic.partitions.values():
            assert {broker // 4 for broker in state.replicas} == {0, 1, 2}
    leaders, replicas = count_leaders_and_replicas(image)
    assert max(leaders.values()) - min(leaders.values()) <= 2
    assert max(replicas.values()) - min(replicas.values()) <= max(4, 60 * partitions * 3 // 12 // 10)


def test_topics_of_one_request_are_spread_as_evenly_as_single_ones() -> None:
    image = cluster(3)
    planner = TopicPlanner(image)
    for number in range(30):
        apply(image, planner.plan_creation(NewTopic(f"t{number}", 1, 2), UUID(int=1000 + number)))
    leaders, replicas = count_leaders_and_replicas(image)
    assert set(leaders.values()) == {10}
    assert max(replicas.values()) - min(replicas.values()) <= 2


def test_topic_names_of_one_request_collide_with_each_other() -> None:
    planner = TopicPlanner(cluster(1))
    planner.plan_creation(NewTopic("a.b", 1, 1), UUID(int=1))
    for name, code in (("a_b", ErrorCode.invalid_topic_exception), ("a.b", ErrorCode.topic_already_exists)):
        with pytest.raises(KafkaError) as caught:
            planner.plan_creation(NewTopic(name, 1, 1), UUID(int=2))
        assert caught.value.code is code


def test_fenced_brokers_get_replicas_only_where_unfenced_ones_are_too_few() -> None:
    image = cluster(4, fenced=(2, 3))
    apply(image, TopicPlanner(image).plan_creation(NewTopic("enough", 4, 2), UUID(int=100)))
    assert {b for s in image.topics["enough"].partitions.values() for b in s.replicas} == {0, 1}
    apply(image, TopicPlanner(image).plan_creation(NewTopic("few", 4, 3), UUID(int=101)))
    for state in image.topics["few"].partitions.values():
        assert set(state.isr) == {0, 1}
        assert state.leader in (0, 1)
        assert len(state.replicas) == 3
    assert {s.replicas[2] for s in image.topics["few"].partitions.values()} == {2, 3}
    with pytest.raises(KafkaError, match="between 1 and the 4 registered brokers"):
        TopicPlanner(image).plan_creation(NewTopic("many", 1, 5), UUID(int=102))


def test_a_topic_is_refused_while_every_broker_is_fenced() -> None:
    with pytest.raises(KafkaError, match="every registered broker is fenced"):
        ReplicaPlacer(cluster(2, fenced=(0, 1))).place_partitions(1, 1)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 3)), max_size=25))
@settings(max_examples=100, deadline=None)
def test_the_partition_index_equals_a_full_count_however_slowly_it_is_built(
    operations: list[tuple[int, int, int]],
) -> None:
    """Topics change before, while and after steps add them to the index."""
    image = cluster(3)
    for operation, number, factor in operations:
        name = f"t{number}"
        if operation == 0 and name not in image.topics:
            apply(image, TopicPlanner(image).plan_creation(NewTopic(name, number, factor), UUID(int=number)))
        elif operation == 1 and name in image.topics:
            apply(image, plan_topic_deletion(image, name))
        elif operation == 2 and name in image.topics:
            apply(image, plan_partition_growth(image, name, len(image.topics[name].partitions) + 1, None))
        elif operation == 3 and name in image.topics:
            state = image.topics[name].partitions[0]
            eligible = () if factor > 1 else (0,)
            changed = PartitionRecord(state.topic, 0, (factor - 1,), (factor - 1,), -1, eligible=eligible, adding=(9,))
            apply(image, [changed])
        elif operation == 4:
            image.index_partitions(number)
    expected = PartitionIndex()
    for topic in image.topics.values():
        for state in topic.partitions.values():
            expected.update(None, state)
    index = image.partition_index
    assert +index.leader_counts == +expected.leader_counts
    assert +index.directory_counts == +expected.directory_counts
    assert +index.replica_counts() == +expected.replica_counts()
    assert index.not_led_by_preferred == expected.not_led_by_preferred
    assert index.with_eligible_replicas == expected.with_eligible_replicas
    assert index.reassigning == expected.reassigning
    for broker in range(3):
        found = {(state.topic, state.partition) for state in image.partitions_on_broker(broker)}
        assert found == set(expected.partitions_on(broker))
