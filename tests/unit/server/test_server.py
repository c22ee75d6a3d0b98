"""Connections over real sockets: order, bounds, and what becomes of those who break the rules."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import uvloop
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode

from ottla_broker.connection import ConnectionLimits
from ottla_broker.replication.pending_acks import CommitCallback
from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.server import ListenError
from ottla_broker.wire.api_keys import FIRST_OWN_KEY, ApiKey
from ottla_broker.wire.codec import read_response, request_class
from tests.unit.api.brokers import SmallBroker, Wire, batch, listening, serve
from tests.unit.api.requests import fetch_request, produce_request

HELLO = ApiVersionsRequest(client_software_name="a-test", client_software_version="1.0")
API_VERSIONS = 18
# Loopback sockets take megabytes before a writer notices that nobody reads.
SMALL_SOCKET_BYTES = 4096


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """On uvloop, as the broker runs, and with a broker and a server of its own."""

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

    del run.__wrapped__  # pytest is to see tmp_path
    return run


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (what is looked at has no event)
        await asyncio.sleep(0.005)


async def hello(wire: Wire, version: int = 4) -> Any:
    wire.send(API_VERSIONS, version, 1, HELLO)
    return read_response(await wire.receive(), API_VERSIONS, version)


@on_a_loop
async def test_api_versions_tells_the_table(broker: SmallBroker) -> None:
    server = serve(broker)
    wire = await Wire.to(await listening(server))
    for version in range(5):
        answer = await hello(wire, version)
        assert {(api.api_key, api.min_version, api.max_version) for api in answer.api_keys} == {
            (key, first, last) for key, (first, last) in SERVED_VERSIONS.items() if key < FIRST_OWN_KEY
        }
    await server.close()


@on_a_loop
async def test_metadata_version_is_a_finalized_feature_from_version_3_on(broker: SmallBroker) -> None:
    server = serve(broker)
    broker.image.end_offset = 13
    wire = await Wire.to(await listening(server))
    for version in (3, 4):
        answer = await hello(wire, version)
        assert [(one.name, one.min_version, one.max_version) for one in answer.supported_features] == [
            ("metadata.version", 27, 27)
        ]
        assert [(one.name, one.min_version_level, one.max_version_level) for one in answer.finalized_features] == [
            ("metadata.version", 27, 27)
        ]
        assert answer.finalized_features_epoch == 12
    await server.close()


@on_a_loop
async def test_rule_16_api_versions_above_ours_is_answered_in_version_0_with_error_35(broker: SmallBroker) -> None:
    server = serve(broker)
    wire = await Wire.to(await listening(server))
    header = b"\0\x12\0\x63\0\0\0\x09" + b"\0\x02me"
    wire.writer.write((len(header) + 5).to_bytes(4) + header + b"\0what")
    answer = read_response(await wire.receive(), API_VERSIONS, 0)
    assert answer.error_code is ErrorCode.unsupported_version
    assert API_VERSIONS in {api.api_key for api in answer.api_keys}
    assert (await hello(wire)).error_code is ErrorCode.none  # the connection goes on
    await server.close()


@on_a_loop
async def test_answers_come_in_the_order_of_requests(broker: SmallBroker) -> None:
    broker.add_topic("a")
    server = serve(broker)
    wire = await Wire.to(await listening(server))
    wait = fetch_request({("a", 0): 0}, wait_ms=200, min_bytes=1 << 20)
    for correlation in range(0, 40, 4):
        wire.send(0, 9, correlation, produce_request({("a", 0): batch(b"1")}))
        wire.send(API_VERSIONS, 4, correlation + 1, HELLO)
        wire.send(0, 9, correlation + 2, produce_request({("a", 0): batch(b"2")}))
        wire.send(1, 12, correlation + 3, fetch_request({("a", 0): 0}) if correlation else wait)
    seen = [int.from_bytes((await wire.receive())[:4]) for _ in range(40)]
    assert seen == list(range(40))
    await server.close()


@on_a_loop
async def test_produce_is_pipelined_while_its_answers_wait(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    waits: list[CommitCallback] = []

    def when_committed(appended: Any, callback: CommitCallback, **how: Any) -> bool:
        waits.append(callback)
        return True

    partition.is_committed = lambda appended: False  # type: ignore[method-assign]
    partition.call_when_committed = when_committed  # type: ignore[method-assign]
    server = serve(broker)
    wire = await Wire.to(await listening(server))
    for correlation in range(5):
        wire.send(0, 9, correlation, produce_request({("a", 0): batch(b"1")}))
    await eventually(lambda: len(waits) == 5)
    for told in reversed(waits):
        told(None)
    assert [int.from_bytes((await wire.receive())[:4]) for _ in range(5)] == list(range(5))
    await server.close()


def request(key: int, version: int, body: bytes) -> bytes:
    frame = key.to_bytes(2) + version.to_bytes(2) + bytes(4) + b"\xff\xff" + body
    return len(frame).to_bytes(4) + frame


@on_a_loop
async def test_rule_18_a_malformed_request_costs_its_connection_and_one_line(broker: SmallBroker) -> None:
    server = serve(broker)
    port = await listening(server)
    bystander = await Wire.to(port)
    bad = {
        "no header": b"\0\0\0\x03abc",
        "negative size": b"\xff\xff\xff\xff",
        "too large": b"\x7f\xff\xff\xff",
        "an unknown API": request(999, 0, b""),
        "an unknown version": request(3, 99, b""),
        "an empty body": request(3, 1, b""),
        "an array of 2^31 elements": request(3, 1, b"\x7f\xff\xff\xff"),
        "a cut produce": request(0, 9, b"\0\0"),
        "a cut fetch": request(1, 12, b"\0\0"),
    }
    for what, data in bad.items():
        lines = capture()
        wire = await Wire.to(port)
        wire.writer.write(data)
        assert await wire.closed(), what
        wire.close()
        assert len(lines()) == 1, what
        assert "closing connection from 127.0.0.1:" in lines()[0]
    assert (await hello(bystander)).error_code is ErrorCode.none
    assert len(server.connections) == 1
    await server.close()


def capture() -> Callable[[], list[str]]:
    """Collects what the broker logs from now on."""
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logging.getLogger("ottla_broker").handlers = [Collect(logging.WARNING)]
    return lambda: lines


def slow_socket(port: int) -> socket.socket:
    """A client whose socket takes little; it must be set before it connects."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_SOCKET_BYTES)
    sock.connect(("127.0.0.1", port))
    return sock


async def slow_wire(port: int) -> Wire:
    return Wire(*await asyncio.open_connection(sock=slow_socket(port), limit=1024))


@on_a_loop
async def test_rule_18_slow_readers_hold_a_bounded_amount_of_memory(broker: SmallBroker) -> None:
    """Eighty readers ask for all they can get and read nothing; what the bound does not allow stays on disk."""
    (partition,) = broker.add_topic("a")
    for _ in range(16):
        partition.append_records(batch(bytes(1_000_000)), acks=1)
    bound = 24 << 20
    server = serve(broker, ConnectionLimits(all_responses_bytes=bound))
    port = await listening(server)
    slow = [await slow_wire(port) for _ in range(80)]
    for wire in slow:
        for correlation in range(3):
            wire.send(1, 12, correlation, fetch_request({("a", 0): 0}, partition_bytes=50 << 20))
    await eventually(
        lambda: server.responses.is_exhausted and len([c for c in server.connections if not c.is_idle]) >= 40
    )
    held = sum(connection._transport.get_write_buffer_size() for connection in server.connections)
    assert bound <= server.responses.allocated_bytes <= bound + (2 << 20)
    assert held <= server.responses.allocated_bytes + 80 * (64 << 10)

    # Those who fetch nothing are served meanwhile, and when slow readers go, those who wait are served.
    other = await Wire.to(port)
    assert (await hello(other)).error_code is ErrorCode.none
    other.send(1, 12, 5, fetch_request({("a", 0): 0}))
    for wire in slow:
        wire.close()
    assert len(await other.receive()) > 900_000
    await eventually(lambda: server.responses.allocated_bytes == 0)
    await server.close()


@on_a_loop
async def test_rule_18_readers_that_take_nothing_give_way_to_those_who_wait(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    for _ in range(16):
        partition.append_records(batch(bytes(1_000_000)), acks=1)
    server = serve(broker, ConnectionLimits(all_responses_bytes=4 << 20, slow_reader_timeout_s=0.1))
    port = await listening(server)
    slow = [await slow_wire(port) for _ in range(30)]
    for wire in slow:
        for correlation in range(8):  # the system's own buffers take the first megabytes
            wire.send(1, 12, correlation, fetch_request({("a", 0): 0}, partition_bytes=50 << 20))
    await eventually(lambda: server.responses.is_exhausted)
    other = await Wire.to(port)
    other.send(1, 12, 5, fetch_request({("a", 0): 0}))
    assert len(await other.receive()) > 900_000
    await server.close()


@on_a_loop
async def test_rule_18_a_connection_that_does_not_read_is_not_read(broker: SmallBroker) -> None:
    broker.add_topic("a")
    server = serve(broker)
    wire = await slow_wire(await listening(server))
    sent = 0
    ask = fetch_request({("a", 0): 0})
    (partition,) = broker.partitions
    partition.append_records(batch(bytes(900_000)), acks=1)
    with pytest.raises(TimeoutError):
        while sent < 1_000_000:
            for _ in range(1000):
                wire.send(1, 12, sent, ask)
                sent += 1
            await asyncio.wait_for(wire.writer.drain(), 0.3)
    (connection,) = server.connections
    assert connection._queued_bytes <= (1 << 20) + (128 << 10)
    await server.close()


@on_a_loop
async def test_rule_18_large_requests_wait_for_memory_and_others_do_not(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    server = serve(broker, ConnectionLimits(all_requests_bytes=1 << 20))
    port = await listening(server)
    hogs = [await Wire.to(port) for _ in range(4)]
    for hog in hogs:
        hog.writer.write((900_000).to_bytes(4) + bytes(200_000))
    await eventually(lambda: server.requests.is_exhausted and server.requests.has_waiters)
    assert server.requests.allocated_bytes <= 2 << 20
    honest = await Wire.to(port)
    honest.send(0, 9, 1, produce_request({("a", 0): batch(b"1")}))
    assert await honest.receive()
    large = await Wire.to(port)
    large.send(0, 9, 1, produce_request({("a", 0): batch(bytes(500_000))}))
    for hog in hogs:
        hog.close()
    assert await large.receive()
    assert partition.log.end == 2
    await eventually(lambda: server.requests.allocated_bytes == 0)
    await server.close()


@on_a_loop
async def test_idle_connections_are_closed_and_waiting_ones_are_not(broker: SmallBroker) -> None:
    broker.add_topic("a")
    server = serve(broker, ConnectionLimits(idle_s=0.2))
    port = await listening(server)
    idle, waiting = await Wire.to(port), await Wire.to(port)
    waiting.send(1, 12, 7, fetch_request({("a", 0): 0}, wait_ms=700))
    assert await idle.closed()
    assert (await waiting.receive())[:4] == b"\0\0\0\x07"
    await server.close()


@on_a_loop
async def test_connections_are_counted_by_address(broker: SmallBroker) -> None:
    broker.config.set_dynamic(cluster={"max.connections.per.ip": "2"}, broker={})
    server = serve(broker)
    port = await listening(server)
    first, second = await Wire.to(port), await Wire.to(port)
    assert (await hello(first)).error_code is ErrorCode.none
    assert (await hello(second)).error_code is ErrorCode.none
    third = await Wire.to(port)
    assert await third.closed()
    first.close()
    await eventually(lambda: len(server.connections) == 1)
    assert (await hello(await Wire.to(port))).error_code is ErrorCode.none
    await server.close()


@on_a_loop
async def test_a_port_in_use_is_named(broker: SmallBroker) -> None:
    server = serve(broker)
    port = server.bind()["PLAINTEXT"].port
    again = SmallBroker(Path(broker.config.log_dirs[0]), listeners=f"PLAINTEXT://127.0.0.1:{port}")
    with pytest.raises(ListenError, match=f"PLAINTEXT://127.0.0.1:{port}: address already in use"):
        serve(again).bind()
    await server.close()


@on_a_loop
async def test_a_host_that_does_not_exist_is_said_in_words(broker: SmallBroker) -> None:
    wrong = SmallBroker(Path(broker.config.log_dirs[0]), listeners="PLAINTEXT://256.1.1.1:0")
    with pytest.raises(ListenError, match=r"PLAINTEXT://256\.1\.1\.1:0: (?!unknown error)[a-z ]+$"):
        serve(wrong).bind()


@on_a_loop
async def test_closing_closes_every_connection(broker: SmallBroker) -> None:
    broker.add_topic("a")
    server = serve(broker)
    wires = [await Wire.to(await listening(server))]
    wires[0].send(1, 12, 1, fetch_request({("a", 0): 0}, wait_ms=10_000))
    await eventually(lambda: bool(server.connections))
    await server.close()
    assert await wires[0].closed()


def test_every_declared_api_has_request_classes() -> None:
    for key, (first, last) in SERVED_VERSIONS.items():
        for version in range(max(first, 3 if key == ApiKey.PRODUCE else 0), last + 1):
            assert request_class(key, version)
