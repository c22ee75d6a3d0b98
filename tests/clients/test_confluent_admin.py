"""confluent-kafka's admin client."""

from concurrent.futures import Future

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.waiting import eventually

TOPIC = ConfigResource.Type.TOPIC
WITHIN_S = 30


def config(broker: BrokerProcess, topic: str) -> dict[str, ConfigEntry]:
    return rd.describe_topic_configs(broker.bootstrap, topic)


def alter(broker: BrokerProcess, topic: str, key: str, operation: AlterConfigOpType, value: str | None) -> None:
    entry = ConfigEntry(key, value, incremental_operation=operation)
    resource = ConfigResource(TOPIC, topic, incremental_configs=[entry])
    client = rd.admin_client(broker.bootstrap)
    client.incremental_alter_configs([resource])[resource].result(WITHIN_S)


def error_code_of(call: Future[object]) -> int:
    """The error code of a failed future of the admin client."""
    with pytest.raises(ck.KafkaException) as refused:
        call.result(WITHIN_S)
    return int(refused.value.args[0].code())


def test_topics_are_created_expanded_and_deleted(broker: BrokerProcess, name: str) -> None:
    client = rd.admin_client(broker.bootstrap)
    rd.create_topic(broker.bootstrap, name, 3)
    assert len(client.list_topics(timeout=10).topics[name].partitions) == 3
    client.create_partitions([NewPartitions(name, 5)])[name].result(WITHIN_S)
    assert len(client.list_topics(timeout=10).topics[name].partitions) == 5
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 3), partition=4)
    client.delete_topics([name])[name].result(WITHIN_S)
    eventually(lambda: name not in client.list_topics(timeout=10).topics)
    rd.create_topic(broker.bootstrap, name, 1)
    assert rd.consume(broker.bootstrap, name) == [], "a recreated topic is a new topic"


def test_invalid_topics_are_rejected_with_an_error_code(broker: BrokerProcess, name: str) -> None:
    client = rd.admin_client(broker.bootstrap)
    rd.create_topic(broker.bootstrap, name, 2)

    def create(topic: str, partitions: int = 1, replicas: int = 1, **settings: str) -> int:
        return error_code_of(client.create_topics([NewTopic(topic, partitions, replicas, config=settings)])[topic])

    assert create(name) == ck.KafkaError.TOPIC_ALREADY_EXISTS
    assert create("not/a/name") == ck.KafkaError.TOPIC_EXCEPTION
    assert create("x" * 250) == ck.KafkaError.TOPIC_EXCEPTION
    assert create(f"{name}-0", 0) == ck.KafkaError.INVALID_PARTITIONS
    assert create(f"{name}-1", 1, 3) == ck.KafkaError.INVALID_REPLICATION_FACTOR
    assert create(f"{name}-2", 1, 1, **{"retention.ms": "soon"}) == ck.KafkaError.INVALID_CONFIG
    assert create(f"{name}-3", 1, 1, **{"no.such.setting": "1"}) == ck.KafkaError.INVALID_CONFIG
    assert error_code_of(client.create_partitions([NewPartitions(name, 1)])[name]) == ck.KafkaError.INVALID_PARTITIONS
    assert error_code_of(client.delete_topics(["absent"])["absent"]) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_validate_only_creates_nothing(broker: BrokerProcess, name: str) -> None:
    client = rd.admin_client(broker.bootstrap)
    client.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name].result(WITHIN_S)
    assert name not in client.list_topics(timeout=10).topics


def test_topic_configs_are_described_with_sources(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, retention_ms=1234567)
    found = config(broker, name)
    assert found["retention.ms"].value == "1234567"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not found["retention.ms"].is_default
    assert found["cleanup.policy"].value == "delete"
    assert found["cleanup.policy"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["cleanup.policy"].is_default
    assert {"segment.bytes", "max.message.bytes", "min.insync.replicas", "compression.type"} <= set(found)


def test_topic_configs_are_set_appended_subtracted_and_deleted(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    alter(broker, name, "segment.bytes", AlterConfigOpType.SET, "1048576")
    eventually(lambda: config(broker, name)["segment.bytes"].value == "1048576")
    alter(broker, name, "cleanup.policy", AlterConfigOpType.APPEND, "compact")
    eventually(lambda: set(config(broker, name)["cleanup.policy"].value.split(",")) == {"delete", "compact"})
    alter(broker, name, "cleanup.policy", AlterConfigOpType.SUBTRACT, "delete")
    eventually(lambda: config(broker, name)["cleanup.policy"].value == "compact")
    alter(broker, name, "cleanup.policy", AlterConfigOpType.DELETE, None)
    eventually(lambda: config(broker, name)["cleanup.policy"].value == "delete")
    assert config(broker, name)["segment.bytes"].value == "1048576"
    with pytest.raises(ck.KafkaException) as refused:
        alter(broker, name, "retention.ms", AlterConfigOpType.SET, "soon")
    assert refused.value.args[0].code() == ck.KafkaError.INVALID_CONFIG


def test_broker_configs_are_described(broker: BrokerProcess) -> None:
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    client = rd.admin_client(broker.bootstrap)
    found = client.describe_configs([resource])[resource].result(WITHIN_S)
    assert found["node.id"].value == "1"
    assert found["node.id"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert found["num.partitions"].value == "1"
    assert found["log.dirs"].value == str(broker.log_dir)


def test_broker_config_is_changed_while_running(broker: BrokerProcess, name: str) -> None:
    resource = ConfigResource(
        ConfigResource.Type.BROKER,
        "1",
        incremental_configs=[ConfigEntry("log.retention.ms", "7654321", incremental_operation=AlterConfigOpType.SET)],
    )
    client = rd.admin_client(broker.bootstrap)
    client.incremental_alter_configs([resource])[resource].result(WITHIN_S)
    rd.create_topic(broker.bootstrap, name)
    eventually(lambda: config(broker, name)["retention.ms"].value == "7654321")
    assert config(broker, name)["retention.ms"].source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    reset = ConfigEntry("log.retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[reset])
    client.incremental_alter_configs([resource])[resource].result(WITHIN_S)
    eventually(lambda: config(broker, name)["retention.ms"].value == "604800000")


def test_records_are_deleted(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 100))
    client = rd.admin_client(broker.bootstrap)
    for deletion in client.delete_records([ck.TopicPartition(name, 0, 40)]).values():
        assert deletion.result(WITHIN_S).low_watermark == 40
    assert [message.offset() for message in rd.consume(broker.bootstrap, name)] == list(range(40, 100))
    for deletion in client.delete_records([ck.TopicPartition(name, 0, 101)]).values():
        assert error_code_of(deletion) == ck.KafkaError.OFFSET_OUT_OF_RANGE
    for deletion in client.delete_records([ck.TopicPartition(name, 0, ck.OFFSET_END)]).values():
        assert deletion.result(WITHIN_S).low_watermark == 100
    assert rd.consume(broker.bootstrap, name) == []
    assert rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 1)) == [100]


def test_offsets_are_listed_by_every_spec(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    partition = ck.TopicPartition(name, 0)
    client = rd.admin_client(broker.bootstrap)

    def at(spec: OffsetSpec) -> tuple[int, int]:
        found = client.list_offsets({partition: spec})[partition].result(WITHIN_S)
        return found.offset, found.timestamp

    assert at(OffsetSpec.earliest()) == (0, -1)
    assert at(OffsetSpec.latest()) == (0, -1)
    assert at(OffsetSpec.max_timestamp())[0] == -1, "an empty log has no newest record"
    times = [START_MS, START_MS + 5000, START_MS + 2000]
    rd.produce(broker.bootstrap, name, [Message(None, b"x", time) for time in times], linger_ms=20)
    assert at(OffsetSpec.latest())[0] == 3
    assert at(OffsetSpec.max_timestamp()) == (1, START_MS + 5000)
    assert at(OffsetSpec.for_timestamp(START_MS + 1)) == (1, START_MS + 5000)
    assert at(OffsetSpec.for_timestamp(START_MS + 6000))[0] == -1


def test_cluster_is_described(broker: BrokerProcess) -> None:
    client = rd.admin_client(broker.bootstrap)
    cluster = client.describe_cluster(include_authorized_operations=True).result(WITHIN_S)
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [(1, "127.0.0.1", broker.port)]
    assert cluster.controller.id == 1
    assert len(cluster.cluster_id) == 22
    assert cluster.authorized_operations


def test_topics_are_described(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 2)
    client = rd.admin_client(broker.bootstrap)
    found = client.describe_topics(ck.TopicCollection([name]))[name].result(WITHIN_S)
    assert str(found.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    assert not found.is_internal
    assert [(p.id, p.leader.id, [r.id for r in p.replicas], [r.id for r in p.isr]) for p in found.partitions] == [
        (0, 1, [1], [1]),
        (1, 1, [1], [1]),
    ]
