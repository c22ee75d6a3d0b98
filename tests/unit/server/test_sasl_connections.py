"""Connections of clients that do not log in, or send something other than a login, are closed, and
use no other resources.
"""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.config import listener_security
from ottla_broker.security.jaas import PLAIN_MODULE
from ottla_broker.security.sasl_session import ListenerSasl, SaslSession
from ottla_broker.security.scram import MECHANISMS, ScramCredential, ScramMechanism, make_credential
from ottla_broker.server import Server
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.sasl import ScramClient
from tests.unit.api.brokers import RawConnection, SmallBroker, create_server
from tests.unit.async_tests import async_test, wait_until
from tests.unit.server.connections import capture_log, request_api_versions

CREDENTIALS = {mechanism: make_credential(mechanism, "right", b"salt", 4096) for mechanism in ScramMechanism}


@asynccontextmanager
async def run_sasl_server(folder: Path) -> AsyncIterator[tuple[Server, int]]:
    """Yields a broker's server, and the port of its listener with SASL."""
    broker = SmallBroker(
        folder,
        **{
            "listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.server.max.receive.size": "1000",
            "listener.name.login.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="right";',
        },
    )
    server = create_server(broker)
    try:
        port = server.bind()["LOGIN"].port
        await server.serve()
        yield server, port
    finally:
        await server.close()
        broker.close()


@async_test
async def test_client_that_does_not_log_in_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_security, "LOGIN_TIMEOUT_S", 0.05)
    async with run_sasl_server(tmp_path) as (_, port):
        connection = await RawConnection.open(port)
        assert (await request_api_versions(connection)).error_code is ErrorCode.none
        assert await connection.is_closed_by_peer()


@async_test
async def test_rule_18_frame_of_a_client_that_has_not_logged_in_is_bounded(tmp_path: Path) -> None:
    async with run_sasl_server(tmp_path) as (server, port):
        logged = capture_log()
        for size in (1001, 2**31 - 1, -1):
            connection = await RawConnection.open(port)
            connection.writer.write(struct.pack(">i", size))
            assert await connection.is_closed_by_peer(), size
        await wait_until(lambda: len(logged()) == 3)
        assert server.request_memory.allocated_bytes == 0


@async_test
async def test_bytes_that_are_no_login_close_only_their_connection(tmp_path: Path) -> None:
    async with run_sasl_server(tmp_path) as (_, port):
        logged = capture_log()
        for content in (b"", b"\x60\x82", b"\0" * 30, bytes(range(256)), b"GET / HTTP/1.1\r\n\r\n"):
            connection = await RawConnection.open(port)
            connection.writer.write(struct.pack(">i", len(content)) + content)
            assert await connection.is_closed_by_peer(), content
        assert not any("Traceback" in line or "failed" in line for line in logged()), logged()
        assert (await request_api_versions(await RawConnection.open(port))).error_code is ErrorCode.none


def find_credential(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
    return CREDENTIALS[mechanism] if user == "alice" else None


def new_session(mechanism: str) -> SaslSession:
    session = SaslSession(ListenerSasl(("PLAIN", *MECHANISMS), {"alice": "right"}), find_credential, lambda: 100.0)
    session.begin(mechanism, bare_tokens=False)
    return session


@pytest.mark.parametrize("mechanism", ["PLAIN", *MECHANISMS])
@settings(max_examples=200, deadline=None)
@given(tokens=st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_arbitrary_bytes_never_log_in_and_fail_only_with_errors_of_sasl(mechanism: str, tokens: list[bytes]) -> None:
    session = new_session(mechanism)
    for token in tokens:
        try:
            session.respond(token)
        except KafkaError as error:
            assert error.code in (ErrorCode.sasl_authentication_failed, ErrorCode.illegal_sasl_state)
            assert session.has_failed
            break
    assert session.principal is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_changed_messages_of_a_login_do_not_log_in(mechanism: str, data: st.DataObject) -> None:
    """A valid exchange of which one message is changed in one byte, before the nonce of the first
    or before the proof of the last.
    """
    client, session = ScramClient(mechanism, "alice", "right", "clients-nonce"), new_session(mechanism)
    changes_first = data.draw(st.booleans())
    try:
        first = client.first_message
        final = client.final_message(
            session.respond(change_byte(first, data, first.index(b"r=")) if changes_first else first)
        )
        session.respond(final if changes_first else change_byte(final, data, final.index(b"p=")))
    except KafkaError as error:
        assert error.code is ErrorCode.sasl_authentication_failed
    assert session.has_failed and session.principal is None


def change_byte(message: bytes, data: st.DataObject, before: int) -> bytes:
    at = data.draw(st.integers(0, before))
    value = data.draw(st.integers(0, 255).filter(lambda it: it != message[at]))
    return message[:at] + bytes([value]) + message[at + 1 :]
