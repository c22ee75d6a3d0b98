"""`ottla transactions` on a real broker."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.api_session import ApiSession, encode_values
from tests.clients.conftest import NewBroker
from tests.clients.test_transactions import transactional_producer
from tests.ottla_command import run_ottla
from tests.waiting import eventually

HANGING_PRODUCER = 4000


@pytest.fixture(scope="module")
def unverified(new_broker: NewBroker) -> Iterator[BrokerProcess]:
    """A broker that lets a batch begin a transaction its coordinator does not know of, as brokers
    before KIP-890 did.
    """
    with new_broker(transaction_partition_verification_enable=False) as broker:
        yield broker


def run_command(broker: BrokerProcess, *arguments: str) -> tuple[int, str]:
    done = run_ottla("transactions", *arguments, "-b", broker.bootstrap)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def read_json(broker: BrokerProcess, *arguments: str) -> Any:
    code, text = run_command(broker, *arguments, "-o", "json")
    assert code == 0, text
    return json.loads(text)


def begin_transaction(broker: BrokerProcess, name: str) -> ck.Producer:
    producer = transactional_producer(broker, name)
    producer.begin_transaction()
    producer.produce(name, b"open")
    producer.flush(10)
    return producer


def begin_hanging_transaction(broker: BrokerProcess, topic: str) -> None:
    """Appends a batch of a transaction that no coordinator knows."""
    batch = encode_values(
        b"hanging", producer_id=HANGING_PRODUCER, producer_epoch=3, base_sequence=0, transactional=True
    )

    async def send() -> None:
        session = ApiSession(broker.host, broker.port, topic, "produce", 11)
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        answer = await session.send(
            "produce", version=11, transactional_id="unknown", acks=-1, timeout=10_000, topic_data=data
        )
        session.close()
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    asyncio.run(send())


def test_open_transaction_is_listed_described_and_fenced(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    producer = begin_transaction(broker, name)
    (listed,) = read_json(broker, "list", "--state", "Ongoing", "--pattern", f"{name}.*")
    assert (listed["transactionalId"], listed["state"], listed["coordinator"]) == (name, "Ongoing", 1)
    assert read_json(broker, "list", "--producer-id", str(listed["producerId"])) == [listed]
    assert read_json(broker, "list", "--pattern", name, "--longer-than", "1h") == []
    described = read_json(broker, "describe", name)
    assert described["state"] == "Ongoing" and described["partitions"] == [f"{name}-0"] and described["started"]
    (of_partition,) = read_json(broker, "producers", f"{name}:0")
    assert (of_partition["producerId"], of_partition["startOffset"]) == (listed["producerId"], 0)
    assert read_json(broker, "find-hanging", "--topic", name, "--older-than", "0s") == []

    assert run_command(broker, "fence", name, "--yes") == (0, f"{name} fenced\n")
    assert read_json(broker, "describe", name)["started"] is None
    assert rd.consume(broker.bootstrap, name, isolation_level="read_committed") == []
    with pytest.raises(ck.KafkaException) as fenced:
        producer.commit_transaction(30)
    assert fenced.value.args[0].fatal()


def test_hanging_transaction_is_found_and_aborted(unverified: BrokerProcess, name: str) -> None:
    rd.create_topic(unverified.bootstrap, name)
    begin_hanging_transaction(unverified, name)
    rd.produce(unverified.bootstrap, name, rd.numbered_messages(0, 1))
    assert rd.consume(unverified.bootstrap, name, isolation_level="read_committed") == []

    found = read_json(unverified, "find-hanging", "--older-than", "0s")
    assert [(it["topic"], it["partition"], it["producerId"], it["startOffset"]) for it in found] == [
        (name, 0, HANGING_PRODUCER, 0)
    ]
    assert read_json(unverified, "find-hanging", "--broker", "9", "--older-than", "0s") == []
    code, text = run_command(unverified, "abort", f"{name}:0", "--start-offset", "0", "--dry-run")
    assert code == 0 and "would be aborted" in text
    assert run_command(unverified, "abort", f"{name}:0", "--start-offset", "7", "--yes")[0] == 3
    code, text = run_command(unverified, "abort", f"{name}:0", "--start-offset", "0", "--yes")
    assert (code, text) == (0, f"transaction of producer {HANGING_PRODUCER} (epoch 3) in {name}-0 aborted\n")
    assert eventually(lambda: len(rd.consume(unverified.bootstrap, name, isolation_level="read_committed")) == 1)
    assert read_json(unverified, "find-hanging", "--older-than", "0s") == []


def test_hanging_transaction_is_aborted_by_its_producer(unverified: BrokerProcess, name: str) -> None:
    rd.create_topic(unverified.bootstrap, name)
    begin_hanging_transaction(unverified, name)
    by_producer = ("--producer-id", str(HANGING_PRODUCER), "--producer-epoch", "3", "--coordinator-epoch", "0")
    assert run_command(unverified, "abort", f"{name}:0", *by_producer, "--yes")[0] == 0
    assert read_json(unverified, "find-hanging", "--topic", name, "--older-than", "0s") == []


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (("describe", "nobody"), 3, "there is no transactional id 'nobody'"),
        (("fence", "nobody", "--yes"), 3, "there is no transactional id 'nobody'"),
        (("list", "--state", "Nonsense"), 1, "knows no state 'Nonsense'"),
        (("list", "--pattern", "("), 1, "invalid regular expression"),
        (("list", "--longer-than", "soon"), 2, "'soon' is not a duration"),
        (("producers", "nowhere:0"), 3, "there is no topic 'nowhere'"),
        (("producers", "nowhere"), 2, "is not TOPIC:PARTITION"),
        (("abort", "nowhere:0", "--yes"), 2, "give --start-offset"),
        (("abort", "nowhere:0", "--start-offset", "0", "--producer-epoch", "0", "--yes"), 2, "give --start-offset"),
        (("abort", "nowhere:0", "--producer-id", "0", "--producer-epoch", "0", "--yes"), 2, "give --start-offset"),
    ],
)
def test_errors_name_what_is_wrong(broker: BrokerProcess, arguments: tuple[str, ...], code: int, message: str) -> None:
    found, text = run_command(broker, *arguments)
    assert (found, message in text) == (code, True), text
