"""Connections over TLS: the same promises as in the open, and handshakes that fail or never end."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import uvloop
from kio.schema.errors import ErrorCode

from ottla_broker import handshakes
from ottla_broker.connection import ConnectionLimits
from ottla_broker.security.principal import ANONYMOUS, Principal, principal_from_certificate
from ottla_broker.server import Server
from tests.kube.certificates import CertificateAuthority, create_certificate_authority, create_client_certificate
from tests.unit.api.brokers import RawConnection, SmallBroker, batch, serve
from tests.unit.api.requests import fetch_request, produce_request
from tests.unit.server.certificates import broker_with, keystore, made
from tests.unit.server.test_server import capture, eventually, hello, slow_socket

__all__ = ["keystore", "made"]  # fixtures


def on_tls(**settings: str) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """With a broker that has a listener in the open and one of TLS, on uvloop as the broker runs."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @wraps(test)
        def run(tmp_path: Path, made: CertificateAuthority, keystore: Path) -> None:
            async def with_broker() -> None:
                broker = broker_with(tmp_path, keystore, **settings)
                try:
                    await asyncio.wait_for(test(broker, made), 30)
                finally:
                    broker.close()

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(with_broker())

        del run.__wrapped__  # pytest is to see the fixtures
        return run

    return decorate


async def listening(server: Server) -> tuple[int, int]:
    """The ports: in the open, and of TLS."""
    at = server.bind()
    await server.serve()
    return at["PLAINTEXT"].port, at["SSL"].port


def trusting(made: CertificateAuthority, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=made.certificate)
    if certificate:
        context.load_cert_chain(*certificate)
    return context


async def secured(port: int, context: ssl.SSLContext) -> RawConnection:
    return RawConnection(
        *await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost", limit=1 << 26)
    )


async def refusal(wire: RawConnection) -> str:
    """The alert that ends a connection, in OpenSSL's words."""
    with pytest.raises(ssl.SSLError) as refused:
        await wire.receive()
    return str(refused.value)


def shake_hands(port: int, context: ssl.SSLContext) -> None:
    """With a socket that waits, which tells the other side why it ends: asyncio's does not."""
    with socket.create_connection(("127.0.0.1", port)) as sock, context.wrap_socket(sock, server_hostname="localhost"):
        pass


@on_tls()
async def test_requests_of_any_size_are_answered_over_tls(broker: SmallBroker, made: CertificateAuthority) -> None:
    (partition,) = broker.add_topic("a")
    server = serve(broker)
    _, port = await listening(server)
    wire = await secured(port, trusting(made))
    assert (await hello(wire)).error_code is ErrorCode.none
    for size in (1, 5_000, 16 << 10, 300_000, 900_000):
        wire.send(0, 9, size, produce_request({("a", 0): batch(bytes(size))}))
        assert (await wire.receive())[:4] == struct.pack(">i", size)
    for _ in range(4):
        partition.append_records(batch(bytes(1_000_000)), acks=1)
    wire.send(1, 12, 7, fetch_request({("a", 0): 0}, partition_bytes=50 << 20))
    assert len(await wire.receive()) > 5_000_000
    for correlation in range(50):  # pipelined: many small answers, in order
        wire.send(0, 9, correlation, produce_request({("a", 0): batch(b"x")}))
    assert [int.from_bytes((await wire.receive())[:4]) for _ in range(50)] == list(range(50))
    wire.close()
    await eventually(lambda: not server.connections)
    await server.close()


@on_tls(ssl_enabled_protocols="TLSv1.2")
async def test_only_versions_that_are_allowed_are_spoken(broker: SmallBroker, made: CertificateAuthority) -> None:
    server = serve(broker)
    _, port = await listening(server)
    wire = await secured(port, trusting(made))
    assert wire.writer.get_extra_info("ssl_object").version() == "TLSv1.2"
    assert (await hello(wire)).error_code is ErrorCode.none
    lines, newest = capture(), trusting(made)
    newest.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises(ssl.SSLError):
        await secured(port, newest)
    await eventually(lambda: bool(lines()))
    assert "the client supports no TLS version that ssl.enabled.protocols allows" in lines()[0]
    await server.close()


@on_tls(ssl_client_auth="required", ssl_truststore_location="THE_AUTHORITY")
async def test_a_client_is_who_its_certificate_says(broker: SmallBroker, made: CertificateAuthority) -> None:
    server = serve(broker)
    _, port = await listening(server)
    wire = await secured(port, trusting(made, create_client_certificate(made, "alice")))
    assert (await hello(wire)).error_code is ErrorCode.none
    (connection,) = server.connections
    assert str(connection.state.principal) == "User:CN=alice"
    lines = capture()
    nobody = await secured(port, trusting(made))  # in TLS 1.3 a client hears of it only after its own half
    assert "certificate required" in await refusal(nobody)
    await eventually(lambda: bool(lines()))
    assert lines()[0].endswith("the client has no certificate, and ssl.client.auth=required")
    await server.close()


@on_tls(ssl_client_auth="requested", ssl_truststore_location="THE_AUTHORITY")
async def test_a_certificate_that_is_only_requested_may_be_missing_but_not_wrong(
    broker: SmallBroker, made: CertificateAuthority
) -> None:
    server = serve(broker)
    _, port = await listening(server)
    wire = await secured(port, trusting(made))
    assert (await hello(wire)).error_code is ErrorCode.none
    (connection,) = server.connections
    assert connection.state.principal == ANONYMOUS
    others = create_certificate_authority(made.folder / "others", [], ["x"])
    lines = capture()
    stranger = await secured(port, trusting(made, create_client_certificate(others, "eve")))
    assert "unknown ca" in await refusal(stranger)
    await eventually(lambda: bool(lines()))
    assert "the client's certificate is rejected: unable to get local issuer certificate" in lines()[0]
    await server.close()


@on_tls()
async def test_rule_18_a_handshake_that_fails_costs_its_connection_and_a_line(
    broker: SmallBroker, made: CertificateAuthority
) -> None:
    server = serve(broker)
    plain, port = await listening(server)
    bystander = await secured(port, trusting(made))
    lines = capture()
    in_the_open = await RawConnection.open(port)
    in_the_open.writer.write(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
    assert await in_the_open.is_closed_by_peer()
    assert lines()[0].endswith("the client does not use TLS, and this listener requires it")
    broken = await RawConnection.open(port)
    broken.writer.write(b"\x16\x03\x01\x00\x05hello")
    await eventually(lambda: len(lines()) == 2)
    assert "no TLS with 127.0.0.1:" in lines()[1]
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.to_thread(shake_hands, port, ssl.create_default_context())
    await eventually(lambda: len(lines()) == 3)
    assert lines()[2].endswith("the client does not trust this broker's certificate (unknown authority)")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await secured(plain, trusting(made))
    assert lines()[3].endswith("the client uses TLS, and this listener does not")
    for _ in range(20):  # the same again and again is said once in a while
        again = await RawConnection.open(port)
        again.writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert await again.is_closed_by_peer()
    knocking = await RawConnection.open(port)  # a load balancer that looks whether somebody listens
    knocking.close()
    assert len(lines()) == 4
    assert (await hello(bystander)).error_code is ErrorCode.none
    await eventually(lambda: len(server.connections) == 1)
    await server.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(handshakes, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(handshakes, "MAX_IN_PROGRESS", 5)
    yield


@pytest.mark.usefixtures("impatient")
@on_tls()
async def test_rule_18_handshakes_are_bounded_in_time_and_number(
    broker: SmallBroker, made: CertificateAuthority
) -> None:
    server = serve(broker)
    _, port = await listening(server)
    lines = capture()
    idle = [await RawConnection.open(port) for _ in range(5)]
    await eventually(lambda: len(server._handshakes) == 5)
    sixth = await RawConnection.open(port)
    assert await sixth.is_closed_by_peer()
    assert lines()[0].endswith("5 other handshakes are in progress")
    assert not server.connections
    assert all([await one.is_closed_by_peer() for one in idle])
    assert lines()[1].endswith("it was not done within 0 s")
    assert not len(server._handshakes)
    assert (await hello(await secured(port, trusting(made)))).error_code is ErrorCode.none
    await server.close()


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_IN_PROGRESS", 5)
    monkeypatch.setattr(handshakes, "MIN_AGE_S", 0.0)


@pytest.mark.usefixtures("crowded")
@on_tls()
async def test_rule_18_who_never_ends_a_handshake_gives_way_to_others(
    broker: SmallBroker, made: CertificateAuthority
) -> None:
    server = serve(broker)
    _, port = await listening(server)
    idle = [await RawConnection.open(port) for _ in range(5)]
    await eventually(lambda: len(server._handshakes) == 5)
    for first in range(3):
        honest = await secured(port, trusting(made))
        assert (await hello(honest)).error_code is ErrorCode.none
        assert await idle[first].is_closed_by_peer()
        idle.append(await RawConnection.open(port))
        await eventually(lambda: len(server._handshakes) == 5)
    await server.close()


@on_tls()
async def test_handshakes_count_as_connections(broker: SmallBroker, made: CertificateAuthority) -> None:
    broker.config.set_dynamic(cluster={"max.connections.per.ip": "2"}, broker={})
    server = serve(broker)
    plain, port = await listening(server)
    shaking, open_ = await RawConnection.open(port), await RawConnection.open(plain)
    assert (await hello(open_)).error_code is ErrorCode.none
    for third in (await RawConnection.open(port), await RawConnection.open(plain)):
        assert await third.is_closed_by_peer()
    shaking.close()
    await eventually(lambda: not len(server._handshakes))
    assert (await hello(await secured(port, trusting(made)))).error_code is ErrorCode.none
    await server.close()


@on_tls()
async def test_rule_18_slow_readers_over_tls_hold_a_bounded_amount_of_memory(
    broker: SmallBroker, made: CertificateAuthority
) -> None:
    """What was written and has not gone is known to the last byte, encrypted or not."""
    (partition,) = broker.add_topic("a")
    for _ in range(16):
        partition.append_records(batch(bytes(1_000_000)), acks=1)
    bound = 24 << 20
    server = serve(broker, ConnectionLimits(all_responses_bytes=bound))
    _, port = await listening(server)
    context = trusting(made)
    slow = [
        RawConnection(
            *await asyncio.open_connection(sock=slow_socket(port), ssl=context, server_hostname="localhost", limit=1024)
        )
        for _ in range(40)
    ]
    for wire in slow:
        for correlation in range(3):
            wire.send(1, 12, correlation, fetch_request({("a", 0): 0}, partition_bytes=50 << 20))
    await eventually(
        lambda: server.responses.is_exhausted and len([c for c in server.connections if not c.is_idle]) >= 15
    )
    left = sum(connection._transport.get_write_buffer_size() for connection in server.connections)
    below = sum(c._transport._below.get_write_buffer_size() for c in server.connections)  # type: ignore[attr-defined]
    assert bound <= server.responses.allocated_bytes <= bound + (2 << 20)
    assert left <= server.responses.allocated_bytes + 40 * (64 << 10)
    assert below <= 40 * (200 << 10), "only what the socket was about to take is encrypted"
    other = await secured(port, context)
    assert (await hello(other)).error_code is ErrorCode.none
    other.send(1, 12, 5, fetch_request({("a", 0): 0}))
    for wire in slow:
        wire.close()
        wire.writer.transport.abort()
    assert len(await other.receive()) > 900_000
    await eventually(lambda: server.responses.allocated_bytes == 0)
    await server.close()


@on_tls()
async def test_rule_18_large_requests_over_tls_wait_for_memory_and_others_do_not(
    broker: SmallBroker, made: CertificateAuthority
) -> None:
    (partition,) = broker.add_topic("a")
    server = serve(broker, ConnectionLimits(all_requests_bytes=1 << 20))
    _, port = await listening(server)
    context = trusting(made)
    hogs = [await secured(port, context) for _ in range(4)]
    for hog in hogs:
        hog.writer.write((900_000).to_bytes(4) + bytes(200_000))
    await eventually(lambda: server.requests.is_exhausted and server.requests.has_waiters)
    assert server.requests.allocated_bytes <= 2 << 20
    large = await secured(port, context)
    large.send(0, 9, 1, produce_request({("a", 0): batch(bytes(500_000))}))
    for hog in hogs:
        hog.writer.transport.abort()
    assert await large.receive()
    assert partition.log.end == 1
    await eventually(lambda: server.requests.allocated_bytes == 0)
    await server.close()


@on_tls()
async def test_closing_ends_connections_and_handshakes(broker: SmallBroker, made: CertificateAuthority) -> None:
    broker.add_topic("a")
    server = serve(broker)
    _, port = await listening(server)
    shaking, waiting = await RawConnection.open(port), await secured(port, trusting(made))
    waiting.send(1, 12, 1, fetch_request({("a", 0): 0}, wait_ms=10_000))
    await eventually(lambda: bool(server.connections) and not next(iter(server.connections)).is_idle)
    await server.close()
    assert await shaking.is_closed_by_peer()
    assert await waiting.receive()  # what was taken is answered
    assert await waiting.is_closed_by_peer()


def test_principals_have_the_form_of_rfc_2253() -> None:
    assert principal_from_certificate(None) == ANONYMOUS
    subject = (
        (("countryName", "CZ"),),
        (("organizationName", "Ottla, a farm"),),
        (("organizationalUnitName", " herd"), ("commonName", "a+b")),
    )
    assert principal_from_certificate({"subject": subject}) == Principal(
        "User", r"OU=\ herd+CN=a\+b,O=Ottla\, a farm,C=CZ"
    )
