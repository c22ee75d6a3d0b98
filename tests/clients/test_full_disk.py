"""A full disk: produce requests are rejected, reads continue, and the broker recovers when there is
space again.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import START_MS, Message
from tests.disks import fill_disk, mount_small_disk
from tests.waiting import eventually

LARGE = os.urandom(100_000)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose `data` is a file system of 64 MB."""
    with mount_small_disk(tmp_path / "data", 64):
        yield tmp_path


def test_full_disk_rejects_produce_requests_and_recovers(broker_kind: str, new_broker: NewBroker, folder: Path) -> None:
    if broker_kind == "kafka":
        pytest.skip("Apache Kafka takes its only log directory offline at the first failed write, and exits")
    with new_broker(folder=folder) as broker:
        rd.create_topic(broker.bootstrap, "full")
        count = len(rd.produce(broker.bootstrap, "full", records(50)))
        filler = broker.log_dir / "filler"
        fill_disk(filler)
        refused = error_of_produce(broker)
        assert refused == ck.KafkaError.KAFKA_STORAGE_ERROR
        assert error_of_produce(broker) == refused
        got = rd.consume(broker.bootstrap, "full")
        assert [message.offset() for message in got[:count]] == list(range(count))
        assert all(message.value() == LARGE for message in got)
        assert broker.is_running
        filler.unlink()
        eventually(lambda: is_record_accepted(broker), within_s=30, message="produce requests are accepted again")
        total = len(rd.consume(broker.bootstrap, "full"))
        broker.restart()
        assert len(rd.consume(broker.bootstrap, "full")) == total


def records(count: int) -> list[Message]:
    return [Message(None, LARGE, START_MS) for _ in range(count)]


def error_of_produce(broker: BrokerProcess) -> int:
    """The error code of a produce request, which must be rejected: its records are larger than
    what is left of the log's last page.
    """
    with pytest.raises(ck.KafkaException) as refused:
        rd.produce(broker.bootstrap, "full", records(3), retries=0, message_send_max_retries=0)
    return int(refused.value.args[0].code())


def is_record_accepted(broker: BrokerProcess) -> bool:
    try:
        return bool(rd.produce(broker.bootstrap, "full", records(1), message_timeout_ms=2000))
    except ck.KafkaException:
        return False
