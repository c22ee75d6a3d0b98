"""Segments, retention and compaction, as a client sees them and in the folder."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import Message
from tests.waiting import eventually

SEGMENT = 1024 * 1024  # Kafka's minimum
LARGE = bytes(range(256)) * 400  # 100 KiB


@pytest.fixture(scope="module")
def cleaning_broker(new_broker: NewBroker) -> Iterator[BrokerProcess]:
    """A broker that cleans its logs continuously."""
    with new_broker(
        log_retention_check_interval_ms=100,
        log_initial_task_delay_ms=100,
        log_cleaner_backoff_ms=100,
        log_segment_delete_delay_ms=100,
    ) as broker:
        yield broker


def segments(broker: BrokerProcess, topic: str) -> list[Path]:
    return sorted((broker.log_dir / f"{topic}-0").glob("*.log"))


def earliest_offset(broker: BrokerProcess, topic: str) -> int:
    with rd.open_consumer(broker.bootstrap) as reader:
        low, _ = reader.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=10)
        return int(low)


def messages_of_age(count: int, age_ms: int) -> list[Message]:
    at = int(time.time() * 1000) - age_ms
    return [Message(b"%d" % number, LARGE, at + number) for number in range(count)]


def test_segments_roll_by_size_and_are_read_across(cleaning_broker: BrokerProcess, name: str) -> None:
    rd.create_topic(cleaning_broker.bootstrap, name, segment_bytes=SEGMENT)
    rd.produce(cleaning_broker.bootstrap, name, messages_of_age(50, 0))
    assert len(segments(cleaning_broker, name)) >= 5
    assert all(file.stat().st_size <= SEGMENT for file in segments(cleaning_broker, name))
    assert [message.offset() for message in rd.consume(cleaning_broker.bootstrap, name)] == list(range(50))


def test_retention_deletes_segments_by_size(cleaning_broker: BrokerProcess, name: str) -> None:
    rd.create_topic(cleaning_broker.bootstrap, name, segment_bytes=SEGMENT, retention_bytes=2 * SEGMENT)
    rd.produce(cleaning_broker.bootstrap, name, messages_of_age(60, 0))

    def sizes() -> list[int]:
        found = []
        for segment in segments(cleaning_broker, name):
            with suppress(FileNotFoundError):  # it was deleted since it was listed
                found.append(segment.stat().st_size)
        return found

    # A batch that does not fit begins another segment, so segments may be short, and more than two.
    eventually(
        lambda: sum(sizes()[1:]) < 2 * SEGMENT, message=lambda: f"retention.bytes needs all of {sizes()} but the first"
    )
    low = eventually(lambda: earliest_offset(cleaning_broker, name))
    assert [message.offset() for message in rd.consume(cleaning_broker.bootstrap, name)] == list(range(low, 60))


def test_retention_deletes_segments_by_time(cleaning_broker: BrokerProcess, name: str) -> None:
    rd.create_topic(cleaning_broker.bootstrap, name, segment_bytes=SEGMENT, retention_ms=60_000)
    rd.produce(cleaning_broker.bootstrap, name, messages_of_age(30, 3_600_000))
    eventually(
        lambda: earliest_offset(cleaning_broker, name) == 30, message="all records, which are an hour old, are deleted"
    )
    assert rd.produce(cleaning_broker.bootstrap, name, messages_of_age(2, 0)) == [30, 31]
    assert [message.offset() for message in rd.consume(cleaning_broker.bootstrap, name)] == [30, 31]


def test_changed_config_takes_effect_while_running(cleaning_broker: BrokerProcess, name: str) -> None:
    rd.create_topic(cleaning_broker.bootstrap, name, segment_bytes=SEGMENT, retention_ms=-1)
    rd.produce(cleaning_broker.bootstrap, name, messages_of_age(30, 3_600_000))
    assert earliest_offset(cleaning_broker, name) == 0
    resource = rd.config_change(name, "retention.ms", "60000")
    client = rd.admin_client(cleaning_broker.bootstrap)
    client.incremental_alter_configs([resource])[resource].result(30)
    eventually(lambda: earliest_offset(cleaning_broker, name) == 30)


def test_compaction_keeps_the_last_value_of_each_key(cleaning_broker: BrokerProcess, name: str) -> None:
    rd.create_topic(
        cleaning_broker.bootstrap,
        name,
        cleanup_policy="compact",
        segment_bytes=SEGMENT,
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=100,
    )
    at = int(time.time() * 1000) - 1000
    records = [Message(b"key %d" % (number % 5), b"%d " % number + LARGE, at + number) for number in range(60)]
    records.append(Message(b"key 0", None, at + 100))
    rd.produce(cleaning_broker.bootstrap, name, records)
    newer = [Message(b"key 1", LARGE, at + 200 + number) for number in range(11)]

    def is_compacted_after_more_records() -> bool:
        # A later cleaning removes the tombstone, and needs new records.
        rd.produce(cleaning_broker.bootstrap, name, newer)
        kept = rd.consume(cleaning_broker.bootstrap, name)
        return kept[0].offset() > 40 and b"key 0" not in {message.key() for message in kept}

    eventually(is_compacted_after_more_records, message="old values and the tombstone are gone")
    kept = rd.consume(cleaning_broker.bootstrap, name)
    offsets = [message.offset() for message in kept]
    assert offsets == sorted(set(offsets)), "offsets stay, with gaps"
    last = {message.key(): message for message in kept}
    for number in (57, 58, 59):
        assert last[b"key %d" % (number % 5)].offset() == number
        assert last[b"key %d" % (number % 5)].value() == b"%d " % number + LARGE
    assert last[b"key 1"].offset() == kept[-1].offset()
