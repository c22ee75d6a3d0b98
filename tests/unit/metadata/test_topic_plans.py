from uuid import UUID

import pytest

from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    decode_record,
    encode_record,
)
from ottla_broker.metadata.topic_plans import NewTopic, TopicPlanner, plan_partition_growth, plan_topic_deletion
from ottla_broker.wire.errors import ErrorCode, KafkaError

ID = UUID(int=7)


def cluster(brokers: int = 3) -> MetadataImage:
    image = MetadataImage()
    for broker in range(1, brokers + 1):
        follow(image, [RegisterBrokerRecord(broker, UUID(int=broker), {}, directories=(UUID(int=100 + broker),))])
        follow(image, [BrokerRegistrationChangeRecord(broker, image.brokers[broker].epoch, fenced=False)])
    return image


def follow(image: MetadataImage, records: list[MetadataRecord]) -> MetadataDelta:
    """Applies records as a broker would: written and read back."""
    return image.apply_records(
        [(image.end_offset + n, decode_record(encode_record(record))) for n, record in enumerate(records)]
    )


def refusal(image: MetadataImage, topic: NewTopic) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        TopicPlanner(image).plan_creation(topic, ID)
    return caught.value


def test_a_topic_is_created_grown_and_removed() -> None:
    image = cluster()
    changes = follow(
        image, TopicPlanner(image).plan_creation(NewTopic("flights", 4, 2, config={"retention.ms": "5"}), ID)
    )
    assert changes.created_topics == ["flights"]
    assert changes.changed_partitions == {("flights", p) for p in range(4)}
    assert image.topic_config("flights") == {"retention.ms": "5"}
    assert all(len(p.replicas) == 2 and p.leader == p.replicas[0] for p in image.topics["flights"].partitions.values())
    follow(image, plan_partition_growth(image, "flights", 6, None))
    assert sorted(image.topics["flights"].partitions) == [0, 1, 2, 3, 4, 5]
    changes = follow(image, plan_topic_deletion(image, "flights"))
    assert [topic.id for topic in changes.deleted_topics] == [ID]
    assert image.topics == {} and image.topic_names == {} and image.configs == {}


@pytest.mark.parametrize(
    ("topic", "code", "says"),
    [
        (NewTopic("", 1, 1), ErrorCode.invalid_topic_exception, "empty"),
        (NewTopic("a b", 1, 1), ErrorCode.invalid_topic_exception, "ASCII letters"),
        (NewTopic("x" * 250, 1, 1), ErrorCode.invalid_topic_exception, "250 characters, at most 249"),
        (NewTopic("..", 1, 1), ErrorCode.invalid_topic_exception, "folders"),
        (NewTopic("t", 0, 1), ErrorCode.invalid_partitions, "0 partitions"),
        (NewTopic("t", 10_001, 1), ErrorCode.invalid_partitions, "at most 10000"),
        (NewTopic("t", 1, 4), ErrorCode.invalid_replication_factor, "factor 4; between 1 and the 3 registered brokers"),
        (NewTopic("t", 1, 2, {0: (1, 1)}), ErrorCode.invalid_replica_assignment, "repeat a broker"),
        (NewTopic("t", 1, 1, {0: (9,)}), ErrorCode.invalid_replica_assignment, "no broker 9 is registered"),
        (NewTopic("t", 2, 1, {0: (1,), 2: (2,)}), ErrorCode.invalid_replica_assignment, "0 to 1 without gaps"),
        (NewTopic("t", 2, 1, {0: (1,), 1: (2, 3)}), ErrorCode.invalid_replica_assignment, "same number of replicas"),
    ],
)
def test_a_bad_wish_is_refused_with_code_and_reason(topic: NewTopic, code: ErrorCode, says: str) -> None:
    reason = refusal(cluster(), topic)
    assert reason.code is code
    assert says in str(reason)


def test_names_that_collide_in_metrics_are_refused() -> None:
    image = cluster()
    follow(image, TopicPlanner(image).plan_creation(NewTopic("a.b", 1, 1), ID))
    assert "collides with 'a.b'" in str(refusal(image, NewTopic("a_b", 1, 1)))
    assert refusal(image, NewTopic("a.b", 1, 1)).code is ErrorCode.topic_already_exists


def test_fenced_brokers_get_no_replicas() -> None:
    image = cluster()
    follow(image, [BrokerRegistrationChangeRecord(2, image.brokers[2].epoch, fenced=True)])
    follow(image, TopicPlanner(image).plan_creation(NewTopic("t", 10, 2), ID))
    assert {b for p in image.topics["t"].partitions.values() for b in p.replicas} == {1, 3}


def test_a_change_for_an_older_broker_epoch_changes_nothing() -> None:
    image = cluster(1)
    old = image.brokers[1].epoch
    follow(image, [RegisterBrokerRecord(1, UUID(int=50), {})])
    follow(image, [BrokerRegistrationChangeRecord(1, old, fenced=False)])
    assert image.brokers[1].fenced


def test_partitions_never_fall() -> None:
    image = cluster()
    follow(image, TopicPlanner(image).plan_creation(NewTopic("t", 3, 1), ID))
    with pytest.raises(KafkaError, match="has 3 partitions; 2 is not more"):
        plan_partition_growth(image, "t", 2, None)


def test_a_record_of_another_kind_is_refused_not_guessed() -> None:
    with pytest.raises(KafkaError, match="not a metadata record") as caught:
        decode_record(b'{"type":"teleport"}')
    assert caught.value.code is ErrorCode.unsupported_version
