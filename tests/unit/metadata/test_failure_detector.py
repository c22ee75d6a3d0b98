"""Peer probes over real sockets: which brokers fail at once, and which at the end of their
session.
"""

import asyncio
import errno
from uuid import UUID

from msgspec.structs import replace

from ottla_broker.config import Config
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.failure_detector import PROBE_REQUEST, FailedBroker, FailureDetector, is_connection_refused
from ottla_broker.metadata.image import BrokerRegistration, MetadataImage
from ottla_broker.metadata.records import Endpoint
from ottla_broker.runtime import Runtime
from tests.unit.async_tests import async_test, wait_until
from tests.unit.metadata.small_controller import SmallController

RESPONSE = b"\0\0\0\2ok"


class Broker:
    """A broker's port. `is_responding`: if False, connections are accepted and requests get no
    response, as from a paused process.
    """

    def __init__(self) -> None:
        self.is_responding = True
        self.connections: list[asyncio.StreamWriter] = []
        self.port = 0
        self.closed_connection_count = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while await reader.readexactly(len(PROBE_REQUEST)):
                if self.is_responding:
                    writer.write(RESPONSE)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed_connection_count += 1
            writer.close()

    def close_port(self) -> None:
        self._server.close()
        self.close_connections()

    def close_connections(self) -> None:
        for writer in self.connections:
            writer.close()


def image_with(broker: Broker) -> MetadataImage:
    """An image with this broker, under the id 2."""
    at = {"PLAINTEXT": Endpoint("127.0.0.1", broker.port)}
    return MetadataImage(brokers={2: BrokerRegistration(2, 5, UUID(int=1), at, None, (), fenced=False)})


def start_detector(image: MetadataImage) -> tuple[FailureDetector, list[tuple[int, int]]]:
    """Returns broker 1's detector, and (broker, epoch) of the brokers that it has reported."""
    detector, failed = FailureDetector(1, image, "PLAINTEXT"), list[tuple[int, int]]()
    detector.on_broker_failed = lambda it: failed.append((it.broker, it.epoch))
    detector.update_peers()
    return detector, failed


@async_test
async def test_a_broker_whose_port_refuses_connections_fails_at_once_under_its_epoch() -> None:
    broker = Broker()
    await broker.open()
    image = image_with(broker)
    detector, failed = start_detector(image)
    await wait_until(lambda: detector._probes)
    assert not detector.has_suspects
    broker.close_port()
    await wait_until(lambda: failed)
    assert failed == [(2, 5)]
    # For a controller that is elected later
    assert [(it.broker, it.epoch) for it in detector.failed_brokers()] == [(2, 5)]
    assert detector.has_suspects
    waiting = asyncio.create_task(detector.wait_until_resolved(within_s=10))
    await asyncio.sleep(0)
    image.brokers[2] = replace(image.brokers[2], fenced=True)
    detector.update_peers()
    await waiting
    assert not detector.has_suspects
    assert detector.failed_brokers() == []
    await detector.close()


@async_test
async def test_a_broken_probe_is_connected_again() -> None:
    broker = Broker()
    await broker.open()
    detector, failed = start_detector(image_with(broker))
    await wait_until(lambda: detector._probes)
    broker.close_connections()
    await wait_until(lambda: len(broker.connections) == 2)
    await wait_until(lambda: not detector.has_suspects)
    assert failed == []
    await detector.close()
    await wait_until(lambda: broker.closed_connection_count == 2)
    broker.close_port()


@async_test
async def test_a_broker_that_answers_is_alive_and_one_that_only_accepts_connections_is_not() -> None:
    broker = Broker()
    await broker.open()
    detector, _ = start_detector(image_with(broker))
    await wait_until(lambda: detector._probes)
    await detector.probe_brokers([2], within_s=10)
    assert not detector.has_suspects
    broker.is_responding = False
    probing = asyncio.create_task(detector.probe_brokers([2, 3], within_s=10))
    await asyncio.sleep(0.01)
    assert not probing.done()
    broker.close_connections()
    await probing
    assert detector.has_suspects
    await wait_until(lambda: len(broker.connections) == 2)  # its port still accepts connections
    await asyncio.sleep(0.01)
    assert detector.has_suspects
    await detector.close()
    broker.close_port()


@async_test
async def test_concurrent_probes_share_a_request() -> None:
    broker = Broker()
    await broker.open()
    detector, _ = start_detector(image_with(broker))
    await wait_until(lambda: detector._probes)
    (probe,) = detector._probes.values()
    first, second, third = probe.send_probe(), probe.send_probe(), probe.send_probe()
    assert second is third is not first  # the first request may have been answered before they began
    await asyncio.wait([first, second], timeout=10)
    assert first.done()
    assert second.done()
    await detector.close()
    broker.close_port()


@async_test
async def test_a_broker_that_never_answered_is_left_to_its_session() -> None:
    broker = Broker()
    await broker.open()
    broker.close_port()
    detector, failed = start_detector(image_with(broker))
    await asyncio.sleep(0.05)  # loopback refuses at once, and that must not be reported
    assert failed == []
    assert not detector.has_suspects
    await detector.close()


@async_test
async def test_a_suspect_delays_clients_only_for_a_moment() -> None:
    broker = Broker()
    await broker.open()
    detector, failed = start_detector(image_with(broker))
    await wait_until(lambda: detector._probes)
    broker.close_port()
    await wait_until(lambda: failed)
    began = asyncio.get_running_loop().time()
    await detector.wait_until_resolved(within_s=0.05)
    assert asyncio.get_running_loop().time() - began < 5
    await detector.close()


@async_test
async def test_the_controller_fences_brokers_that_failed_before_and_after_its_election() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    detector = FailureDetector(1, small.image, "PLAINTEXT")
    key = 2, small.image.brokers[2].epoch
    detector._on_failed(key, "a test")
    controller = Controller(
        small.image, small.log, Runtime(), Config.of({"log.dirs": "/nowhere", "node.id": "1"}), 1, detector
    )
    running = asyncio.create_task(controller.run())
    await wait_until(lambda: small.fenced() == [2])
    assert detector.on_broker_failed is not None
    detector.on_broker_failed(FailedBroker(3, small.image.brokers[3].epoch, "a test"))
    await wait_until(lambda: small.fenced() == [2, 3])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert detector.on_broker_failed is None


def test_refused_connections_are_recognized() -> None:
    assert is_connection_refused(ConnectionRefusedError(errno.ECONNREFUSED, "no"))
    assert is_connection_refused(
        OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1'), [Errno 111] Connect call failed")
    )
    assert not is_connection_refused(
        OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 113] No route to host")
    )
    assert not is_connection_refused(OSError(errno.EHOSTUNREACH, "no route"))
