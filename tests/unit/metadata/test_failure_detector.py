"""Pulses over real sockets: who is gone, and who is left to its session."""

import asyncio
import errno
from dataclasses import replace
from uuid import UUID

from ottla_broker.config import Config
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.failure_detector import PROBE_REQUEST, FailureDetector, is_connection_refused
from ottla_broker.metadata.image import BrokerRegistration, MetadataImage
from ottla_broker.metadata.records import Endpoint
from ottla_broker.runtime import Runtime
from tests.unit.metadata.small_controller import SmallController, on_a_loop, until

ANSWER = b"\0\0\0\2ok"


class Broker:
    """`ended`: how many of its connections are over. `answers`: whether it lives, or only its sockets."""

    def __init__(self) -> None:
        self.answers = True
        self.connections: list[asyncio.StreamWriter] = []
        self.port = 0
        self.ended = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while await reader.readexactly(len(PROBE_REQUEST)):
                if self.answers:
                    writer.write(ANSWER)
        except (ConnectionError, asyncio.IncompleteReadError):
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


def image_of(broker: Broker, epoch: int = 5) -> MetadataImage:
    at = {"PLAINTEXT": Endpoint("127.0.0.1", broker.port)}
    return MetadataImage(brokers={2: BrokerRegistration(2, epoch, UUID(int=1), at, None, (), fenced=False)})


def felt(image: MetadataImage) -> tuple[FailureDetector, list[tuple[int, int]]]:
    """Broker 1's pulses, and who it said was gone."""
    pulses, gone = FailureDetector(1, image, "PLAINTEXT"), list[tuple[int, int]]()
    pulses.on_broker_failed = lambda broker, epoch, why: gone.append((broker, epoch))
    pulses.update_peers()
    return pulses, gone


@on_a_loop
async def test_a_broker_whose_port_refuses_is_gone_at_once_under_its_epoch() -> None:
    broker = Broker()
    await broker.open()
    image = image_of(broker)
    pulses, gone = felt(image)
    await until(lambda: pulses._pulses)
    assert not pulses.has_suspects
    broker.die()
    await until(lambda: gone)
    assert gone == [(2, 5)]
    assert [(who, epoch) for who, epoch, _ in pulses.failed_brokers()] == [
        (2, 5)
    ]  # for one who becomes controller later
    assert pulses.has_suspects
    waiting = asyncio.create_task(pulses.wait_until_resolved(within_s=10))
    await asyncio.sleep(0)
    image.brokers[2] = replace(image.brokers[2], fenced=True)
    pulses.update_peers()
    await waiting
    assert not pulses.has_suspects
    assert list(pulses.failed_brokers()) == []
    await pulses.close()


@on_a_loop
async def test_a_pulse_that_breaks_is_felt_again() -> None:
    broker = Broker()
    await broker.open()
    pulses, gone = felt(image_of(broker))
    await until(lambda: pulses._pulses)
    broker.hang_up()
    await until(lambda: len(broker.connections) == 2)
    await until(lambda: not pulses.has_suspects)
    assert gone == []
    await pulses.close()
    await until(lambda: broker.ended == 2)
    broker.die()


@on_a_loop
async def test_who_is_felt_lives_and_a_process_whose_sockets_are_still_open_does_not() -> None:
    broker = Broker()
    await broker.open()
    pulses, _ = felt(image_of(broker))
    await until(lambda: pulses._pulses)
    await pulses.probe_brokers([2], within_s=10)
    assert not pulses.has_suspects
    broker.answers = False
    feeling = asyncio.create_task(pulses.probe_brokers([2, 3], within_s=10))
    await asyncio.sleep(0.01)
    assert not feeling.done()
    broker.hang_up()
    await feeling
    assert pulses.has_suspects
    await until(lambda: len(broker.connections) == 2)  # its port takes connections still, and answers nothing
    await asyncio.sleep(0.01)
    assert pulses.has_suspects
    await pulses.close()
    broker.die()


@on_a_loop
async def test_those_who_feel_a_pulse_at_once_share_a_beat() -> None:
    broker = Broker()
    await broker.open()
    pulses, _ = felt(image_of(broker))
    await until(lambda: pulses._pulses)
    (pulse,) = pulses._pulses.values()
    first, second, third = pulse.beat(), pulse.beat(), pulse.beat()
    assert second is third is not first  # what is sent already may have been answered before they asked
    await asyncio.wait([first, second], timeout=10)
    assert first.done()
    assert second.done()
    await pulses.close()
    broker.die()


@on_a_loop
async def test_one_that_was_never_reached_is_left_to_its_session() -> None:
    broker = Broker()
    await broker.open()
    broker.die()
    pulses, gone = felt(image_of(broker))
    await asyncio.sleep(0.05)  # a refusal takes no time on loopback; nothing may come of it
    assert gone == []
    assert not pulses.has_suspects
    await pulses.close()


@on_a_loop
async def test_doubts_hold_nobody_up_for_long() -> None:
    broker = Broker()
    await broker.open()
    pulses, gone = felt(image_of(broker))
    await until(lambda: pulses._pulses)
    broker.die()
    await until(lambda: gone)
    before = asyncio.get_running_loop().time()
    await pulses.wait_until_resolved(within_s=0.05)
    assert asyncio.get_running_loop().time() - before < 5
    await pulses.close()


@on_a_loop
async def test_the_controller_fences_who_is_gone_and_who_was_gone_before_it_came() -> None:
    small = await SmallController().come(1, 2, 3)
    pulses = FailureDetector(1, small.image, "PLAINTEXT")
    key = 2, small.image.brokers[2].epoch
    pulses._is_gone(key, "a test")
    controller = Controller(
        small.image, small.log, Runtime(), Config.of({"log.dirs": "/nowhere", "node.id": "1"}), 1, pulses
    )
    running = asyncio.create_task(controller.run())
    await until(lambda: small.fenced() == [2])
    assert pulses.on_broker_failed is not None
    pulses.on_broker_failed(3, small.image.brokers[3].epoch, "a test")
    await until(lambda: small.fenced() == [2, 3])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert pulses.on_broker_failed is None


def test_what_counts_as_refused() -> None:
    assert is_connection_refused(ConnectionRefusedError(errno.ECONNREFUSED, "no"))
    assert is_connection_refused(
        OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1'), [Errno 111] Connect call failed")
    )
    assert not is_connection_refused(
        OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 113] No route to host")
    )
    assert not is_connection_refused(OSError(errno.EHOSTUNREACH, "no route"))
