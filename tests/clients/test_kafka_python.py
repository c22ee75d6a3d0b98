"""kafka-python: a client in pure Python that shares no code with librdkafka or Java."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic, OffsetSpec
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from tests.brokers import BrokerProcess
from tests.clients.sample_messages import COMPRESSIONS, START_MS, Message, messages
from tests.segments import segment_sizes
from tests.waiting import eventually


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
        yield client


def produce(broker: BrokerProcess, topic: str, records: list[Message], **settings: object) -> list[int]:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, **settings)) as producer:
        waiting = [
            producer.send(topic, r.value, r.key, list(r.headers), partition=0, timestamp_ms=r.timestamp_ms)
            for r in records
        ]
        producer.flush(30)
        return [future.get(30).offset for future in waiting]


def consume(broker: BrokerProcess, topic: str, count: int, offset: int = 0, **settings: object) -> list[Message]:
    partition = TopicPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=20_000, **settings)) as reader:
        reader.assign([partition])
        reader.seek(partition, offset)
        taken = [record for _, record in zip(range(count), reader, strict=False)]
    return [Message(r.key, r.value, r.timestamp, tuple(r.headers)) for r in taken]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_are_read_as_produced(
    broker: BrokerProcess, admin: KafkaAdminClient, name: str, compression: str
) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])
    kind = None if compression == "none" else compression
    idempotent = compression in ("none", "lz4")
    offsets = produce(broker, name, messages(), compression_type=kind, enable_idempotence=idempotent, linger_ms=20)
    assert offsets == list(range(50))
    assert consume(broker, name, 50) == messages()
    assert consume(broker, name, 20, 30, isolation_level="read_committed") == messages()[30:]


def test_offsets_are_found_by_time_and_at_both_ends(broker: BrokerProcess, admin: KafkaAdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])
    produce(broker, name, [Message(None, b"%d" % i, START_MS + i * 1000) for i in range(30)])
    partition = TopicPartition(name, 0)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap)) as reader:
        found = reader.offsets_for_times({partition: START_MS + 12_500})[partition]
        assert (found.offset, found.timestamp) == (13, START_MS + 13_000)
        assert reader.beginning_offsets([partition]) == {partition: 0}
        assert reader.end_offsets([partition]) == {partition: 30}
    newest = admin.list_partition_offsets({partition: OffsetSpec.MAX_TIMESTAMP})[partition]
    assert (newest.offset, newest.timestamp) == (29, START_MS + 29_000)


def test_group_shares_partitions_commits_and_is_reset(
    broker: BrokerProcess, admin: KafkaAdminClient, name: str
) -> None:
    admin.create_topics([NewTopic(name, 4, 1)])
    produce(broker, name, messages())
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": name,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 200,
    }
    first, second = KafkaConsumer(name, **settings), KafkaConsumer(name, **settings)

    def are_partitions_shared() -> bool:
        first.poll(500)
        second.poll(500)
        return len(first.assignment()) == len(second.assignment()) == 2

    eventually(are_partitions_shared, within_s=60)
    assert first.assignment().isdisjoint(second.assignment())
    described = admin.describe_groups([name])[name]
    assert described["group_state"] == "Stable"
    assert len(described["members"]) == 2
    assert name in [group["group_id"] for group in admin.list_groups()]
    second.close()
    eventually(lambda: (first.poll(500), len(first.assignment()) == 4)[1], within_s=60)
    first.commit({TopicPartition(name, 0): OffsetAndMetadata(17, "seventeen", -1)})
    assert first.committed(TopicPartition(name, 0)) == 17
    first.close()
    offsets = admin.list_group_offsets({name: None})[name]
    assert offsets[TopicPartition(name, 0)].offset == 17
    assert offsets[TopicPartition(name, 0)].metadata == "seventeen"
    admin.reset_group_offsets(name, {TopicPartition(name, 0): OffsetSpec.EARLIEST})
    assert admin.list_group_offsets({name: None})[name][TopicPartition(name, 0)].offset == 0
    admin.delete_group_offsets(name, [TopicPartition(name, 0)])
    assert TopicPartition(name, 0) not in admin.list_group_offsets({name: None})[name]
    admin.delete_groups([name])
    assert name not in [group["group_id"] for group in admin.list_groups()]


def test_admin_client_changes_and_deletes_a_topic(broker: BrokerProcess, admin: KafkaAdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "5000000"})])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, 2, 1)])
    admin.create_partitions({name: NewPartitions(3)})
    (described,) = admin.describe_topics([name])
    assert sorted(partition["partition_index"] for partition in described["partitions"]) == [0, 1, 2]
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs={"segment.bytes": "2000000"})])
    eventually(lambda: changed_configs(admin, name) == {"retention.ms": "5000000", "segment.bytes": "2000000"})
    produce(broker, name, messages())
    partition = TopicPartition(name, 0)
    assert admin.delete_records({partition: 20})[partition]["low_watermark"] == 20
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap)) as reader:
        assert reader.beginning_offsets([partition]) == {partition: 20}
    cluster = admin.describe_cluster()
    assert [node["port"] for node in cluster["brokers"]] == [broker.port]
    admin.delete_topics([name])
    eventually(lambda: name not in admin.list_topics())


def test_log_dirs_have_sizes(broker: BrokerProcess, admin: KafkaAdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])
    produce(broker, name, messages())
    (found,) = admin.describe_log_dirs()
    (folder,) = found["log_dirs"]
    assert folder["log_dir"] == str(broker.log_dir)
    assert folder["usable_bytes"] > 0
    (topic,) = [topic for topic in folder["topics"] if topic["name"] == name]
    (partition,) = topic["partitions"]
    bytes_on_disk = sum(segment_sizes(broker.log_dir / f"{name}-0"))
    assert partition["partition_size"] == bytes_on_disk > 0
    assert not partition["is_future_key"]


def test_producers_and_partitions_are_described(broker: BrokerProcess, admin: KafkaAdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 3, 1)])
    produce(broker, name, messages(), enable_idempotence=True)
    partition = TopicPartition(name, 0)
    (state,) = admin.describe_producers([partition])[partition].active_producers
    assert state.producer_id >= 0
    assert state.last_sequence == 49
    assert state.current_transaction_start_offset == -1
    (topic,) = admin.describe_topic_partitions([name])["topics"]
    assert [p["partition_index"] for p in topic["partitions"]] == [0, 1, 2]
    assert [p["isr_nodes"] for p in topic["partitions"]] == [[1]] * 3


def changed_configs(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    """Configs that differ from their defaults."""
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])["topic"][topic]
    return {key: entry["value"] for key, entry in found.items()}


def test_group_copies_a_topic_in_transactions(broker: BrokerProcess, admin: KafkaAdminClient, name: str) -> None:
    """Consumers do not read an aborted copy, and the group reads its source records again."""
    target = f"{name}-copy"
    admin.create_topics([NewTopic(name, 1, 1), NewTopic(target, 1, 1)])
    produce(broker, name, messages())
    settings = {"group_id": name, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)) as producer:
        producer.init_transactions()
        for end in (producer.abort_transaction, producer.commit_transaction):
            with closing(
                KafkaConsumer(name, bootstrap_servers=broker.bootstrap, consumer_timeout_ms=20_000, **settings)
            ) as reader:
                records = [record for _, record in zip(range(50), reader, strict=False)]
                producer.begin_transaction()
                for record in records:
                    producer.send(target, record.value, record.key, record.headers, timestamp_ms=record.timestamp)
                position = {TopicPartition(name, 0): OffsetAndMetadata(records[-1].offset + 1, "", -1)}
                producer.send_offsets_to_transaction(position, name)
                end()
    assert consume(broker, target, 50, isolation_level="read_committed") == messages()
    assert admin.list_group_offsets(name)[name][TopicPartition(name, 0)].offset == 50
