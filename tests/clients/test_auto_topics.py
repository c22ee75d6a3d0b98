"""Topics created because a client named them: with the broker's settings, and only if both sides
allow it.
"""

import confluent_kafka as ck
import pytest

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.waiting import eventually


def partition_count(broker: BrokerProcess, topic: str) -> int:
    """The number of a topic's partitions, without creating it; 0 if it does not exist."""
    found = rd.admin_client(broker.bootstrap).list_topics(timeout=20).topics.get(topic)
    return 0 if found is None else len(found.partitions)


def setting(broker: BrokerProcess, topic: str, key: str) -> str | None:
    value: str | None = rd.describe_topic_configs(broker.bootstrap, topic)[key].value
    return value


def refusal(broker: BrokerProcess, topic: str) -> int:
    """The error code that a producer to this topic gets."""
    with pytest.raises(ck.KafkaException) as refused:
        rd.produce(broker.bootstrap, topic, rd.numbered_messages(0, 1), message_timeout_ms=2000)
    code = refused.value.args[0].code()
    assert isinstance(code, int)
    return code


def request_metadata(broker: BrokerProcess, topic: str) -> None:
    """Requests a topic's metadata as a producer does, which allows its creation."""
    ck.Producer({"bootstrap.servers": broker.bootstrap}).list_topics(topic, timeout=20)


def test_topic_is_created_with_the_brokers_settings(new_broker: NewBroker) -> None:
    with new_broker(num_partitions=3, log_retention_ms=12_345_678) as broker:
        rd.produce(broker.bootstrap, "produced", rd.numbered_messages(0, 5), partition=2)
        assert partition_count(broker, "produced") == 3
        assert setting(broker, "produced", "retention.ms") == "12345678"
        request_metadata(broker, "looked-at")
        eventually(lambda: partition_count(broker, "looked-at") == 3)


def test_topic_is_created_only_if_both_sides_allow_it(new_broker: NewBroker, broker: BrokerProcess, name: str) -> None:
    unknown = ck.KafkaError.UNKNOWN_TOPIC_OR_PART
    with rd.open_consumer(broker.bootstrap, name) as reader:  # by default, librdkafka's consumers do not allow it
        reader.subscribe([name])
        error = rd.poll_message(reader).error()
    assert error is not None and error.code() == unknown
    assert partition_count(broker, name) == 0
    with new_broker(auto_create_topics_enable=False) as other:
        assert refusal(other, name) in (unknown, ck.KafkaError._UNKNOWN_TOPIC, ck.KafkaError._MSG_TIMED_OUT)
        assert partition_count(other, name) == 0


def test_invalid_topic_name_is_rejected(broker: BrokerProcess) -> None:
    assert refusal(broker, "not/a name") == ck.KafkaError.TOPIC_EXCEPTION


def test_metadata_request_creates_no_ordinary_topic_of_an_internal_name(new_broker: NewBroker) -> None:
    """The topic is either created with its coordinator's settings or not at all."""
    with new_broker() as broker:
        for topic in ("__consumer_offsets", "__transaction_state"):
            request_metadata(broker, topic)
        eventually(lambda: partition_count(broker, "__consumer_offsets") == 5)
        assert setting(broker, "__consumer_offsets", "cleanup.policy") == "compact"
        if partition_count(broker, "__transaction_state"):
            assert setting(broker, "__transaction_state", "cleanup.policy") == "compact"
