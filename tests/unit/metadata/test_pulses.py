"""Pulses over real sockets: who is fenced, and who is left to its session."""

import asyncio
import errno
from uuid import UUID

from ottla_broker.metadata.image import BrokerImage, Image
from ottla_broker.metadata.pulses import Pulses, refused
from ottla_broker.metadata.records import Endpoint
from tests.unit.metadata.small_controller import on_a_loop, until


class Broker:
    """`ended`: how many of its connections are over."""

    def __init__(self) -> None:
        self.connections: list[asyncio.StreamWriter] = []
        self.port = 0
        self.ended = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            await reader.read()
        except ConnectionError:
            pass
        finally:
            self.ended += 1
            writer.close()

    def die(self) -> None:
        self._server.close()
        self.hang_up()

    def hang_up(self) -> None:
        for writer in self.connections:
            writer.close()


def image_of(broker: Broker, epoch: int = 5, *, fenced: bool = False) -> Image:
    at = {"PLAINTEXT": Endpoint("127.0.0.1", broker.port)}
    return Image(brokers={2: BrokerImage(2, epoch, UUID(int=1), at, None, (), fenced)})


@on_a_loop
async def test_a_broker_whose_port_refuses_is_fenced_at_once_under_its_epoch() -> None:
    broker, fenced = Broker(), []
    await broker.open()

    async def fence(who: int, epoch: int, why: str) -> None:
        fenced.append((who, epoch))

    pulses = Pulses(1, image_of(broker), fence, "PLAINTEXT")
    pulses.follow()
    await until(lambda: broker.connections)
    broker.die()
    await until(lambda: fenced)
    assert fenced == [(2, 5)]
    pulses.close()


@on_a_loop
async def test_a_pulse_that_breaks_is_felt_again() -> None:
    broker, fenced = Broker(), []
    await broker.open()

    async def fence(who: int, epoch: int, why: str) -> None:
        fenced.append(who)

    image = image_of(broker)
    pulses = Pulses(1, image, fence, "PLAINTEXT")
    pulses.follow()
    await until(lambda: broker.connections)
    broker.hang_up()
    await until(lambda: len(broker.connections) == 2)
    assert fenced == []
    image.brokers.clear()
    pulses.follow()
    await until(lambda: broker.ended == 2)
    broker.die()
    pulses.close()


@on_a_loop
async def test_one_that_was_never_reached_is_left_to_its_session() -> None:
    broker, fenced = Broker(), []
    await broker.open()
    broker.die()

    async def fence(who: int, epoch: int, why: str) -> None:
        fenced.append(who)

    pulses = Pulses(1, image_of(broker), fence, "PLAINTEXT")
    pulses.follow()
    await asyncio.sleep(0.05)  # a refusal takes no time on loopback; nothing may come of it
    assert fenced == []
    pulses.close()


def test_what_counts_as_refused() -> None:
    assert refused(ConnectionRefusedError(errno.ECONNREFUSED, "no"))
    assert refused(
        OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1'), [Errno 111] Connect call failed")
    )
    assert not refused(OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 113] No route to host"))
    assert not refused(OSError(errno.EHOSTUNREACH, "no route"))
