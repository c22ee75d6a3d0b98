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
    """`ended`: how many of its connections are over. `answers`: whether it lives, or only its
    sockets.
    """

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
    """Broker 1's detector, and who it said was gone."""
    detector, gone = FailureDetector(1, image, "PLAINTEXT"), list[tuple[int, int]]()
    detector.on_broker_failed = lambda broker, epoch, why: gone.append((broker, epoch))
    detector.update_peers()
    return detector, gone


@on_a_loop
async def test_a_broker_whose_port_refuses_connections_fails_at_once_under_its_epoch() -> None:
    broker = Broker()
    await broker.open()
    image = image_of(broker)
    detector, gone = felt(image)
    await until(lambda: detector._probes)
    assert not detector.has_suspects
    broker.die()
    await until(lambda: gone)
    assert gone == [(2, 5)]
    assert [(who, epoch) for who, epoch, _ in detector.failed_brokers()] == [
        (2, 5)
    ]  # for one who becomes controller later
    assert detector.has_suspects
    waiting = asyncio.create_task(detector.wait_until_resolved(within_s=10))
    await asyncio.sleep(0)
    image.brokers[2] = replace(image.brokers[2], fenced=True)
    detector.update_peers()
    await waiting
    assert not detector.has_suspects
    assert list(detector.failed_brokers()) == []
    await detector.close()


@on_a_loop
async def test_a_broken_probe_is_connected_again() -> None:
    broker = Broker()
    await broker.open()
    detector, gone = felt(image_of(broker))
    await until(lambda: detector._probes)
    broker.hang_up()
    await until(lambda: len(broker.connections) == 2)
    await until(lambda: not detector.has_suspects)
    assert gone == []
    await detector.close()
    await until(lambda: broker.ended == 2)
    broker.die()


@on_a_loop
async def test_a_broker_that_answers_is_alive_and_one_with_open_sockets_alone_is_not() -> None:
    broker = Broker()
    await broker.open()
    detector, _ = felt(image_of(broker))
    await until(lambda: detector._probes)
    await detector.probe_brokers([2], within_s=10)
    assert not detector.has_suspects
    broker.answers = False
    feeling = asyncio.create_task(detector.probe_brokers([2, 3], within_s=10))
    await asyncio.sleep(0.01)
    assert not feeling.done()
    broker.hang_up()
    await feeling
    assert detector.has_suspects
    await until(lambda: len(broker.connections) == 2)  # its port takes connections still, and answers nothing
    await asyncio.sleep(0.01)
    assert detector.has_suspects
    await detector.close()
    broker.die()


@on_a_loop
async def test_concurrent_probes_share_a_request() -> None:
    broker = Broker()
    await broker.open()
    detector, _ = felt(image_of(broker))
    await until(lambda: detector._probes)
    (pulse,) = detector._probes.values()
    first, second, third = pulse.beat(), pulse.beat(), pulse.beat()
    assert second is third is not first  # what is sent already may have been answered before they asked
    await asyncio.wait([first, second], timeout=10)
    assert first.done()
    assert second.done()
    await detector.close()
    broker.die()


@on_a_loop
async def test_a_broker_that_never_answered_is_left_to_its_session() -> None:
    broker = Broker()
    await broker.open()
    broker.die()
    detector, gone = felt(image_of(broker))
    await asyncio.sleep(0.05)  # a refusal takes no time on loopback; nothing may come of it
    assert gone == []
    assert not detector.has_suspects
    await detector.close()


@on_a_loop
async def test_a_suspect_delays_clients_only_for_a_moment() -> None:
    broker = Broker()
    await broker.open()
    detector, gone = felt(image_of(broker))
    await until(lambda: detector._probes)
    broker.die()
    await until(lambda: gone)
    before = asyncio.get_running_loop().time()
    await detector.wait_until_resolved(within_s=0.05)
    assert asyncio.get_running_loop().time() - before < 5
    await detector.close()


@on_a_loop
async def test_the_controller_fences_brokers_that_failed_before_and_after_its_election() -> None:
    small = await SmallController().come(1, 2, 3)
    detector = FailureDetector(1, small.image, "PLAINTEXT")
    key = 2, small.image.brokers[2].epoch
    detector._on_failed(key, "a test")
    controller = Controller(
        small.image, small.log, Runtime(), Config.of({"log.dirs": "/nowhere", "node.id": "1"}), 1, detector
    )
    running = asyncio.create_task(controller.run())
    await until(lambda: small.fenced() == [2])
    assert detector.on_broker_failed is not None
    detector.on_broker_failed(3, small.image.brokers[3].epoch, "a test")
    await until(lambda: small.fenced() == [2, 3])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert detector.on_broker_failed is None


def test_errors_that_are_a_refused_connection() -> None:
    assert is_connection_refused(ConnectionRefusedError(errno.ECONNREFUSED, "no"))
    assert is_connection_refused(
        OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1'), [Errno 111] Connect call failed")
    )
    assert not is_connection_refused(
        OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 113] No route to host")
    )
    assert not is_connection_refused(OSError(errno.EHOSTUNREACH, "no route"))
