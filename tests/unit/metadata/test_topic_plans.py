"""Plans that create, extend and delete topics, applied as records to an image."""

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

TOPIC_ID = UUID(int=7)


def cluster(brokers: int = 3) -> MetadataImage:
    image = MetadataImage()
    for broker in range(1, brokers + 1):
        apply_encoded(
            image, [RegisterBrokerRecord(broker, UUID(int=broker), {}, directories=(UUID(int=100 + broker),))]
        )
        apply_encoded(image, [BrokerRegistrationChangeRecord(broker, image.brokers[broker].epoch, fenced=False)])
    return image


def apply_encoded(image: MetadataImage, records: list[MetadataRecord]) -> MetadataDelta:
    """Encodes the records, decodes them and applies the result, as a broker does."""
    return image.apply_records(
        [(image.end_offset + n, decode_record(encode_record(record))) for n, record in enumerate(records)]
    )


def refusal(image: MetadataImage, topic: NewTopic) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        TopicPlanner(image).plan_creation(topic, TOPIC_ID)
    return caught.value


def test_a_topic_is_created_extended_and_deleted() -> None:
    image = cluster()
    changes = apply_encoded(
        image, TopicPlanner(image).plan_creation(NewTopic("flights", 4, 2, config={"retention.ms": "5"}), TOPIC_ID)
    )
    assert changes.created_topics == ["flights"]
    assert changes.changed_partitions == {("flights", p) for p in range(4)}
    assert image.topic_config("flights") == {"retention.ms": "5"}
    assert all(len(p.replicas) == 2 and p.leader == p.replicas[0] for p in image.topics["flights"].partitions.values())
    apply_encoded(image, plan_partition_growth(image, "flights", 6, None))
    assert sorted(image.topics["flights"].partitions) == [0, 1, 2, 3, 4, 5]
    changes = apply_encoded(image, plan_topic_deletion(image, "flights"))
    assert [topic.id for topic in changes.deleted_topics] == [TOPIC_ID]
    assert image.topics == {} and image.topic_names == {} and image.configs == {}


@pytest.mark.parametrize(
    ("topic", "code", "message"),
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
def test_an_invalid_topic_is_refused_with_code_and_message(topic: NewTopic, code: ErrorCode, message: str) -> None:
    reason = refusal(cluster(), topic)
    assert reason.code is code
    assert message in str(reason)


def test_names_that_collide_in_metrics_are_refused() -> None:
    image = cluster()
    apply_encoded(image, TopicPlanner(image).plan_creation(NewTopic("a.b", 1, 1), TOPIC_ID))
    assert "collides with 'a.b'" in str(refusal(image, NewTopic("a_b", 1, 1)))
    assert refusal(image, NewTopic("a.b", 1, 1)).code is ErrorCode.topic_already_exists


def test_fenced_brokers_get_no_replicas_while_others_are_enough() -> None:
    image = cluster()
    apply_encoded(image, [BrokerRegistrationChangeRecord(2, image.brokers[2].epoch, fenced=True)])
    apply_encoded(image, TopicPlanner(image).plan_creation(NewTopic("t", 10, 2), TOPIC_ID))
    assert {b for p in image.topics["t"].partitions.values() for b in p.replicas} == {1, 3}


def test_a_change_for_an_older_broker_epoch_changes_nothing() -> None:
    image = cluster(1)
    old = image.brokers[1].epoch
    apply_encoded(image, [RegisterBrokerRecord(1, UUID(int=50), {})])
    apply_encoded(image, [BrokerRegistrationChangeRecord(1, old, fenced=False)])
    assert image.brokers[1].fenced


def test_the_partition_count_cannot_decrease() -> None:
    image = cluster()
    apply_encoded(image, TopicPlanner(image).plan_creation(NewTopic("t", 3, 1), TOPIC_ID))
    with pytest.raises(KafkaError, match="has 3 partitions; 2 is not more"):
        plan_partition_growth(image, "t", 2, None)
    apply_encoded(image, TopicPlanner(image).plan_creation(NewTopic("u", 1, 1), UUID(int=9)))
    with pytest.raises(KafkaError, match="has 1 partition; 1 is not more"):
        plan_partition_growth(image, "u", 1, None)


def test_an_unknown_record_type_is_refused() -> None:
    with pytest.raises(KafkaError, match="not a metadata record") as caught:
        decode_record(b'{"type":"teleport"}')
    assert caught.value.code is ErrorCode.unsupported_version
