"""A broker that ends by SIGTERM or SIGKILL has its state again after the next start."""

import threading
from collections.abc import Callable

import confluent_kafka as ck
import pytest

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.group_members import GroupMember, run_members, wait_until_balanced
from tests.clients.sample_messages import messages
from tests.waiting import eventually

ENDS = (BrokerProcess.stop, BrokerProcess.kill)


@pytest.mark.parametrize("end", ENDS, ids=["SIGTERM", "SIGKILL"])
def test_records_configs_and_commits_are_kept(new_broker: NewBroker, end: Callable[[BrokerProcess], object]) -> None:
    with new_broker() as broker:
        rd.create_topic(broker.bootstrap, "kept", 3, retention_ms=-1, segment_bytes=1048576)
        for partition in range(3):
            rd.produce(broker.bootstrap, "kept", messages(), partition=partition, compression_type="lz4")
        with rd.open_consumer(broker.bootstrap, "group") as reader:
            reader.commit(offsets=[ck.TopicPartition("kept", 1, 33, metadata="half way")], asynchronous=False)
        before = rd.topic_id(broker.bootstrap, "kept")
        end(broker)
        broker.start()
        assert rd.topic_id(broker.bootstrap, "kept") == before
        for partition in range(3):
            assert rd.to_messages(rd.consume(broker.bootstrap, "kept", partition=partition)) == messages()
        with rd.open_consumer(broker.bootstrap, "group") as reader:
            (found,) = reader.committed([ck.TopicPartition("kept", 1)], timeout=20)
        assert (found.offset, found.metadata) == (33, "half way")
        assert rd.produce(broker.bootstrap, "kept", messages()) == list(range(50, 100))


@pytest.mark.parametrize("end", ENDS, ids=["SIGTERM", "SIGKILL"])
def test_idempotent_producer_continues_without_loss_or_duplicates(
    new_broker: NewBroker, end: Callable[[BrokerProcess], object]
) -> None:
    with new_broker() as broker:
        rd.create_topic(broker.bootstrap, "sequence")
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 1})
        refused: list[ck.KafkaError] = []
        sent = 0
        halfway, stop = threading.Event(), threading.Event()

        def on_delivery(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is not None:
                refused.append(error)

        def send() -> None:
            nonlocal sent
            while not stop.is_set():
                producer.produce("sequence", b"%d" % sent, on_delivery=on_delivery)
                sent += 1
                producer.poll(0.001)
                if sent == 500:
                    halfway.set()

        thread = threading.Thread(target=send)
        thread.start()
        try:
            assert halfway.wait(30)
            for _ in range(2):
                end(broker)
                broker.start()
        finally:
            stop.set()
            thread.join()
        assert producer.flush(30) == 0
        assert refused == []
        got = [int(value or b"") for value in rd.values_of(rd.consume(broker.bootstrap, "sequence"))]
        assert got == list(range(sent))


@pytest.mark.parametrize("end", ENDS, ids=["SIGTERM", "SIGKILL"])
def test_group_members_rejoin_and_read_on(new_broker: NewBroker, end: Callable[[BrokerProcess], object]) -> None:
    with new_broker() as broker:
        rd.create_topic(broker.bootstrap, "work", 4)
        settings: dict[str, object] = {"reconnect_backoff_max_ms": 200, "auto_commit_interval_ms": 100}
        with run_members(broker.bootstrap, "workers", "work", [settings, settings]) as both:
            wait_until_balanced(both, 4)
            rd.produce(broker.bootstrap, "work", rd.numbered_messages(0, 10), partition=0)
            eventually(lambda: count_values(both) == 10)
            end(broker)
            broker.start()
            rd.produce(broker.bootstrap, "work", rd.numbered_messages(10, 20), partition=3)
            eventually(
                lambda: {b"value 19", b"value 10"} <= {value for one in both for value in one.values}, within_s=30
            )
            wait_until_balanced(both, 4)


def test_torn_tail_is_truncated(new_broker: NewBroker) -> None:
    with new_broker() as broker:
        rd.create_topic(broker.bootstrap, "torn")
        rd.produce(broker.bootstrap, "torn", messages())
        broker.kill()
        (log,) = (broker.log_dir / "torn-0").glob("*.log")
        whole = log.read_bytes()
        log.write_bytes(whole + whole[: len(whole) // 3])  # as after an incomplete append
        broker.start()
        assert rd.to_messages(rd.consume(broker.bootstrap, "torn")) == messages()
        assert rd.produce(broker.bootstrap, "torn", rd.numbered_messages(0, 1)) == [50]


def test_acknowledged_records_of_a_topic_with_flush_messages_survive_sigkill(new_broker: NewBroker) -> None:
    with new_broker() as broker:
        rd.create_topic(broker.bootstrap, "flushed", flush_messages=1)
        assert len(rd.produce(broker.bootstrap, "flushed", messages(), linger_ms=0)) == 50
        broker.kill()
        broker.start()
        assert rd.to_messages(rd.consume(broker.bootstrap, "flushed")) == messages()


def count_values(members: list[GroupMember]) -> int:
    return sum(len(member.values) for member in members)
