"""The receive buffer of a client's connection: by default, and by an operator's setting."""

import socket
import sys

import pytest

from ottla_broker.config import Config
from ottla_broker.connection import Connection
from ottla_broker.connection_limits import ConnectionLimits
from ottla_broker.receive_buffer import LARGE_IN_ROW, LARGE_REQUEST_BYTES, SMALL_BUFFER_BYTES, adapts_receive_buffers
from ottla_broker.server import listen_on_socket
from ottla_broker.wire.api_keys import ApiKey
from tests.unit.api.brokers import RawConnection, SmallBroker, batch, create_server, start_listening
from tests.unit.api.requests import produce_request
from tests.unit.async_tests import wait_until
from tests.unit.server.connections import broker_test

SETTINGS = {"log.dirs": "/nowhere", "listeners": "PLAINTEXT://127.0.0.1:0"}

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits what a client sends")


def buffer_and_limit(connection: Connection) -> tuple[int, int]:
    """The size set by SO_RCVBUF, of which Linux returns twice as much, and the limit of the
    window.
    """
    sock = connection._transport.get_extra_info("socket")
    return (
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2,
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP),
    )


async def produce_batches(client: RawConnection, payload_bytes: int, count: int = 1) -> None:
    for _ in range(count):
        client.send(ApiKey.PRODUCE, 9, 1, produce_request({("a", 0): batch(bytes(payload_bytes))}))
        await client.receive()


async def connect(broker: SmallBroker) -> tuple[RawConnection, Connection]:
    server = create_server(broker, ConnectionLimits.from_config(broker.config))
    client = await RawConnection.open(await start_listening(server))
    await wait_until(lambda: bool(server.connections))
    (accepted,) = server.connections
    return client, accepted


@linux_only
@broker_test
async def test_consecutive_large_requests_have_a_large_buffer(broker: SmallBroker) -> None:
    broker.add_topic("a")
    client, accepted = await connect(broker)
    await produce_batches(client, LARGE_REQUEST_BYTES, LARGE_IN_ROW - 1)
    await produce_batches(client, 1)
    await produce_batches(client, LARGE_REQUEST_BYTES, LARGE_IN_ROW - 1)
    small_bytes, small_limit = buffer_and_limit(accepted)
    assert small_bytes == SMALL_BUFFER_BYTES
    assert small_limit <= 2 * SMALL_BUFFER_BYTES
    await produce_batches(client, LARGE_REQUEST_BYTES)
    large_bytes, large_limit = buffer_and_limit(accepted)
    assert large_bytes >= 2 * small_bytes
    assert large_limit > 1 << 20
    # What the client was allowed to send still fits, but from now on it may send no more than with
    # a small buffer.
    for payload_bytes in (1, 1_000, 100_000, 200_000, 1):
        await produce_batches(client, payload_bytes, 20)
        now_bytes, now_limit = buffer_and_limit(accepted)
        assert (now_bytes, now_limit <= 2 * SMALL_BUFFER_BYTES) == (large_bytes, True)
    await produce_batches(client, LARGE_REQUEST_BYTES, LARGE_IN_ROW)
    assert buffer_and_limit(accepted) == (large_bytes, large_limit)


@linux_only
@broker_test
async def test_a_buffer_that_an_operator_has_set_stays(broker: SmallBroker) -> None:
    broker.add_topic("a")
    broker.config = Config.of(SETTINGS | {"socket.receive.buffer.bytes": str(SMALL_BUFFER_BYTES)})
    client, accepted = await connect(broker)
    await produce_batches(client, LARGE_REQUEST_BYTES, LARGE_IN_ROW)
    now_bytes, now_limit = buffer_and_limit(accepted)
    assert (now_bytes, now_limit <= 2 * SMALL_BUFFER_BYTES) == (SMALL_BUFFER_BYTES, True)


@pytest.mark.parametrize("size", ["65536", str(SMALL_BUFFER_BYTES), "-1"])
def test_listening_socket_has_the_size_that_the_setting_names(size: str) -> None:
    default, config = Config.of(SETTINGS), Config.of(SETTINGS | {"socket.receive.buffer.bytes": size})
    assert not adapts_receive_buffers(config)
    assert not ConnectionLimits.from_config(config).adapts_receive_buffer
    assert adapts_receive_buffers(default) == (sys.platform == "linux")
    (listener,) = config.listeners
    with listen_on_socket(listener, config) as listening, socket.socket() as fresh:
        set_bytes = listening.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        system_bytes = fresh.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert set_bytes == system_bytes if size == "-1" else set_bytes in (int(size), 2 * int(size))
