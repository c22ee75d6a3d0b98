"""Connections over TLS: the same limits as without, and handshakes that fail or do not end."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from ottla_broker import handshakes
from ottla_broker.connection_limits import ConnectionLimits
from ottla_broker.security.principal import ANONYMOUS, Principal, principal_from_certificate
from ottla_broker.wire.api_keys import ApiKey
from tests.kube.certificates import CertificateAuthority, create_certificate_authority, create_client_certificate
from tests.unit.api.brokers import RawConnection, SmallBroker, batch, create_server
from tests.unit.api.requests import fetch_request, produce_request
from tests.unit.async_tests import wait_until
from tests.unit.server.certificates import client_context, connect_with_tls, start_both_listeners, tls_test
from tests.unit.server.connections import capture_log, request_api_versions, slow_socket

API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1)


async def receive_alert(connection: RawConnection) -> str:
    """OpenSSL's text of the alert with which the broker closes a connection."""
    with pytest.raises(ssl.SSLError) as raised:
        await connection.receive()
    return str(raised.value)


def shake_hands(port: int, context: ssl.SSLContext) -> None:
    """Uses a blocking socket, which sends an alert when the handshake fails; asyncio does not."""
    with socket.create_connection(("127.0.0.1", port)) as sock, context.wrap_socket(sock, server_hostname="localhost"):
        pass


@tls_test()
async def test_requests_and_responses_of_any_size_work_over_tls(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    (partition,) = broker.add_topic("a")
    server = create_server(broker)
    _, port = await start_both_listeners(server)
    connection = await connect_with_tls(port, client_context(authority))
    assert (await request_api_versions(connection)).error_code is ErrorCode.none
    for size in (1, 5_000, 16 << 10, 300_000, 900_000):
        connection.send(ApiKey.PRODUCE, 9, size, produce_request({("a", 0): batch(bytes(size))}))
        assert (await connection.receive())[:4] == struct.pack(">i", size)
    for _ in range(4):
        partition.append_records(batch(bytes(1_000_000)), acks=1)
    connection.send(ApiKey.FETCH, 12, 7, fetch_request({("a", 0): 0}, partition_bytes=50 << 20))
    assert len(await connection.receive()) > 5_000_000
    for correlation in range(50):  # pipelined requests
        connection.send(ApiKey.PRODUCE, 9, correlation, produce_request({("a", 0): batch(b"x")}))
    assert [int.from_bytes((await connection.receive())[:4]) for _ in range(50)] == list(range(50))
    connection.close()
    await wait_until(lambda: not server.connections)
    await server.close()


@tls_test(ssl_enabled_protocols="TLSv1.2")
async def test_only_allowed_tls_versions_are_accepted(broker: SmallBroker, authority: CertificateAuthority) -> None:
    server = create_server(broker)
    _, port = await start_both_listeners(server)
    connection = await connect_with_tls(port, client_context(authority))
    assert connection.writer.get_extra_info("ssl_object").version() == "TLSv1.2"
    assert (await request_api_versions(connection)).error_code is ErrorCode.none
    lines, newest = capture_log(), client_context(authority)
    newest.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises(ssl.SSLError):
        await connect_with_tls(port, newest)
    await wait_until(lambda: bool(lines()))
    assert "the client supports no TLS version that ssl.enabled.protocols allows" in lines()[0]
    await server.close()


@tls_test(ssl_enabled_protocols="TLSv1.3")
async def test_a_downgrade_to_an_older_tls_version_or_to_none_is_refused(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    server = create_server(broker)
    _, port = await start_both_listeners(server)
    older = client_context(authority)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        await connect_with_tls(port, older)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(API_VERSIONS_REQUEST)
    answer = await reader.read()
    writer.close()
    assert answer[:1] in (b"", b"\x15"), "nothing but an alert of TLS"
    await wait_until(lambda: not server.connections)
    await server.close()


@tls_test(ssl_client_auth="required", ssl_truststore_location="THE_AUTHORITY")
async def test_principal_of_a_connection_is_that_of_the_client_certificate(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    server = create_server(broker)
    _, port = await start_both_listeners(server)
    connection = await connect_with_tls(port, client_context(authority, create_client_certificate(authority, "alice")))
    assert (await request_api_versions(connection)).error_code is ErrorCode.none
    (accepted,) = server.connections
    assert str(accepted.state.principal) == "User:CN=alice"
    lines = capture_log()
    without_certificate = await connect_with_tls(
        port, client_context(authority)
    )  # with TLS 1.3 the client's handshake ends before the broker checks the certificate
    assert "certificate required" in await receive_alert(without_certificate)
    await wait_until(lambda: bool(lines()))
    assert lines()[0].endswith("the client has no certificate, and ssl.client.auth=required")
    await server.close()


@tls_test(ssl_client_auth="requested", ssl_truststore_location="THE_AUTHORITY")
async def test_requested_client_certificate_may_be_missing_but_not_invalid(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    server = create_server(broker)
    _, port = await start_both_listeners(server)
    connection = await connect_with_tls(port, client_context(authority))
    assert (await request_api_versions(connection)).error_code is ErrorCode.none
    (accepted,) = server.connections
    assert accepted.state.principal == ANONYMOUS
    other_authority = create_certificate_authority(authority.folder / "others", [], ["x"])
    lines = capture_log()
    untrusted = await connect_with_tls(
        port, client_context(authority, create_client_certificate(other_authority, "eve"))
    )
    assert "unknown ca" in await receive_alert(untrusted)
    await wait_until(lambda: bool(lines()))
    assert "the client's certificate is rejected: unable to get local issuer certificate" in lines()[0]
    await server.close()


@tls_test()
async def test_rule_18_failed_handshake_closes_its_connection_with_one_log_line(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    server = create_server(broker)
    plain, port = await start_both_listeners(server)
    other = await connect_with_tls(port, client_context(authority))
    lines = capture_log()
    plain_connection = await RawConnection.open(port)
    plain_connection.writer.write(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
    assert await plain_connection.is_closed_by_peer()
    assert lines()[0].endswith("the client does not use TLS, and this listener requires it")
    malformed = await RawConnection.open(port)
    malformed.writer.write(b"\x16\x03\x01\x00\x05hello")
    await wait_until(lambda: len(lines()) == 2)
    assert "TLS with 127.0.0.1:" in lines()[1]
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.to_thread(shake_hands, port, ssl.create_default_context())
    await wait_until(lambda: len(lines()) == 3)
    assert lines()[2].endswith("the client does not trust this broker's certificate (unknown authority)")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await connect_with_tls(plain, client_context(authority))
    await wait_until(lambda: len(lines()) == 4)
    assert lines()[3].endswith("the client uses TLS, and this listener does not")
    for _ in range(20):  # repeated failures are logged at intervals
        repeated = await RawConnection.open(port)
        repeated.writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert await repeated.is_closed_by_peer()
    probe = await RawConnection.open(port)  # as load balancers check whether the port is open
    probe.close()
    assert len(lines()) == 4
    assert (await request_api_versions(other)).error_code is ErrorCode.none
    await wait_until(lambda: len(server.connections) == 1)
    await server.close()


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(handshakes, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(handshakes, "MAX_IN_PROGRESS", 5)
    yield


@pytest.mark.usefixtures("short_timeout")
@tls_test()
async def test_rule_18_time_and_number_of_handshakes_are_bounded(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    server = create_server(broker)
    _, port = await start_both_listeners(server)
    lines = capture_log()
    idle = [await RawConnection.open(port) for _ in range(5)]
    await wait_until(lambda: server.handshakes_in_progress == 5)
    sixth = await RawConnection.open(port)
    assert await sixth.is_closed_by_peer()
    assert lines()[0].endswith("5 other handshakes are in progress")
    assert not server.connections
    assert all([await it.is_closed_by_peer() for it in idle])
    assert lines()[1].endswith("the handshake was not done within 0 s")
    assert not server.handshakes_in_progress
    assert (
        await request_api_versions(await connect_with_tls(port, client_context(authority)))
    ).error_code is ErrorCode.none
    await server.close()


@pytest.fixture
def few_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_IN_PROGRESS", 5)
    monkeypatch.setattr(handshakes, "MIN_AGE_S", 0.0)


@pytest.mark.usefixtures("few_handshakes")
@tls_test()
async def test_rule_18_unfinished_handshakes_are_closed_for_new_ones(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    server = create_server(broker)
    _, port = await start_both_listeners(server)
    idle = [await RawConnection.open(port) for _ in range(5)]
    await wait_until(lambda: server.handshakes_in_progress == 5)
    for first in range(3):
        new = await connect_with_tls(port, client_context(authority))
        assert (await request_api_versions(new)).error_code is ErrorCode.none
        assert await idle[first].is_closed_by_peer()
        idle.append(await RawConnection.open(port))
        await wait_until(lambda: server.handshakes_in_progress == 5)
    await server.close()


@tls_test()
async def test_handshakes_count_as_connections(broker: SmallBroker, authority: CertificateAuthority) -> None:
    broker.config.set_dynamic(cluster={"max.connections.per.ip": "2"}, broker={})
    server = create_server(broker)
    plain, port = await start_both_listeners(server)
    handshaking, plain_connection = await RawConnection.open(port), await RawConnection.open(plain)
    assert (await request_api_versions(plain_connection)).error_code is ErrorCode.none
    for third in (await RawConnection.open(port), await RawConnection.open(plain)):
        assert await third.is_closed_by_peer()
    handshaking.close()
    await wait_until(lambda: not server.handshakes_in_progress)
    assert (
        await request_api_versions(await connect_with_tls(port, client_context(authority)))
    ).error_code is ErrorCode.none
    await server.close()


@tls_test()
async def test_rule_18_memory_of_slow_readers_over_tls_is_bounded(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    """Bytes that were written and not sent are counted, encrypted or not."""
    (partition,) = broker.add_topic("a")
    for _ in range(16):
        partition.append_records(batch(bytes(1_000_000)), acks=1)
    bound = 24 << 20
    server = create_server(broker, ConnectionLimits(all_responses_bytes=bound))
    _, port = await start_both_listeners(server)
    context = client_context(authority)
    slow = [
        RawConnection(
            *await asyncio.open_connection(sock=slow_socket(port), ssl=context, server_hostname="localhost", limit=1024)
        )
        for _ in range(40)
    ]
    for connection in slow:
        for correlation in range(8):  # the system's own buffers take the first megabytes
            connection.send(ApiKey.FETCH, 12, correlation, fetch_request({("a", 0): 0}, partition_bytes=50 << 20))
    await wait_until(
        lambda: server.response_memory.is_exhausted and len([c for c in server.connections if not c.is_idle]) >= 15
    )
    unsent = sum(connection._transport.get_write_buffer_size() for connection in server.connections)
    encrypted = sum(c._transport._below.get_write_buffer_size() for c in server.connections)  # type: ignore[attr-defined]
    assert bound <= server.response_memory.allocated_bytes <= bound + (2 << 20)
    assert unsent <= server.response_memory.allocated_bytes + 40 * (64 << 10)
    assert encrypted <= 40 * (200 << 10), "only what fits into the socket soon is encrypted"
    other = await connect_with_tls(port, context)
    assert (await request_api_versions(other)).error_code is ErrorCode.none
    other.send(ApiKey.FETCH, 12, 5, fetch_request({("a", 0): 0}))
    for connection in slow:
        connection.close()
        connection.writer.transport.abort()
    assert len(await other.receive()) > 900_000
    await wait_until(lambda: server.response_memory.allocated_bytes == 0)
    await server.close()


@tls_test()
async def test_rule_18_large_requests_over_tls_wait_for_memory(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    (partition,) = broker.add_topic("a")
    server = create_server(broker, ConnectionLimits(all_requests_bytes=1 << 20))
    _, port = await start_both_listeners(server)
    context = client_context(authority)
    large_senders = [await connect_with_tls(port, context) for _ in range(4)]
    for sender in large_senders:
        sender.writer.write((900_000).to_bytes(4) + bytes(200_000))
    await wait_until(lambda: server.request_memory.is_exhausted and server.request_memory.has_waiters)
    assert server.request_memory.allocated_bytes <= 2 << 20
    large = await connect_with_tls(port, context)
    large.send(ApiKey.PRODUCE, 9, 1, produce_request({("a", 0): batch(bytes(500_000))}))
    for sender in large_senders:
        sender.writer.transport.abort()
    assert await large.receive()
    assert partition.log.end == 1
    await wait_until(lambda: server.request_memory.allocated_bytes == 0)
    await server.close()


@tls_test()
async def test_closing_the_server_closes_connections_and_handshakes(
    broker: SmallBroker, authority: CertificateAuthority
) -> None:
    broker.add_topic("a")
    server = create_server(broker)
    _, port = await start_both_listeners(server)
    handshaking, waiting = await RawConnection.open(port), await connect_with_tls(port, client_context(authority))
    waiting.send(ApiKey.FETCH, 12, 1, fetch_request({("a", 0): 0}, wait_ms=10_000))
    await wait_until(lambda: bool(server.connections) and not next(iter(server.connections)).is_idle)
    await server.close()
    assert await handshaking.is_closed_by_peer()
    assert await waiting.receive()  # a received request gets its response
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
