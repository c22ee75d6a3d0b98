"""Producing and consuming with confluent-kafka (librdkafka)."""

import confluent_kafka as ck
import pytest

from ottla_broker.wire.batch import iter_batches
from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import COMPRESSIONS, START_MS, Message, messages


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_are_read_as_produced(broker: BrokerProcess, name: str, compression: str, idempotent: bool) -> None:
    sent = messages()
    rd.create_topic(broker.bootstrap, name)
    offsets = rd.produce(broker.bootstrap, name, sent, compression_type=compression, enable_idempotence=idempotent)
    assert offsets == list(range(len(sent)))
    received = rd.consume(broker.bootstrap, name)
    assert rd.to_messages(received) == sent
    assert [message.offset() for message in received] == offsets


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_are_produced_with_every_acks(broker: BrokerProcess, name: str, acks: int) -> None:
    rd.create_topic(broker.bootstrap, name)
    # The producer stays open until all is read: with acks=0, closing it may discard unsent records.
    producer = rd.open_producer(broker.bootstrap, acks=acks)
    rd.produce_with(producer, name, messages())
    assert rd.to_messages(rd.consume(broker.bootstrap, name, len(messages()))) == messages()


def test_records_of_many_partitions_are_read_in_the_order_of_each(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 7)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for number in range(3500):
        producer.produce(name, b"%d" % number, partition=number % 7)
    assert producer.flush(30) == 0
    with rd.open_consumer(broker.bootstrap) as reader:
        reader.assign([ck.TopicPartition(name, partition, 0) for partition in range(7)])
        seen = [int(message.value()) for message in reader.consume(3500, 30)]
    assert sorted(seen) == list(range(3500))
    for partition in range(7):
        assert [number for number in seen if number % 7 == partition] == list(range(partition, 3500, 7)), (
            "order in a partition"
        )


def test_reading_begins_at_an_offset_inside_a_batch(broker: BrokerProcess, name: str) -> None:
    sent = rd.numbered_messages(0, 1000)
    rd.produce(broker.bootstrap, name, sent, linger_ms=50, compression_type="lz4")
    assert rd.values_of(rd.consume(broker.bootstrap, name, offset=517)) == [message.value for message in sent[517:]]


def test_offset_out_of_range_is_reset_or_an_error(broker: BrokerProcess, name: str) -> None:
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 10))
    from_start = rd.consume(broker.bootstrap, name, 10, offset=5000, auto_offset_reset="earliest")
    assert [message.offset() for message in from_start] == list(range(10))
    with pytest.raises(ck.KafkaException) as refused:
        rd.consume(broker.bootstrap, name, 10, offset=5000, auto_offset_reset="error")
    assert refused.value.args[0].code() == ck.KafkaError._AUTO_OFFSET_RESET


def test_timestamp_leads_to_the_first_record_that_is_not_older(broker: BrokerProcess, name: str) -> None:
    sent = [Message(None, b"%d" % i, START_MS + i * 1000) for i in range(100)]
    rd.produce(broker.bootstrap, name, sent, linger_ms=50, compression_type="zstd")
    with rd.open_consumer(broker.bootstrap) as reader:

        def offset_at(timestamp_ms: int) -> int:
            found = reader.offsets_for_times([ck.TopicPartition(name, 0, timestamp_ms)], timeout=10)
            return int(found[0].offset)

        assert offset_at(START_MS) == 0
        assert offset_at(0) == 0
        assert offset_at(START_MS + 41_500) == 42
        assert offset_at(START_MS + 99_000) == 99
        assert offset_at(START_MS + 99_001) == ck.OFFSET_END
        assert reader.get_watermark_offsets(ck.TopicPartition(name, 0), timeout=10) == (0, 100)


def test_batch_larger_than_the_fetch_size_is_read(broker: BrokerProcess, name: str) -> None:
    rd.produce(broker.bootstrap, name, messages(), compression_type="gzip")
    received = rd.consume(broker.bootstrap, name, fetch_message_max_bytes=1000, max_partition_fetch_bytes=1000)
    assert rd.to_messages(received) == messages()


def test_append_completes_a_waiting_fetch(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    with rd.open_consumer(broker.bootstrap, fetch_wait_max_ms=20_000, socket_timeout_ms=30_000) as reader:
        reader.assign([ck.TopicPartition(name, 0, 0)])
        assert reader.poll(1.0) is None  # the fetch now waits at the broker
        rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 1))
        message = reader.poll(5.0)
    assert message is not None
    assert message.value() == b"value 0"


def test_too_large_record_is_rejected_and_not_appended(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, max_message_bytes=5000)
    with pytest.raises(ck.KafkaException) as refused:
        rd.produce(broker.bootstrap, name, [Message(None, b"x" * 20_000, START_MS)])
    assert refused.value.args[0].code() == ck.KafkaError.MSG_SIZE_TOO_LARGE
    assert rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 1)) == [0]


def test_compacted_topic_rejects_records_without_key(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, cleanup_policy="compact")
    with pytest.raises(ck.KafkaException) as refused:
        rd.produce(broker.bootstrap, name, [Message(None, b"no key", START_MS)])
    assert refused.value.args[0].code() == ck.KafkaError.INVALID_RECORD


def test_log_append_time_is_the_brokers(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, message_timestamp_type="LogAppendTime")
    rd.produce(broker.bootstrap, name, messages(), compression_type="lz4")
    received = rd.consume(broker.bootstrap, name)
    assert [message.value() for message in received] == [message.value for message in messages()]
    kinds = {message.timestamp()[0] for message in received}
    assert kinds == {ck.TIMESTAMP_LOG_APPEND_TIME}
    assert all(message.timestamp()[1] >= START_MS + 3_600_000 - 60_000 for message in received)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_topic_with_compression_type_recompresses(broker: BrokerProcess, name: str, compression: str) -> None:
    rd.create_topic(broker.bootstrap, name, compression_type=compression)
    rd.produce(broker.bootstrap, name, messages(), compression_type="gzip" if compression != "gzip" else "zstd")
    assert rd.to_messages(rd.consume(broker.bootstrap, name)) == messages()
    (log,) = (broker.log_dir / f"{name}-0").glob("*.log")
    codecs = {header.compression.name for _, header in iter_batches(log.read_bytes())}
    assert codecs == {"none" if compression == "uncompressed" else compression}
