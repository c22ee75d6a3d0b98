"""librdkafka, kafka-python, aiokafka and the Java client read a compacted log with gaps between
offsets and with empty batches at the ends of segments.
"""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaConsumer, TopicPartition

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import Message
from tests.jars import java_command, kafka_classpath
from tests.segments import segment_sizes
from tests.waiting import eventually

SEGMENT = 1024 * 1024  # Kafka's minimum
LARGE = bytes(range(256)) * 400  # 100 KiB
TOPIC = "compacted"


@pytest.fixture(scope="module")
def compacted(new_broker: NewBroker) -> Iterator[BrokerProcess]:
    """A broker with a topic of about seven segments, of which compaction has left little
    more than the active one.
    """
    with new_broker(log_cleaner_backoff_ms=100, log_segment_delete_delay_ms=100) as broker:
        rd.create_topic(
            broker.bootstrap, TOPIC, cleanup_policy="compact", segment_bytes=SEGMENT, min_cleanable_dirty_ratio=0.01
        )
        at = int(time.time() * 1000) - 1000
        rd.produce(broker.bootstrap, TOPIC, [Message(b"key", LARGE, at + n) for n in range(65)])
        rd.produce(broker.bootstrap, TOPIC, [Message(b"other", b"end", at + 100)])
        eventually(lambda: sum(segment_sizes(broker.log_dir / f"{TOPIC}-0")) < SEGMENT * 1.1)
        yield broker


def retained_offsets(broker: BrokerProcess) -> list[int]:
    offsets = [message.offset() for message in rd.consume(broker.bootstrap, TOPIC)]
    assert offsets[0] > 40
    assert offsets[-1] == 65
    return offsets


def test_librdkafka_reads_compacted_log(compacted: BrokerProcess) -> None:
    assert retained_offsets(compacted)


def test_kafka_python_reads_compacted_log(compacted: BrokerProcess) -> None:
    expected = retained_offsets(compacted)
    with closing(KafkaConsumer(bootstrap_servers=compacted.bootstrap, consumer_timeout_ms=20_000)) as reader:
        reader.assign([TopicPartition(TOPIC, 0)])
        reader.seek(TopicPartition(TOPIC, 0), 0)
        assert [record.offset for _, record in zip(expected, reader, strict=False)] == expected


def test_aiokafka_reads_compacted_log(compacted: BrokerProcess) -> None:
    expected = retained_offsets(compacted)

    async def offsets() -> list[int]:
        async with AIOKafkaConsumer(bootstrap_servers=compacted.bootstrap) as reader:
            reader.assign([AioPartition(TOPIC, 0)])
            reader.seek(AioPartition(TOPIC, 0), 0)
            return [(await reader.getone()).offset for _ in expected]

    assert asyncio.run(asyncio.wait_for(offsets(), 20)) == expected


def test_java_client_reads_compacted_log(compacted: BrokerProcess) -> None:
    expected = retained_offsets(compacted)
    command = java_command(
        kafka_classpath(),
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", compacted.bootstrap, "--topic", TOPIC, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(len(expected)), "--timeout-ms", "20000"),
        *("--property", "print.offset=true", "--property", "print.value=false"),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert [int(line.removeprefix("Offset:")) for line in done.stdout.splitlines()] == expected, done.stderr
