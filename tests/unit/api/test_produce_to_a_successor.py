"""Produce at a leader that has just stepped down, with a successor that is another server."""

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
from ottla_broker.wire.codec import read_response
from ottla_broker.wire.errors import ErrorCode
from tests.unit.api.brokers import ME, SmallBroker, Wire, batch, listening, serve
from tests.unit.api.requests import produce_request
from tests.unit.api.test_fetch import on_a_loop
from tests.unit.api.test_produce import results
from tests.waiting import eventually_async

SUCCESSOR = 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    made = SmallBroker(tmp_path / "old")
    yield made
    made.close()


@pytest.fixture
def successor(tmp_path: Path) -> Iterator[SmallBroker]:
    made = SmallBroker(tmp_path / "new")
    yield made
    made.close()


class Scene:
    """`wire`: a client of `broker`, which led a-0 until now; `there`: the server of `successor`, which leads it."""

    broker: SmallBroker
    here: Server
    there: Server
    wire: Wire

    @classmethod
    async def of(cls, broker: SmallBroker, successor: SmallBroker) -> "Scene":
        scene = cls()
        scene.broker = broker
        scene.there = serve(successor)
        at = Endpoint("127.0.0.1", await listening(scene.there))
        incarnation = broker.runtime.new_uuid()
        broker.image.brokers[SUCCESSOR] = BrokerRegistration(
            SUCCESSOR, 0, incarnation, {"PLAINTEXT": at}, None, (), fenced=False
        )
        cast(Any, broker).produce_forwarder = ProduceForwarder(broker.image, "PLAINTEXT", "broker-1")
        scene.here = serve(broker)
        scene.wire = await Wire.to(await listening(scene.here))
        successor.add_topic("a")
        (partition,) = broker.add_topic("a")
        led_by_another = msgspec.structs.replace(
            partition.registration,
            replicas=(ME, SUCCESSOR),
            isr=(SUCCESSOR,),
            leader=SUCCESSOR,
            leader_epoch=1,
            partition_epoch=1,
        )
        partition.update_registration(led_by_another)
        return scene

    def send(self, value: bytes, correlation_id: int, **how: int) -> None:
        """`how`: of the batch, as `encode_batch` takes it."""
        self.wire.send(0, 9, correlation_id, produce_request({("a", 0): batch(value, **how)}))

    async def told(self, correlation_id: int) -> tuple[ErrorCode, int]:
        """(error, base offset)"""
        frame = await self.wire.receive()
        assert int.from_bytes(frame[:4]) == correlation_id
        ((_, _, code, offset),) = results(read_response(frame, 0, 9))
        return code, offset

    def client_pauses(self) -> None:
        (connection,) = self.here.connections
        connection.state.stepped_down_s -= CLIENT_RETRY_PAUSE_S

    async def close(self) -> None:
        cast(Any, self.broker).produce_forwarder.close()
        await self.here.close()
        await self.there.close()


@on_a_loop
async def test_who_was_told_and_sends_again_is_answered_by_the_successor(
    broker: SmallBroker, successor: SmallBroker
) -> None:
    scene = await Scene.of(broker, successor)
    for correlation in (1, 2):  # the second was under way when the first was refused
        scene.send(b"early", correlation)
        assert await scene.told(correlation) == (ErrorCode.not_leader_or_follower, -1)
    scene.client_pauses()
    for correlation in (3, 4):
        scene.send(b"again", correlation)
    assert await scene.told(3) == (ErrorCode.none, 0)
    assert await scene.told(4) == (ErrorCode.none, 1)
    assert successor.partitions.leader("a", 0).log.end == 2
    await scene.close()


@on_a_loop
async def test_what_was_under_way_behind_a_refused_batch_is_refused_however_late_it_comes(
    broker: SmallBroker, successor: SmallBroker
) -> None:
    """The successor would find a gap, and an idempotent producer that has been told of it must end."""
    scene = await Scene.of(broker, successor)
    who = {"producer_id": 7, "producer_epoch": 0}
    scene.send(b"first", 1, **who, base_sequence=0)
    assert await scene.told(1) == (ErrorCode.not_leader_or_follower, -1)
    scene.client_pauses()  # or is slow: it has not heard yet
    for sequence in (1, 2, 3, 4):
        scene.send(b"behind", 1 + sequence, **who, base_sequence=sequence)
        assert await scene.told(1 + sequence) == (ErrorCode.not_leader_or_follower, -1)
    for sequence in range(6):
        scene.send(b"again", 10 + sequence, **who, base_sequence=sequence)
        assert await scene.told(10 + sequence) == (ErrorCode.none, sequence)
    await scene.close()


class Told:
    """A connection to a successor that answers everything at once. `frames`: what it was asked, in its order."""

    is_open = True

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    async def forward(self, frame: bytes) -> bytes:
        self.frames.append(frame)
        return bytes(8)

    def close(self) -> None:
        pass


@on_a_loop
async def test_who_comes_when_the_connection_is_there_does_not_overtake_who_waited_for_it(broker: SmallBroker) -> None:
    opened: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
    passing: list[asyncio.Task[bytes | None]] = []
    successors = ProduceForwarder(broker.image, "PLAINTEXT", "broker-1")

    async def opening() -> Told:
        return await opened

    last_came = asyncio.Event()

    def come(number: int) -> None:
        passing.append(asyncio.ensure_future(successors.forward(SUCCESSOR, bytes([number]) * 8, 1000)))
        if number == 3:
            last_came.set()

    successors._channels[SUCCESSOR] = cast(Any, asyncio.ensure_future(opening()))
    successors._channels[SUCCESSOR].add_done_callback(lambda _: come(3))
    come(1)
    come(2)
    await asyncio.sleep(0)  # both wait for the connection
    opened.set_result(channel := Told())
    await last_came.wait()
    await asyncio.gather(*passing)
    assert [frame[0] for frame in channel.frames] == [1, 2, 3]
    successors.close()


@on_a_loop
async def test_where_the_successor_cannot_be_asked_the_client_is_told_as_before(
    broker: SmallBroker, successor: SmallBroker
) -> None:
    scene = await Scene.of(broker, successor)
    await scene.there.close()
    scene.send(b"early", 1)
    assert await scene.told(1) == (ErrorCode.not_leader_or_follower, -1)
    scene.client_pauses()
    scene.send(b"again", 2)
    assert await scene.told(2) == (ErrorCode.not_leader_or_follower, -1)
    await scene.close()


@on_a_loop
async def test_a_successor_that_took_it_and_does_not_answer_costs_the_client_its_connection(
    broker: SmallBroker, successor: SmallBroker
) -> None:
    scene = await Scene.of(broker, successor)
    leader = successor.partitions.leader("a", 0)
    leader.is_committed = lambda appended: False  # type: ignore[method-assign]
    scene.send(b"early", 1)
    await scene.told(1)
    scene.client_pauses()
    scene.send(b"again", 2)

    async def taken() -> bool:
        return leader.log.end == 1

    await eventually_async(taken)
    for connection in tuple(scene.there.connections):
        connection.close("its process ends")
    assert await scene.wire.closed()
    await scene.close()


@on_a_loop
async def test_a_broker_stays_for_those_that_it_told(broker: SmallBroker, successor: SmallBroker) -> None:
    scene = await Scene.of(broker, successor)
    successors: ProduceForwarder = cast(Any, broker).produce_forwarder
    await successors.wait_for_redirected_clients()
    scene.send(b"early", 1)
    await scene.told(1)
    assert not successors._clients_refreshed.is_set()
    await successors.wait_for_redirected_clients()
    assert successors._clients_refreshed.is_set()
    await scene.close()
