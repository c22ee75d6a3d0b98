"""Topics that are made because a client spoke of them: as the broker's settings say, and only where both sides want it."""

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import ConfigResource

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.waiting import eventually


def partitions(broker: BrokerProcess, topic: str) -> int:
    """How many a topic has, without making it; 0 for none."""
    found = rd.admin(broker.bootstrap).list_topics(timeout=20).topics.get(topic)
    return 0 if found is None else len(found.partitions)


def setting(broker: BrokerProcess, topic: str, key: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = rd.admin(broker.bootstrap)
    value = client.describe_configs([resource])[resource].result(20)[key].value
    assert isinstance(value, str)
    return value


def refusal(broker: BrokerProcess, topic: str) -> int:
    """The code that a producer is told."""
    with pytest.raises(ck.KafkaException) as refused:
        rd.produce(broker.bootstrap, topic, rd.numbered(0, 1), message_timeout_ms=2000)
    code = refused.value.args[0].code()
    assert isinstance(code, int)
    return code


def look(broker: BrokerProcess, topic: str) -> None:
    """Asks for a topic's metadata as a producer does, which would have it made."""
    ck.Producer({"bootstrap.servers": broker.bootstrap}).list_topics(topic, timeout=20)


def test_a_topic_is_made_with_the_brokers_settings(new_broker: NewBroker) -> None:
    with new_broker(num_partitions=3, log_retention_ms=12_345_678) as broker:
        rd.produce(broker.bootstrap, "produced", rd.numbered(0, 5), partition=2)
        assert partitions(broker, "produced") == 3
        assert setting(broker, "produced", "retention.ms") == "12345678"
        look(broker, "looked-at")
        eventually(lambda: partitions(broker, "looked-at") == 3)


def test_a_topic_is_made_only_where_both_sides_want_it(new_broker: NewBroker, broker: BrokerProcess, name: str) -> None:
    unknown = ck.KafkaError.UNKNOWN_TOPIC_OR_PART
    with rd.consumer(broker.bootstrap, name) as reader:  # librdkafka's consumers do not want it
        reader.subscribe([name])
        error = rd.next_message(reader).error()
    assert error is not None and error.code() == unknown
    assert partitions(broker, name) == 0
    with new_broker(auto_create_topics_enable=False) as other:
        assert refusal(other, name) in (unknown, ck.KafkaError._UNKNOWN_TOPIC, ck.KafkaError._MSG_TIMED_OUT)
        assert partitions(other, name) == 0


def test_a_name_that_no_topic_can_have(broker: BrokerProcess) -> None:
    assert refusal(broker, "not/a name") == ck.KafkaError.TOPIC_EXCEPTION


def test_a_look_at_an_internal_topic_makes_no_ordinary_one(new_broker: NewBroker) -> None:
    """Either it is made as its coordinator needs it, or not at all."""
    with new_broker() as broker:
        for topic in ("__consumer_offsets", "__transaction_state"):
            look(broker, topic)
        eventually(lambda: partitions(broker, "__consumer_offsets") == 5)
        assert setting(broker, "__consumer_offsets", "cleanup.policy") == "compact"
        if partitions(broker, "__transaction_state"):
            assert setting(broker, "__transaction_state", "cleanup.policy") == "compact"
