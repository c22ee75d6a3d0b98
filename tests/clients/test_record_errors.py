"""A batch that is rejected because of single records: clients learn which they are (KIP-467).

Each client gives the invalid records the broker's error, and the others an error that says that
their batch was rejected.
"""

import re
import subprocess
import time
from collections.abc import Collection
from contextlib import closing

import confluent_kafka as ck
import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import Message
from tests.jars import java_command

HOUR_MS = 3_600_000
INVALID = (3, 7)
LONG_ENOUGH_FOR_ONE_BATCH_MS = 5_000  # flush() does not wait for it


def ten_records(*, without_key: Collection[int] = (), hours_old: Collection[int] = ()) -> list[Message]:
    """Ten records, of which those at the given indexes have no key, or are two hours old."""
    now_ms = time.time_ns() // 1_000_000
    return [
        Message(
            None if index in without_key else b"k",
            b"v%d" % index,
            now_ms - 2 * HOUR_MS if index in hours_old else now_ms,
        )
        for index in range(10)
    ]


def produce_with_librdkafka(
    bootstrap: str, topic: str, records: list[Message], compression: str
) -> list[ck.KafkaError]:
    """Produces one batch, which must be rejected; returns the error of each record."""
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": LONG_ENOUGH_FOR_ONE_BATCH_MS,
            "compression.type": compression,
            "enable.idempotence": False,
        }
    )
    errors: dict[bytes, ck.KafkaError] = {}

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        assert error is not None and message.value() is not None
        errors[message.value()] = error

    # The producer must know the topic. Otherwise flush() moves the records to its partition one by
    # one, and may send a batch before the last of them.
    producer.list_topics(topic, 30)
    for record in records:
        producer.produce(topic, record.value, record.key, 0, on_delivery=delivered, timestamp=record.timestamp_ms)
    assert producer.flush(30) == 0
    return [errors[record.value or b""] for record in records]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_librdkafka_tells_invalid_records_from_their_neighbours(
    broker: BrokerProcess, name: str, compression: str
) -> None:
    rd.create_topic(broker.bootstrap, name, cleanup_policy="compact")
    errors = produce_with_librdkafka(broker.bootstrap, name, ten_records(without_key=INVALID), compression)
    assert [index for index, error in enumerate(errors) if error.code() == ck.KafkaError.INVALID_RECORD] == list(
        INVALID
    )
    assert {error.code() for index, error in enumerate(errors) if index not in INVALID} == {
        ck.KafkaError._INVALID_DIFFERENT_RECORD
    }


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_librdkafka_learns_which_timestamps_are_invalid(broker: BrokerProcess, name: str, compression: str) -> None:
    rd.create_topic(broker.bootstrap, name, message_timestamp_before_max_ms=HOUR_MS)
    errors = produce_with_librdkafka(broker.bootstrap, name, ten_records(hours_old=INVALID), compression)
    # librdkafka has one code for records that are named, whatever is invalid in them.
    assert tuple(index for index, error in enumerate(errors) if error.code() == ck.KafkaError.INVALID_RECORD) == INVALID


def test_kafka_python_tells_invalid_records_from_their_neighbours(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, cleanup_policy="compact")
    messages = []
    with closing(
        KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=LONG_ENOUGH_FOR_ONE_BATCH_MS, retries=0)
    ) as producer:
        pending = [
            producer.send(name, record.value, record.key, partition=0, timestamp_ms=record.timestamp_ms)
            for record in ten_records(without_key=INVALID)
        ]
        producer.flush(30)
        for future in pending:
            with pytest.raises(KafkaError) as rejected:
                future.get(30)
            messages.append(str(rejected.value))
    neighbours = {message for index, message in enumerate(messages) if index not in INVALID}
    assert len(neighbours) == 1
    assert not neighbours & {messages[index] for index in INVALID}


def test_the_java_client_tells_invalid_records_from_their_neighbours(
    broker: BrokerProcess, name: str, classpath: str
) -> None:
    rd.create_topic(broker.bootstrap, name, cleanup_policy="compact")
    lines = "".join(f"v{index}\n" if index in INVALID else f"k\tv{index}\n" for index in range(10))
    command = java_command(
        classpath,
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", broker.bootstrap, "--topic", name, "--timeout", str(LONG_ENOUGH_FOR_ONE_BATCH_MS)),
        *("--property", "parse.key=true", "--property", "ignore.error=true"),
    )
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=90, check=False)
    output = done.stdout + done.stderr
    assert len(re.findall(r"with key: null.*\n.*InvalidRecordException", output)) == len(INVALID), output
    assert len(re.findall(r"with key: 1 bytes.*\n.*part of a batch", output)) == 10 - len(INVALID), output
