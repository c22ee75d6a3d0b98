"""Limits per client: a bad client loses only its own connection, and the memory that it can use is
bounded.
"""

import contextlib
import os
import resource
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import START_MS, Message

SLOW_READERS = 1000
# queued.max.request.bytes (256 MiB by default) bounds requests and responses of all connections;
# the allocator adds some. Without the bound, these connections would hold four gigabytes.
MAY_GROW_KIB = 320 * 1024


@contextlib.contextmanager
def connection(broker: BrokerProcess) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as made:
        yield made


def request(api: int, version: int, body: bytes, correlation: int = 1) -> bytes:
    """A request with its size, with header version 1 and the client id `raw`."""
    content = struct.pack(">hhih3s", api, version, correlation, 3, b"raw") + body
    return struct.pack(">i", len(content)) + content


def fetch_request(topic: str, max_bytes: int, correlation: int = 1) -> bytes:
    """A Fetch request, version 4, for partition 0 of the topic from offset 0."""
    name = topic.encode()
    head = struct.pack(">iiiibi", -1, 500, 1, max_bytes, 0, 1)
    partition = struct.pack(">iiqi", 1, 0, 0, max_bytes)
    return request(1, 4, head + struct.pack(f">h{len(name)}s", len(name), name) + partition, correlation)


def read_response(connected: socket.socket) -> bytes:
    """One response without its size; empty if the broker has closed the connection."""
    frame = _receive(connected, 4)
    return _receive(connected, struct.unpack(">i", frame)[0]) if frame else b""


def _receive(connected: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        with contextlib.suppress(ConnectionResetError):
            part = connected.recv(size - len(got))
            if part:
                got += part
                continue
        return b""
    return bytes(got)


VERSIONS = request(18, 0, b"")


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", 2**31 - 1) + b"x" * 1000,
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 8) + b"\xff" * 8,
        request(9999, 0, b""),
        request(1, 4, b"\x7f" * 40),
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        request(3, 1, struct.pack(">i", 2**31 - 1)),
    ],
    ids=["huge", "negative", "empty", "nonsense", "unknown api", "bad body", "http", "array of 2³¹"],
)
def test_malformed_request_closes_its_connection(broker: BrokerProcess, sent: bytes) -> None:
    with connection(broker) as good, connection(broker) as bad:
        before = broker.resident_memory_kib()
        bad.sendall(sent)
        assert read_response(bad) == b"", "the connection is closed"
        good.sendall(VERSIONS)
        assert read_response(good)[:4] == b"\0\0\0\1"
        assert broker.resident_memory_kib() - before < 64 * 1024


def test_request_beyond_the_size_limit_closes_its_connection(new_broker: NewBroker) -> None:
    with new_broker(socket_request_max_bytes=1_000_000) as broker, connection(broker) as bad:
        bad.sendall(struct.pack(">i", 1_000_001) + VERSIONS)
        assert read_response(bad) == b""
        with connection(broker) as good:
            good.sendall(VERSIONS)
            assert read_response(good)


def test_idle_connections_are_closed(new_broker: NewBroker) -> None:
    with new_broker(connections_max_idle_ms=1000) as broker, connection(broker) as idle:
        idle.sendall(VERSIONS)
        assert read_response(idle)
        assert read_response(idle) == b"", "closed by the broker within the socket's time-out"


def test_client_may_pipeline_requests(broker: BrokerProcess) -> None:
    with connection(broker) as one:
        one.sendall(b"".join(request(18, 0, b"", correlation) for correlation in range(500)))
        got = [struct.unpack(">i", read_response(one)[:4])[0] for _ in range(500)]
    assert got == list(range(500)), "responses in the order of the requests"


@pytest.mark.slow
def test_thousand_connections_that_do_not_read_responses_use_bounded_memory(new_broker: NewBroker) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * SLOW_READERS)), hard))
    block = os.urandom(500_000)
    try:
        with new_broker() as broker, contextlib.ExitStack() as readers:
            rd.create_topic(broker.bootstrap, "busy", max_message_bytes=2_000_000)
            rd.produce(broker.bootstrap, "busy", [Message(None, block, START_MS) for _ in range(40)])
            rd.consume(broker.bootstrap, "busy")
            before = broker.resident_memory_kib()
            requests = b"".join(fetch_request("busy", 4_000_000, correlation) for correlation in range(4))
            for _ in range(SLOW_READERS):
                readers.enter_context(connection(broker)).sendall(requests)
            for _ in range(3):  # other connections are still served
                assert len(rd.consume(broker.bootstrap, "busy")) == 40
            assert broker.resident_memory_kib() - before < MAY_GROW_KIB
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
