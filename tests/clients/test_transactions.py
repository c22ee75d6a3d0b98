"""Transactions with confluent-kafka (librdkafka): atomicity, fencing, offsets, and what
read_committed and read_uncommitted consumers see.
"""

from collections.abc import Callable

import confluent_kafka as ck
import pytest

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.waiting import eventually

COMMITTED = "read_committed"
UNCOMMITTED = "read_uncommitted"


def transactional_producer(broker: BrokerProcess, transactional_id: str, **settings: object) -> ck.Producer:
    producer = ck.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            **rd.to_librdkafka_names(settings),
        }
    )
    producer.init_transactions(30)
    return producer


def read_values(broker: BrokerProcess, topic: str, isolation: str, partitions: int = 1) -> list[bytes | None]:
    """All values up to the end that consumers of this isolation level see."""
    return [
        value
        for partition in range(partitions)
        for value in rd.values_of(rd.consume(broker.bootstrap, topic, partition=partition, isolation_level=isolation))
    ]


def produce_values(broker: BrokerProcess, topic: str, values: list[bytes]) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(10) == 0


def test_committed_transaction_is_read(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 3)
    producer = transactional_producer(broker, name)
    for round_ in range(3):
        producer.begin_transaction()
        for number in range(6):
            producer.produce(name, b"%d-%d" % (round_, number), partition=number % 3)
        producer.commit_transaction(30)
    sent = sorted(b"%d-%d" % (round_, number) for round_ in range(3) for number in range(6))
    assert eventually(lambda: sorted(filter(None, read_values(broker, name, COMMITTED, 3))) == sent)


def test_aborted_transaction_is_read_only_with_read_uncommitted(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    producer = transactional_producer(broker, name)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number)
        producer.flush(10)
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(30)
    assert eventually(lambda: read_values(broker, name, COMMITTED) == [b"1", b"3", b"5"])
    assert read_values(broker, name, UNCOMMITTED) == [b"%d" % number for number in range(6)]


def test_open_transaction_holds_back_what_follows_it(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    producer = transactional_producer(broker, name)
    producer.begin_transaction()
    producer.produce(name, b"open")
    producer.flush(10)
    produce_values(broker, name, [b"plain"])
    assert read_values(broker, name, COMMITTED) == []
    assert read_values(broker, name, UNCOMMITTED) == [b"open", b"plain"]
    producer.commit_transaction(30)
    assert eventually(lambda: read_values(broker, name, COMMITTED) == [b"open", b"plain"])


def test_new_instance_fences_the_former_one(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    former = transactional_producer(broker, name)
    former.begin_transaction()
    former.produce(name, b"of the former one")
    former.flush(10)
    current = transactional_producer(broker, name)
    with pytest.raises(ck.KafkaException) as fenced:
        former.commit_transaction(30)
    assert fenced.value.args[0].fatal()
    current.begin_transaction()
    current.produce(name, b"of the current one")
    current.commit_transaction(30)
    assert eventually(lambda: read_values(broker, name, COMMITTED) == [b"of the current one"])


def copy_in_transaction(broker: BrokerProcess, source: str, target: str, finish: Callable[[ck.Producer], None]) -> None:
    """Copies the ten records of `source` in one transaction, with the group's offsets."""
    producer = transactional_producer(broker, f"{source}-copy")
    with rd.open_consumer(broker.bootstrap, group=f"{source}-group", auto_offset_reset="earliest") as reader:
        reader.subscribe([source])
        messages = [message for message in reader.consume(10, 20) if message.error() is None]
        assert len(messages) == 10
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value())
        positions = reader.position(reader.assignment())
        producer.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), 30)
        finish(producer)


def committed_offset(broker: BrokerProcess, group: str, topic: str) -> int:
    with rd.open_consumer(broker.bootstrap, group=group) as reader:
        (found,) = reader.committed([ck.TopicPartition(topic, 0)], 30)
        return int(found.offset)


def test_offsets_are_committed_with_the_records(broker: BrokerProcess, name: str) -> None:
    target = f"{name}-target"
    rd.create_topic(broker.bootstrap, name)
    rd.create_topic(broker.bootstrap, target)
    sent = [b"%d" % number for number in range(10)]
    produce_values(broker, name, sent)
    copy_in_transaction(broker, name, target, lambda producer: producer.abort_transaction(30))
    assert committed_offset(broker, f"{name}-group", name) == ck.OFFSET_INVALID
    copy_in_transaction(broker, name, target, lambda producer: producer.commit_transaction(30))
    assert eventually(lambda: committed_offset(broker, f"{name}-group", name) == 10)
    assert eventually(lambda: read_values(broker, target, COMMITTED) == sent)


def test_transaction_beyond_its_timeout_is_aborted(new_broker: NewBroker, name: str) -> None:
    with new_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms=100) as broker:
        rd.create_topic(broker.bootstrap, name)
        producer = transactional_producer(broker, name, transaction_timeout_ms=1000)
        producer.begin_transaction()
        producer.produce(name, b"never committed")
        producer.flush(10)
        produce_values(broker, name, [b"plain"])
        assert eventually(lambda: read_values(broker, name, COMMITTED) == [b"plain"])
        with pytest.raises(ck.KafkaException):
            producer.commit_transaction(30)


def test_transactions_survive_a_restart_of_the_broker(new_broker: NewBroker, name: str) -> None:
    with new_broker() as broker:
        rd.create_topic(broker.bootstrap, name)
        producer = transactional_producer(broker, name)
        producer.begin_transaction()
        producer.produce(name, b"before")
        producer.flush(10)
        broker.kill()
        broker.start()
        producer.produce(name, b"after")
        producer.commit_transaction(30)
        assert eventually(lambda: read_values(broker, name, COMMITTED) == [b"before", b"after"])
