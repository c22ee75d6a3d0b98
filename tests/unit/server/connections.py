"""A broker on uvloop with connections over real sockets, and what it logs."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import uvloop
from kio.schema.api_versions.v4.request import ApiVersionsRequest

from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_response
from tests.unit.api.brokers import RawConnection, SmallBroker

API_VERSIONS_REQUEST = ApiVersionsRequest(client_software_name="a-test", client_software_version="1.0")
# Loopback sockets take megabytes before a writer notices that the peer does not read.
SMALL_SOCKET_BYTES = 4096


def broker_test(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test that takes a broker, on uvloop as brokers do and for at most 30 s."""

    @wraps(test)
    def run(tmp_path: Path, **named: Any) -> None:
        async def with_broker() -> None:
            broker = SmallBroker(tmp_path)
            try:
                await asyncio.wait_for(test(broker, **named), 30)
            finally:
                broker.close()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(with_broker())

    del run.__wrapped__  # so that pytest passes tmp_path
    return run


async def request_api_versions(connection: RawConnection, version: int = 4) -> Any:
    connection.send(ApiKey.API_VERSIONS, version, 1, API_VERSIONS_REQUEST)
    return read_response(await connection.receive(), ApiKey.API_VERSIONS, version)


def capture_log() -> Callable[[], list[str]]:
    """Returns a function that returns the warnings and errors the broker has logged since."""
    lines: list[str] = []

    class ListHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logging.getLogger("ottla_broker").handlers = [ListHandler(logging.WARNING)]
    return lambda: lines


def slow_socket(port: int) -> socket.socket:
    """A client socket with a small receive buffer, which must be set before it connects."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_SOCKET_BYTES)
    sock.connect(("127.0.0.1", port))
    return sock
