"""Client quotas with librdkafka, kafka-python and Java's tools on a broker that allows a burst of
one second. The tests read from its metrics for how long it has throttled clients.
"""

import asyncio
import re
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from random import Random
from time import monotonic

import confluent_kafka as ck
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.api_session import ApiSession
from tests.clients.conftest import NewBroker
from tests.clients.quota_cases import entity, ops
from tests.clients.share_member import ACCEPT, ShareMember, begin_at_earliest, run_in_session
from tests.e2e.java_tools import run_java_tool
from tests.ports import free_port
from tests.waiting import eventually

WITHIN_S = 60.0
RATE = 40_000.0
SHARE_CLIENT_ID = "share-member"  # of ShareMember
PAYLOAD = 120_000  # three seconds' worth, of which the first is the burst


@dataclass(frozen=True)
class QuotaBroker:
    broker: BrokerProcess
    metrics_url: str

    def throttle_seconds(self, quota: str, entity: str, client_id: str = "") -> float:
        """Seconds for which the broker has throttled a user, an address or a client id so far."""
        labels = re.escape(f'{{quota="{quota}",entity="{entity}",client_id="{client_id}"}}')
        text = urllib.request.urlopen(self.metrics_url, timeout=10).read().decode()
        found = re.search(rf"^ottla_client_quota_throttle_seconds_total{labels} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    @contextmanager
    def assert_rate_is_held(self, quota: str, entity: str, client_id: str) -> Iterator[None]:
        """Asserts that a client that transfers PAYLOAD bytes inside the block is held to RATE. It
        is throttled for what exceeds the burst of one second, and a little longer for headers. A
        client that is slow by itself is throttled for less, and takes as long.
        """
        started_at = monotonic()
        yield
        elapsed_s = monotonic() - started_at
        throttled_s = self.throttle_seconds(quota, entity, client_id)
        assert 0 < throttled_s <= 1.1 * PAYLOAD / RATE - 1 + 0.1
        assert max(throttled_s, elapsed_s) >= PAYLOAD / RATE - 1 - 0.1

    def set_quota(self, *parts: tuple[str, str | None], **values: float | None) -> None:
        async def send() -> None:
            session = ApiSession("127.0.0.1", self.broker.port, "run", "alter_client_quotas", 1)
            with closing(session):
                answer = await session.send(
                    "alter_client_quotas", entries=[{"entity": entity(*parts), "ops": ops(**values)}]
                )
            assert answer.entries[0].error_code.name == "none", answer

        asyncio.run(send())


@pytest.fixture(scope="module")
def limited(broker_kind: str, new_broker: NewBroker) -> Iterator[QuotaBroker]:
    if broker_kind == "kafka":
        pytest.skip("the metrics are Ottla's")
    port = free_port()
    with new_broker(quota_window_num=2, controller_quota_window_num=1, http_listener=f"127.0.0.1:{port}") as broker:
        yield QuotaBroker(broker, f"http://127.0.0.1:{port}/metrics")


def incompressible_payload() -> list[bytes]:
    """Values of 1000 bytes, PAYLOAD bytes in all."""
    random = Random(1)
    return [random.randbytes(1000) for _ in range(PAYLOAD // 1000)]


def test_librdkafka_produces_and_consumes_at_the_rate_of_its_client_id(limited: QuotaBroker, name: str) -> None:
    bootstrap = limited.broker.bootstrap
    rd.create_topic(bootstrap, name)
    limited.set_quota(("client-id", name), producer_byte_rate=RATE, consumer_byte_rate=RATE)
    throttle_times: list[float] = []
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "batch.size": 4000,
            "throttle_cb": lambda event: throttle_times.append(event.throttle_time),
        }
    )
    values = incompressible_payload()
    failed: list[object] = []
    with limited.assert_rate_is_held("producer_byte_rate", "", name):
        for value in values:
            producer.produce(name, value, on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(WITHIN_S) == 0 and not failed
    assert throttle_times, "the client was not told its throttle time"
    with limited.assert_rate_is_held("consumer_byte_rate", "", name):
        assert rd.values_of(rd.consume(bootstrap, name, len(values), client_id=name)) == values


def test_kafka_python_produces_and_consumes_at_the_rate_of_its_user_and_client_id(
    limited: QuotaBroker, name: str
) -> None:
    bootstrap = limited.broker.bootstrap
    rd.create_topic(bootstrap, name)
    both = (("user", "ANONYMOUS"), ("client-id", name))
    limited.set_quota(*both, producer_byte_rate=RATE, consumer_byte_rate=RATE)
    values = incompressible_payload()
    with (
        limited.assert_rate_is_held("producer_byte_rate", "ANONYMOUS", name),
        closing(KafkaProducer(bootstrap_servers=bootstrap, client_id=name, batch_size=4000)) as producer,
    ):
        sent = [producer.send(name, value) for value in values]
        assert sorted(it.get(WITHIN_S).offset for it in sent) == list(range(len(values)))
    with (
        limited.assert_rate_is_held("consumer_byte_rate", "ANONYMOUS", name),
        closing(KafkaConsumer(bootstrap_servers=bootstrap, client_id=name, consumer_timeout_ms=30_000)) as consumer,
    ):
        consumer.assign([TopicPartition(name, 0)])
        consumer.seek_to_beginning()
        read = [next(consumer).value for _ in values]
    assert read == values


def test_share_consumer_is_held_to_the_rate_of_its_client_id(limited: QuotaBroker, name: str) -> None:
    bootstrap = limited.broker.bootstrap
    rd.create_topic(bootstrap, name)
    values = incompressible_payload()
    producer = ck.Producer({"bootstrap.servers": bootstrap, "batch.size": 4000})
    for value in values:
        producer.produce(name, value)
    assert producer.flush(WITHIN_S) == 0
    begin_at_earliest(limited.broker, name)
    limited.set_quota(("client-id", SHARE_CLIENT_ID), consumer_byte_rate=RATE)
    read: list[bytes] = []
    largest = 0

    async def test(member: ShareMember) -> None:
        nonlocal largest
        await member.join()
        done: list[tuple[int, int, int, int]] = []
        while len(read) < len(values):
            records, _ = await member.fetch(1, max_records=1000, acknowledged=done)
            done = [(0, records[0].offset, records[-1].offset, ACCEPT)] if records else []
            largest = max(largest, len(records))
            read.extend(it.value for it in records)

    with limited.assert_rate_is_held("consumer_byte_rate", "", SHARE_CLIENT_ID):
        run_in_session(ShareMember(name, name, bootstrap), test)
    assert read == values
    assert 1000 * largest <= 2 * RATE  # a window and its burst


def test_others_are_not_throttled_and_a_removed_quota_ends(limited: QuotaBroker, name: str) -> None:
    bootstrap = limited.broker.bootstrap
    rd.create_topic(bootstrap, name)
    limited.set_quota(("client-id", name), producer_byte_rate=1.0)
    record = list(rd.numbered_messages(0, 1))
    assert rd.produce(bootstrap, name, record, client_id="another") == [0]
    assert limited.throttle_seconds("producer_byte_rate", "", name) == 0
    limited.set_quota(("client-id", name), producer_byte_rate=None)
    assert [rd.produce(bootstrap, name, record, client_id=name) for _ in range(3)] == [[1], [2], [3]]
    assert limited.throttle_seconds("producer_byte_rate", "", name) == 0


def test_java_tools_get_an_error_when_they_change_too_many_partitions(limited: QuotaBroker, name: str) -> None:
    tool, at = "org.apache.kafka.tools.TopicCommand", ("--bootstrap-server", limited.broker.bootstrap)
    limited.set_quota(("user", "ANONYMOUS"), controller_mutation_rate=0.001)
    try:
        run_java_tool(tool, *at, "--create", "--topic", name, "--partitions", "3")  # more than the quota allows: a debt
        with pytest.raises(AssertionError, match=r"The throttling quota has been exceeded|controller_mutation_rate"):
            run_java_tool(tool, *at, "--create", "--topic", f"{name}.2", "--partitions", "1")
    finally:
        limited.set_quota(("user", "ANONYMOUS"), controller_mutation_rate=None)
    assert f"{name}.2" not in run_java_tool(tool, *at, "--list").split()


def test_address_that_connects_too_often_is_refused_until_it_waits(limited: QuotaBroker) -> None:
    limited.set_quota(("ip", "127.0.0.1"), connection_creation_rate=5.0)
    try:
        for _ in range(20):
            socket.create_connection(("127.0.0.1", limited.broker.port), timeout=10).close()
        eventually(
            lambda: limited.throttle_seconds("connection_creation_rate", "127.0.0.1") > 0,
            within_s=WITHIN_S,
            message="refused connections",
        )
        assert rd.admin_client(limited.broker.bootstrap).list_topics(timeout=WITHIN_S).brokers  # librdkafka tries again
    finally:
        eventually(lambda: is_quota_removed(limited), within_s=WITHIN_S, message="a connection that removes the quota")


def is_quota_removed(limited: QuotaBroker) -> bool:
    try:
        limited.set_quota(("ip", "127.0.0.1"), connection_creation_rate=None)
    except ConnectionError:
        return False
    return True
