"""Clients with read_committed read a compacted log of committed and aborted transactions, which
begin in one segment and end in another: no record of an aborted one, and the last committed value
of each key.
"""

import asyncio
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaConsumer, TopicPartition

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.jars import java_command, kafka_classpath
from tests.segments import segment_sizes
from tests.waiting import eventually

SEGMENT = 1024 * 1024  # Kafka's minimum
LARGE = b"x" * 100_000  # a transaction has more bytes than a segment
KEYS = 12
TRANSACTIONS = 6  # in turn committed and aborted; the marker of the last is in the active segment
LAST_COMMITTED = b"committed 4 "
TOPIC = "compacted"
READ_COMMITTED = "read_committed"
Pairs = list[tuple[bytes, bytes]]


@pytest.fixture(scope="module")
def compacted(new_broker: NewBroker) -> Iterator[BrokerProcess]:
    with new_broker(log_cleaner_backoff_ms=100, log_segment_delete_delay_ms=100) as broker:
        rd.create_topic(
            broker.bootstrap, TOPIC, cleanup_policy="compact", segment_bytes=SEGMENT, min_cleanable_dirty_ratio=0.01
        )
        settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": TOPIC, "batch.size": 1}
        producer = ck.Producer(settings)
        producer.init_transactions(30)
        for number in range(TRANSACTIONS):
            is_committed = number % 2 == 0
            outcome = b"committed" if is_committed else b"aborted"
            producer.begin_transaction()
            for key in range(KEYS):
                producer.produce(TOPIC, b"%s %d %s" % (outcome, number, LARGE), b"key %d" % key)
            assert producer.flush(30) == 0
            (producer.commit_transaction if is_committed else producer.abort_transaction)(30)
        # The transactions have twice as many bytes. The cleaner may begin before the last one ends.
        eventually(lambda: sum(segment_sizes(broker.log_dir / f"{TOPIC}-0")) < 3.5 * SEGMENT)
        yield broker


def check(found: Pairs) -> None:
    assert not [value[:20] for _, value in found if not value.startswith(b"committed ")]
    assert dict(found) == {b"key %d" % key: LAST_COMMITTED + LARGE for key in range(KEYS)}


def test_librdkafka_reads_only_committed_values(compacted: BrokerProcess) -> None:
    messages = rd.consume(compacted.bootstrap, TOPIC, isolation_level=READ_COMMITTED)
    check([(message.key() or b"", message.value() or b"") for message in messages])


def count_committed(broker: BrokerProcess) -> int:
    return len(rd.consume(broker.bootstrap, TOPIC, isolation_level=READ_COMMITTED))


def to_pairs(records: Iterable[Any]) -> Pairs:
    return [(record.key, record.value) for record in records]


def test_kafka_python_reads_only_committed_values(compacted: BrokerProcess) -> None:
    count, settings = count_committed(compacted), {"isolation_level": READ_COMMITTED, "consumer_timeout_ms": 20_000}
    with closing(KafkaConsumer(bootstrap_servers=compacted.bootstrap, **settings)) as reader:
        reader.assign([TopicPartition(TOPIC, 0)])
        reader.seek(TopicPartition(TOPIC, 0), 0)
        check(to_pairs(record for _, record in zip(range(count), reader, strict=False)))


def test_aiokafka_reads_only_committed_values(compacted: BrokerProcess) -> None:
    count = count_committed(compacted)

    async def read() -> list[Any]:
        async with AIOKafkaConsumer(bootstrap_servers=compacted.bootstrap, isolation_level=READ_COMMITTED) as reader:
            reader.assign([AioPartition(TOPIC, 0)])
            reader.seek(AioPartition(TOPIC, 0), 0)
            return [await reader.getone() for _ in range(count)]

    check(to_pairs(asyncio.run(asyncio.wait_for(read(), 20))))


def test_java_client_reads_only_committed_values(compacted: BrokerProcess) -> None:
    command = java_command(
        kafka_classpath(),
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", compacted.bootstrap, "--topic", TOPIC, "--partition", "0", "--offset", "earliest"),
        *("--isolation-level", READ_COMMITTED, "--max-messages", str(count_committed(compacted))),
        *("--timeout-ms", "20000", "--property", "print.key=true", "--property", "key.separator=|"),
    )
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    pairs = [line.partition(b"|") for line in done.stdout.splitlines()]
    check([(key, value) for key, _, value in pairs])
