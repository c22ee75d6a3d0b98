"""Produce at a leader that has just stepped down, with a successor that is another server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from ottla_broker.metadata.image import BrokerImage
from ottla_broker.metadata.records import Endpoint
from ottla_broker.replication.successors import PAUSE_S, Successors
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
        broker.image.brokers[SUCCESSOR] = BrokerImage(
            SUCCESSOR, 0, incarnation, {"PLAINTEXT": at}, None, (), fenced=False
        )
        cast(Any, broker).successors = Successors(broker.image, "PLAINTEXT", "broker-1")
        scene.here = serve(broker)
        scene.wire = await Wire.to(await listening(scene.here))
        successor.add_topic("a")
        (partition,) = broker.add_topic("a")
        led_by_another = msgspec.structs.replace(
            partition.state,
            replicas=(ME, SUCCESSOR),
            isr=(SUCCESSOR,),
            leader=SUCCESSOR,
            leader_epoch=1,
            partition_epoch=1,
        )
        partition.become(led_by_another)
        return scene

    def send(self, value: bytes, correlation_id: int) -> None:
        self.wire.send(0, 9, correlation_id, produce_request({("a", 0): batch(value)}))

    async def told(self, correlation_id: int) -> tuple[ErrorCode, int]:
        """(error, base offset)"""
        frame = await self.wire.receive()
        assert int.from_bytes(frame[:4]) == correlation_id
        ((_, _, code, offset),) = results(read_response(frame, 0, 9))
        return code, offset

    def client_pauses(self) -> None:
        (connection,) = self.here.connections
        connection.peer.refused_s -= PAUSE_S

    async def close(self) -> None:
        cast(Any, self.broker).successors.close()
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
    leader.is_acknowledged = lambda appended: False  # type: ignore[method-assign]
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
    successors: Successors = cast(Any, broker).successors
    await successors.stay()
    scene.send(b"early", 1)
    await scene.told(1)
    assert not successors._have_asked.is_set()
    await successors.stay()
    assert successors._have_asked.is_set()
    await scene.close()
