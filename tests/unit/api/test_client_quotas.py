"""Requests of a client with quotas: what is charged, what the response says, and when the
connection is muted. Time passes only where a test says so, and all bytes are counted.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.errors import ErrorCode

from ottla_broker.api.create_topics import create_topics
from ottla_broker.broker import Broker
from ottla_broker.dispatcher import RequestDispatcher
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.requests.reply import Buffers
from ottla_broker.runtime import Runtime
from ottla_broker.security.authorizer import AllowAll
from ottla_broker.security.client_quota_manager import ClientQuotaManager, QuotaWindows
from ottla_broker.security.client_quotas import QuotaEntity
from ottla_broker.security.principal import Principal
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_response, write_request
from ottla_broker.wire.request_header import read_request_header
from tests.clients.api_session import build_message
from tests.unit.api.brokers import SmallBroker, append, batch
from tests.unit.api.requests import fetch_request, produce_request
from tests.unit.async_tests import async_test
from tests.unit.broker_without_sockets import run_broker

ALICE: QuotaEntity = (("user", "alice"),)
PLENTY = 1 << 30


@dataclass
class QuotaClient:
    """Sends requests as User:alice with the client id `me` to a broker whose clock is `now_s`.
    `muted_s`: for how long the connection was muted, each time.
    """

    broker: SmallBroker
    now_s: float = 1000.0
    muted_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.broker.client_quotas = ClientQuotaManager(QuotaWindows(), lambda: self.now_s)
        self.broker.runtime = Runtime(processing_clock=lambda: self.now_s)
        self.dispatcher = RequestDispatcher(cast(Broker, self.broker))
        alice = Principal("User", "alice")
        self.connection = ConnectionState("127.0.0.1", 1, "PLAINTEXT", alice, mute=self.muted_s.append)

    def set_quota(self, **limits: float) -> None:
        self.broker.client_quotas.update({ALICE: limits})

    async def send(self, key: ApiKey, version: int, request: Any) -> tuple[Any, int]:
        """The response and the size of the request."""
        frame = write_request(key, version, 1, "me", request)[4:]
        header = read_request_header(frame)
        reply = self.dispatcher.dispatch(frame, header, self.connection, PLENTY)
        assert reply is not None
        buffers: Buffers = await reply if isinstance(reply, asyncio.Future) else reply
        return read_response(b"".join(buffers)[4:], key, version), len(frame)

    async def produce(self, size: int, version: int = 9) -> tuple[int, int]:
        """The throttle time in ms, and the size of the request."""
        response, sent = await self.send(ApiKey.PRODUCE, version, produce_request({("a", 0): batch(bytes(size))}))
        assert response.responses[0].partition_responses[0].error_code is ErrorCode.none
        return throttle_time_ms(response), sent

    async def fetch(self, offset: int = 0, **more: Any) -> tuple[Any, int]:
        """The response and its throttle time in ms."""
        response, _ = await self.send(ApiKey.FETCH, 12, fetch_request({("a", 0): offset}, **more))
        return response, throttle_time_ms(response)


def throttle_time_ms(response: Any) -> int:
    return int(response.throttle_time / timedelta(milliseconds=1))


def fetched_bytes(response: Any) -> int:
    return sum(len(p.records or b"") for topic in response.responses for p in topic.partitions)


@async_test
async def test_producer_is_answered_at_once_and_muted_until_it_is_within_its_quota(broker: SmallBroker) -> None:
    broker.add_topic("a")
    client = QuotaClient(broker)
    client.set_quota(producer_byte_rate=1000.0)
    sent, total_throttle_ms = 0, 0
    while not client.muted_s:
        throttle_ms, size = await client.produce(900)
        sent, total_throttle_ms = sent + size, total_throttle_ms + throttle_ms
    assert sent > 10_000 >= sent - size  # ten seconds' worth at once, and not one request more
    assert total_throttle_ms == pytest.approx((sent / 10 - 1000) / 1000 * 10_000, abs=1)
    assert client.muted_s == [total_throttle_ms / 1000]


@async_test
async def test_producer_that_is_muted_for_each_throttle_time_sends_its_quota_in_a_minute(broker: SmallBroker) -> None:
    broker.add_topic("a")
    client = QuotaClient(broker)
    client.set_quota(producer_byte_rate=50_000.0)
    sent: list[tuple[float, int]] = []
    while client.now_s < 1090.0:
        throttle_ms, size = await client.produce(5000)
        sent.append((client.now_s, size))
        client.now_s += 0.001 + throttle_ms / 1000
    over_a_minute = sum(size for at_s, size in sent if 1025.0 <= at_s < 1085.0)
    assert over_a_minute == pytest.approx(60 * 50_000, rel=0.02)


@async_test
async def test_old_and_new_versions_of_produce_say_the_throttle_time(broker: SmallBroker) -> None:
    broker.add_topic("a")
    for version in (3, 5, 8, 9, 12):
        client = QuotaClient(broker)
        client.set_quota(producer_byte_rate=1.0)
        throttle_ms, _ = await client.produce(100, version)
        assert client.muted_s == [throttle_ms / 1000] and throttle_ms > 0


@async_test
async def test_throttled_fetch_is_empty_and_is_not_counted(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    for _ in range(40):
        append(partition, bytes(400))
    client = QuotaClient(broker)
    client.set_quota(consumer_byte_rate=1000.0)
    first, throttle_ms = await client.fetch()
    sent = fetched_bytes(first)
    assert throttle_ms == 0 and 9000 < sent <= 10_000  # capped to what an idle client may use
    second, throttle_ms = await client.fetch(offset=20)
    assert second.responses == () and 0 < throttle_ms <= 1000
    assert client.muted_s == [throttle_ms / 1000]
    client.now_s += throttle_ms / 1000
    third, throttle_ms = await client.fetch(offset=20)  # the records that the second did not get
    assert throttle_ms == 0 and fetched_bytes(third) <= 1000
    client.now_s += (sent + fetched_bytes(third)) / 1000  # the time for what was sent, and for nothing else
    fourth, throttle_ms = await client.fetch()
    assert throttle_ms == 0 and fetched_bytes(fourth) == sent


@async_test
async def test_consumer_that_is_muted_for_each_throttle_time_gets_its_quota_in_a_minute(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    for _ in range(400):
        append(partition, bytes(4000))
    client = QuotaClient(broker)
    client.set_quota(consumer_byte_rate=50_000.0)
    sent: list[tuple[float, int]] = []
    while client.now_s < 1090.0:
        response, throttle_ms = await client.fetch()  # from the beginning: as many bytes as are allowed
        sent.append((client.now_s, fetched_bytes(response)))
        client.now_s += 0.001 + throttle_ms / 1000
    over_a_minute = sum(size for at_s, size in sent if 1025.0 <= at_s < 1085.0)
    assert over_a_minute == pytest.approx(60 * 50_000, rel=0.02)


@async_test
async def test_batch_larger_than_all_windows_is_sent_to_an_idle_consumer_which_then_waits(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, bytes(50_000))
    append(partition, bytes(100))
    client = QuotaClient(broker)
    client.set_quota(consumer_byte_rate=1000.0)
    found, throttle_ms = await client.fetch()
    assert fetched_bytes(found) > 50_000
    assert throttle_ms == pytest.approx(40_000, rel=0.02)
    found, throttle_ms = await client.fetch(offset=1)
    assert fetched_bytes(found) == 0 and throttle_ms > 0


@async_test
async def test_throttled_fetch_keeps_its_session_but_begins_none(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, bytes(9000))
    client = QuotaClient(broker)
    client.set_quota(consumer_byte_rate=1000.0)
    begun, _ = await client.fetch(session=(0, 0))
    assert begun.session_id > 0
    again, throttle_ms = await client.fetch(session=(begun.session_id, 1))
    assert throttle_ms > 0 and again.session_id == begun.session_id and again.responses == ()
    client.now_s += 11.0
    kept, throttle_ms = await client.fetch(session=(begun.session_id, 2))
    assert throttle_ms == 0 and fetched_bytes(kept) > 9000
    refused, throttle_ms = await client.fetch(session=(0, 0))
    assert throttle_ms > 0 and refused.session_id == 0


@async_test
async def test_time_of_the_brokers_thread_is_limited_by_request_percentage(broker: SmallBroker) -> None:
    broker.add_topic("a")
    client = QuotaClient(broker)
    client.set_quota(request_percentage=10.0)
    quotas = broker.client_quotas.of_client("alice", "me")
    assert quotas.request is not None
    response, _ = await client.send(ApiKey.PRODUCE, 9, produce_request({("a", 0): batch(b"x")}))
    assert throttle_time_ms(response) == 0
    quotas.request.take(100 * 1.05, client.now_s)  # 1.05 s of the thread in 10 s
    response, _ = await client.send(ApiKey.PRODUCE, 9, produce_request({("a", 0): batch(b"x")}))
    assert throttle_time_ms(response) == 500  # (10.5 − 10) / 10 × 10 s
    quotas.request.take(100 * 5.0, client.now_s)
    found, throttle_ms = await client.fetch()
    assert throttle_ms == 1000 and found.responses == ()  # at most one window at once, and nothing is read


@async_test
async def test_processing_time_of_handlers_is_measured(broker: SmallBroker) -> None:
    broker.add_topic("a")
    client = QuotaClient(broker)
    ticks = iter(range(1000))
    broker.runtime = Runtime(processing_clock=lambda: float(next(ticks)))  # each measurement is 1 s
    client.dispatcher = RequestDispatcher(cast(Broker, broker))
    client.set_quota(request_percentage=50.0)
    await client.produce(10)
    quotas = broker.client_quotas.of_client("alice", "me")
    assert quotas.request is not None
    assert quotas.request.tokens(client.now_s) == 50 * 10 - 100


@async_test
async def test_users_without_quotas_and_followers_are_not_throttled(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, bytes(9000))
    client = QuotaClient(broker)
    client.set_quota(producer_byte_rate=1.0, consumer_byte_rate=1.0)
    client.connection.principal = Principal("User", "bob")
    assert (await client.produce(1000))[0] == 0
    assert (await client.fetch())[1] == 0
    client.connection.principal = Principal("User", "alice")
    client.connection.is_follower = True
    assert (await client.fetch())[1] == 0
    assert client.muted_s == []


@async_test
async def test_throttled_requests_are_counted_by_entity(broker: SmallBroker) -> None:
    broker.add_topic("a")
    client = QuotaClient(broker)
    client.set_quota(producer_byte_rate=10.0)
    throttles = [(await client.produce(500))[0] for _ in range(3)]
    counted = broker.client_quotas.throttled["producer_byte_rate", "alice", ""]
    assert counted.count == 3 and counted.seconds == pytest.approx(sum(throttles) / 1000)


def creation_request(*topics: tuple[str, int]) -> Any:
    """A request to create topics, each with this number of partitions."""
    wanted: Sequence[dict[str, Any]] = [
        {"name": name, "num_partitions": partitions, "replication_factor": 1} for name, partitions in topics
    ]
    return build_message(CreateTopicsRequest, {"topics": wanted, "timeout": 10_000})


@async_test
async def test_created_partitions_are_limited_and_strict_requests_get_an_error(tmp_path: Path) -> None:
    async with run_broker(tmp_path / "data") as broker:
        now_s = 0.0
        broker.client_quotas.now_s = lambda: now_s
        broker.client_quotas.update({ALICE: {"controller_mutation_rate": 1.0}})
        connection = ConnectionState("127.0.0.1", 1, "PLAINTEXT", Principal("User", "alice"))

        async def create(version: int, *topics: tuple[str, int]) -> tuple[list[ErrorCode], int]:
            context = RequestContext(broker, connection, version, "me", AllowAll())
            response = await create_topics(context, creation_request(*topics))
            return [topic.error_code for topic in response.topics], throttle_time_ms(response)

        exceeded = ErrorCode.throttling_quota_exceeded
        assert await create(7, ("a", 8), ("b", 8), ("c", 1)) == ([ErrorCode.none] * 2 + [exceeded], 5000)
        assert "c" not in broker.image.topics
        assert await create(5, ("d", 2)) == ([ErrorCode.none], 7000)  # clients of version 5 do not know the error
        assert await create(7, ("a", 1)) == ([ErrorCode.topic_already_exists], 0)  # what fails is not charged
        now_s = 7.0
        assert await create(7, ("c", 1)) == ([ErrorCode.none], 0)
