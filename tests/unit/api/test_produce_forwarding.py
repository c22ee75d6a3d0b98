"""Produce requests to a former leader, which forwards them to a second server, the new leader."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from ottla_broker.metadata.image import BrokerRegistration
from ottla_broker.metadata.records import Endpoint
from ottla_broker.replication.produce_forwarder import CLIENT_RETRY_PAUSE_S, ProduceForwarder
from ottla_broker.server import Server
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_response
from ottla_broker.wire.errors import ErrorCode
from tests.unit.api.brokers import ME, RawConnection, SmallBroker, batch, create_server, start_listening
from tests.unit.api.calls import produce_results
from tests.unit.api.requests import produce_request
from tests.unit.async_tests import async_test
from tests.waiting import eventually_async

SUCCESSOR = 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    broker = SmallBroker(tmp_path / "old")
    yield broker
    broker.close()


@pytest.fixture
def successor(tmp_path: Path) -> Iterator[SmallBroker]:
    broker = SmallBroker(tmp_path / "new")
    yield broker
    broker.close()


class ForwardingServers:
    """Servers of the former leader of partition a-0 and of its successor, and a client of the
    former leader.
    """

    broker: SmallBroker
    server: Server
    successor_server: Server
    client: RawConnection

    @classmethod
    async def start(cls, broker: SmallBroker, successor: SmallBroker) -> "ForwardingServers":
        setup = cls()
        setup.broker = broker
        setup.successor_server = create_server(successor)
        endpoint = Endpoint("127.0.0.1", await start_listening(setup.successor_server))
        incarnation = broker.runtime.new_uuid()
        broker.image.brokers[SUCCESSOR] = BrokerRegistration(
            SUCCESSOR, 0, incarnation, {"PLAINTEXT": endpoint}, None, (), fenced=False
        )
        cast(Any, broker).produce_forwarder = ProduceForwarder(broker.image, "PLAINTEXT", "broker-1")
        setup.server = create_server(broker)
        setup.client = await RawConnection.open(await start_listening(setup.server))
        successor.add_topic("a")
        (partition,) = broker.add_topic("a")
        led_by_successor = msgspec.structs.replace(
            partition.registration,
            replicas=(ME, SUCCESSOR),
            isr=(SUCCESSOR,),
            leader=SUCCESSOR,
            leader_epoch=1,
            partition_epoch=1,
        )
        partition.update_registration(led_by_successor)
        return setup

    def send(self, value: bytes, correlation_id: int, **options: int) -> None:
        """Sends a batch with these options of `encode_batch`."""
        self.client.send(ApiKey.PRODUCE, 9, correlation_id, produce_request({("a", 0): batch(value, **options)}))

    async def receive(self, correlation_id: int) -> tuple[ErrorCode, int]:
        """Error code and base offset of the next response, which must have this correlation id."""
        frame = await self.client.receive()
        assert int.from_bytes(frame[:4]) == correlation_id
        ((_, _, code, offset),) = produce_results(read_response(frame, ApiKey.PRODUCE, 9))
        return code, offset

    def pass_retry_pause(self) -> None:
        """Lets the time pass after which a client repeats a rejected request."""
        (connection,) = self.server.connections
        connection.state.stepped_down_s -= CLIENT_RETRY_PAUSE_S

    async def close(self) -> None:
        cast(Any, self.broker).produce_forwarder.close()
        await self.server.close()
        await self.successor_server.close()


@async_test
async def test_repeated_request_of_a_redirected_client_is_forwarded(
    broker: SmallBroker, successor: SmallBroker
) -> None:
    setup = await ForwardingServers.start(broker, successor)
    for correlation in (1, 2):  # the second was sent before the first was rejected
        setup.send(b"early", correlation)
        assert await setup.receive(correlation) == (ErrorCode.not_leader_or_follower, -1)
    setup.pass_retry_pause()
    for correlation in (3, 4):
        setup.send(b"again", correlation)
    assert await setup.receive(3) == (ErrorCode.none, 0)
    assert await setup.receive(4) == (ErrorCode.none, 1)
    assert successor.partitions.leader("a", 0).log.end == 2
    await setup.close()


@async_test
async def test_batches_in_flight_behind_a_rejected_batch_are_rejected_however_late_they_arrive(
    broker: SmallBroker, successor: SmallBroker
) -> None:
    """The new leader would report a gap of sequences, which is fatal for an idempotent producer."""
    setup = await ForwardingServers.start(broker, successor)
    producer = {"producer_id": 7, "producer_epoch": 0}
    setup.send(b"first", 1, **producer, base_sequence=0)
    assert await setup.receive(1) == (ErrorCode.not_leader_or_follower, -1)
    setup.pass_retry_pause()  # the client may not have received the rejection yet
    for sequence in (1, 2, 3, 4):
        setup.send(b"behind", 1 + sequence, **producer, base_sequence=sequence)
        assert await setup.receive(1 + sequence) == (ErrorCode.not_leader_or_follower, -1)
    for sequence in range(6):
        setup.send(b"again", 10 + sequence, **producer, base_sequence=sequence)
        assert await setup.receive(10 + sequence) == (ErrorCode.none, sequence)
    await setup.close()


class RecordingChannel:
    """A connection to the new leader that responds at once. `frames`: requests in their order."""

    is_open = True

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    async def forward(self, frame: bytes) -> bytes:
        self.frames.append(frame)
        return bytes(8)

    def close(self) -> None:
        pass


@async_test
async def test_request_does_not_overtake_those_that_waited_for_the_connection(broker: SmallBroker) -> None:
    opened: asyncio.Future[RecordingChannel] = asyncio.get_running_loop().create_future()
    forwarded: list[asyncio.Task[bytes | None]] = []
    forwarder = ProduceForwarder(broker.image, "PLAINTEXT", "broker-1")

    async def open_channel() -> RecordingChannel:
        return await opened

    all_forwarded = asyncio.Event()

    def forward(number: int) -> None:
        forwarded.append(asyncio.ensure_future(forwarder.forward(SUCCESSOR, bytes([number]) * 8, 1000)))
        if number == 3:
            all_forwarded.set()

    forwarder._channels[SUCCESSOR] = cast(Any, asyncio.ensure_future(open_channel()))
    forwarder._channels[SUCCESSOR].add_done_callback(lambda _: forward(3))
    forward(1)
    forward(2)
    await asyncio.sleep(0)  # both wait for the connection
    opened.set_result(channel := RecordingChannel())
    await all_forwarded.wait()
    await asyncio.gather(*forwarded)
    assert [frame[0] for frame in channel.frames] == [1, 2, 3]
    forwarder.close()


@async_test
async def test_client_is_redirected_again_if_the_new_leader_is_unreachable(
    broker: SmallBroker, successor: SmallBroker
) -> None:
    setup = await ForwardingServers.start(broker, successor)
    await setup.successor_server.close()
    setup.send(b"early", 1)
    assert await setup.receive(1) == (ErrorCode.not_leader_or_follower, -1)
    setup.pass_retry_pause()
    setup.send(b"again", 2)
    assert await setup.receive(2) == (ErrorCode.not_leader_or_follower, -1)
    await setup.close()


@async_test
async def test_connection_of_the_client_is_closed_if_the_new_leader_fails_after_the_append(
    broker: SmallBroker, successor: SmallBroker
) -> None:
    setup = await ForwardingServers.start(broker, successor)
    leader = successor.partitions.leader("a", 0)
    leader.is_committed = lambda appended: False  # type: ignore[method-assign]
    setup.send(b"early", 1)
    await setup.receive(1)
    setup.pass_retry_pause()
    setup.send(b"again", 2)

    async def is_appended() -> bool:
        return leader.log.end == 1

    await eventually_async(is_appended)
    for connection in tuple(setup.successor_server.connections):
        connection.close("its process exits")
    assert await setup.client.is_closed_by_peer()
    await setup.close()


@async_test
async def test_stopping_broker_waits_for_redirected_clients(broker: SmallBroker, successor: SmallBroker) -> None:
    setup = await ForwardingServers.start(broker, successor)
    forwarder: ProduceForwarder = cast(Any, broker).produce_forwarder
    await forwarder.wait_for_redirected_clients()
    setup.send(b"early", 1)
    await setup.receive(1)
    assert not forwarder._clients_refreshed.is_set()
    await forwarder.wait_for_redirected_clients()
    assert forwarder._clients_refreshed.is_set()
    await setup.close()
