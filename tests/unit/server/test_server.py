"""Connections over real sockets: order of responses, limits, and malformed requests."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ottla_broker.api.api_versions import TELEMETRY
from ottla_broker.connection_limits import ConnectionLimits
from ottla_broker.listener_certificates import ListenError
from ottla_broker.replication.pending_acks import CommitCallback
from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.telemetry.otlp import is_installed
from ottla_broker.wire.api_keys import FIRST_OWN_KEY, ApiKey
from ottla_broker.wire.codec import read_response, request_class
from tests.unit.api.brokers import ME, RawConnection, SmallBroker, batch, create_server, start_listening
from tests.unit.api.requests import fetch_request, produce_request
from tests.unit.async_tests import wait_until
from tests.unit.server.connections import (
    API_VERSIONS_REQUEST,
    broker_test,
    capture_log,
    request_api_versions,
    slow_socket,
)


@broker_test
async def test_api_versions_returns_the_served_versions(broker: SmallBroker) -> None:
    server = create_server(broker)
    connection = await RawConnection.open(await start_listening(server))
    for version in range(5):
        response = await request_api_versions(connection, version)
        assert {(api.api_key, api.min_version, api.max_version) for api in response.api_keys} == {
            (key, first, last)
            for key, (first, last) in SERVED_VERSIONS.items()
            if key < FIRST_OWN_KEY and (key not in TELEMETRY or is_installed())
        }
    await server.close()


@broker_test
async def test_features_are_finalized_from_version_3_on(broker: SmallBroker) -> None:
    server = create_server(broker)
    broker.image.end_offset = 13
    connection = await RawConnection.open(await start_listening(server))
    for version in (3, 4):
        response = await request_api_versions(connection, version)
        assert [(it.name, it.min_version, it.max_version) for it in response.supported_features] == [
            ("metadata.version", 27, 27),
            # Older clients cannot read a lowest level of 0.
            *(
                [
                    ("kraft.version", 0, 1),
                    ("transaction.version", 0, 2),
                    ("group.version", 0, 1),
                    ("streams.version", 0, 1),
                    ("share.version", 0, 2),
                ]
                if version >= 4
                else []
            ),
        ]
        assert [(it.name, it.min_version_level, it.max_version_level) for it in response.finalized_features] == [
            ("metadata.version", 27, 27),
            ("kraft.version", 1, 1),
            ("transaction.version", 2, 2),
            ("group.version", 1, 1),
            ("streams.version", 1, 1),
            ("share.version", 1, 1),
        ]
        assert response.finalized_features_epoch == 12
    await server.close()


@broker_test
async def test_rule_16_unknown_version_of_api_versions_gets_error_35_in_version_0(broker: SmallBroker) -> None:
    server = create_server(broker)
    connection = await RawConnection.open(await start_listening(server))
    header = b"\0\x12\0\x63\0\0\0\x09" + b"\0\x02me"
    connection.writer.write((len(header) + 5).to_bytes(4) + header + b"\0what")
    response = read_response(await connection.receive(), ApiKey.API_VERSIONS, 0)
    assert response.error_code is ErrorCode.unsupported_version
    assert ApiKey.API_VERSIONS in {api.api_key for api in response.api_keys}
    assert (await request_api_versions(connection)).error_code is ErrorCode.none  # the connection stays open
    await server.close()


@broker_test
async def test_responses_have_the_order_of_requests(broker: SmallBroker) -> None:
    broker.add_topic("a")
    server = create_server(broker)
    connection = await RawConnection.open(await start_listening(server))
    waiting_fetch = fetch_request({("a", 0): 0}, wait_ms=200, min_bytes=1 << 20)
    for correlation in range(0, 40, 4):
        connection.send(ApiKey.PRODUCE, 9, correlation, produce_request({("a", 0): batch(b"1")}))
        connection.send(ApiKey.API_VERSIONS, 4, correlation + 1, API_VERSIONS_REQUEST)
        connection.send(ApiKey.PRODUCE, 9, correlation + 2, produce_request({("a", 0): batch(b"2")}))
        connection.send(
            ApiKey.FETCH, 12, correlation + 3, fetch_request({("a", 0): 0}) if correlation else waiting_fetch
        )
    received = [int.from_bytes((await connection.receive())[:4]) for _ in range(40)]
    assert received == list(range(40))
    await server.close()


@broker_test
async def test_records_sent_with_acks_0_survive_the_end_of_their_connection(broker: SmallBroker) -> None:
    server = create_server(broker)
    (partition,) = broker.add_topic("a")
    connection = await RawConnection.open(await start_listening(server))
    connection.send(ApiKey.FETCH, 12, 0, fetch_request({("a", 0): 0}, wait_ms=20_000, min_bytes=1 << 20))
    for acks, value in ((0, b"sent"), (1, b"unanswered"), (0, b"sent too")):
        connection.send(ApiKey.PRODUCE, 9, 1, produce_request({("a", 0): batch(value)}, acks=acks))
    connection.close()
    await wait_until(lambda: partition.log.end == 2)  # a producer repeats what was not answered
    await server.close()


@broker_test
async def test_produce_requests_are_processed_while_earlier_responses_wait(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a", replicas=(ME, 2))  # replica 2 fetches nothing
    callbacks: list[CommitCallback] = []

    def when_committed(appended: Any, callback: CommitCallback, **options: Any) -> bool:
        callbacks.append(callback)
        return True

    partition.call_when_committed = when_committed  # type: ignore[method-assign]
    server = create_server(broker)
    connection = await RawConnection.open(await start_listening(server))
    for correlation in range(5):
        connection.send(ApiKey.PRODUCE, 9, correlation, produce_request({("a", 0): batch(b"1")}))
    await wait_until(lambda: len(callbacks) == 5)
    for callback in reversed(callbacks):
        callback(None)
    assert [int.from_bytes((await connection.receive())[:4]) for _ in range(5)] == list(range(5))
    await server.close()


def frame(key: int, version: int, body: bytes) -> bytes:
    request = key.to_bytes(2) + version.to_bytes(2) + bytes(4) + b"\xff\xff" + body
    return len(request).to_bytes(4) + request


@broker_test
async def test_rule_18_malformed_request_closes_its_connection_with_one_log_line(broker: SmallBroker) -> None:
    server = create_server(broker)
    port = await start_listening(server)
    other = await RawConnection.open(port)
    bad = {
        "no header": b"\0\0\0\x03abc",
        "negative size": b"\xff\xff\xff\xff",
        "too large": b"\x7f\xff\xff\xff",
        "an unknown API": frame(999, 0, b""),
        "an unknown version": frame(ApiKey.METADATA, 99, b""),
        "an empty body": frame(ApiKey.METADATA, 1, b""),
        "an array of 2^31 elements": frame(ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"),
        "a cut produce": frame(ApiKey.PRODUCE, 9, b"\0\0"),
        "a cut fetch": frame(ApiKey.FETCH, 12, b"\0\0"),
    }
    for name, data in bad.items():
        lines = capture_log()
        connection = await RawConnection.open(port)
        connection.writer.write(data)
        assert await connection.is_closed_by_peer(), name
        connection.close()
        assert len(lines()) == 1, name
        assert "closing connection from 127.0.0.1:" in lines()[0]
    assert (await request_api_versions(other)).error_code is ErrorCode.none
    assert len(server.connections) == 1
    await server.close()


async def slow_connection(port: int) -> RawConnection:
    return RawConnection(*await asyncio.open_connection(sock=slow_socket(port), limit=1024))


@broker_test
async def test_rule_18_memory_of_slow_readers_is_bounded(broker: SmallBroker) -> None:
    """Eighty connections fetch as much as possible and read nothing. Fetches beyond the bound
    wait.
    """
    (partition,) = broker.add_topic("a")
    for _ in range(16):
        partition.append_records(batch(bytes(1_000_000)), acks=1)
    bound = 24 << 20
    server = create_server(broker, ConnectionLimits(all_responses_bytes=bound))
    port = await start_listening(server)
    slow = [await slow_connection(port) for _ in range(80)]
    for connection in slow:
        for correlation in range(8):  # the system's own buffers take the first megabytes
            connection.send(ApiKey.FETCH, 12, correlation, fetch_request({("a", 0): 0}, partition_bytes=50 << 20))
    await wait_until(
        lambda: server.response_memory.is_exhausted and len([c for c in server.connections if not c.is_idle]) >= 40
    )
    held = sum(connection._transport.get_write_buffer_size() for connection in server.connections)
    assert bound <= server.response_memory.allocated_bytes <= bound + (2 << 20)
    assert held <= server.response_memory.allocated_bytes + 80 * (64 << 10)

    # Other requests are served meanwhile, and waiting fetches when the slow readers disconnect.
    other = await RawConnection.open(port)
    assert (await request_api_versions(other)).error_code is ErrorCode.none
    other.send(ApiKey.FETCH, 12, 5, fetch_request({("a", 0): 0}))
    for connection in slow:
        connection.close()
    assert len(await other.receive()) > 900_000
    await wait_until(lambda: server.response_memory.allocated_bytes == 0)
    await server.close()


@broker_test
async def test_rule_18_connections_that_read_nothing_are_closed_for_waiting_ones(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    for _ in range(16):
        partition.append_records(batch(bytes(1_000_000)), acks=1)
    server = create_server(broker, ConnectionLimits(all_responses_bytes=4 << 20, slow_reader_timeout_s=0.1))
    port = await start_listening(server)
    slow = [await slow_connection(port) for _ in range(30)]
    for connection in slow:
        for correlation in range(8):  # the system's own buffers take the first megabytes
            connection.send(ApiKey.FETCH, 12, correlation, fetch_request({("a", 0): 0}, partition_bytes=50 << 20))
    await wait_until(lambda: server.response_memory.is_exhausted)
    other = await RawConnection.open(port)
    other.send(ApiKey.FETCH, 12, 5, fetch_request({("a", 0): 0}))
    assert len(await other.receive()) > 900_000
    await server.close()


@broker_test
async def test_rule_18_requests_of_a_connection_that_reads_nothing_are_not_read(broker: SmallBroker) -> None:
    broker.add_topic("a")
    server = create_server(broker)
    connection = await slow_connection(await start_listening(server))
    sent = 0
    request = fetch_request({("a", 0): 0})
    (partition,) = broker.partitions
    partition.append_records(batch(bytes(900_000)), acks=1)
    with pytest.raises(TimeoutError):
        while sent < 1_000_000:
            for _ in range(1000):
                connection.send(ApiKey.FETCH, 12, sent, request)
                sent += 1
            await asyncio.wait_for(connection.writer.drain(), 0.3)
    (accepted,) = server.connections
    assert accepted._queued_bytes <= (1 << 20) + (128 << 10)
    await server.close()


@broker_test
async def test_rule_18_only_large_requests_wait_for_memory(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    server = create_server(broker, ConnectionLimits(all_requests_bytes=1 << 20))
    port = await start_listening(server)
    large_senders = [await RawConnection.open(port) for _ in range(4)]
    for sender in large_senders:
        sender.writer.write((900_000).to_bytes(4) + bytes(200_000))
    await wait_until(lambda: server.request_memory.is_exhausted and server.request_memory.has_waiters)
    assert server.request_memory.allocated_bytes <= 2 << 20
    small = await RawConnection.open(port)
    small.send(ApiKey.PRODUCE, 9, 1, produce_request({("a", 0): batch(b"1")}))
    assert await small.receive()
    large = await RawConnection.open(port)
    large.send(ApiKey.PRODUCE, 9, 1, produce_request({("a", 0): batch(bytes(500_000))}))
    for sender in large_senders:
        sender.close()
    assert await large.receive()
    assert partition.log.end == 2
    await wait_until(lambda: server.request_memory.allocated_bytes == 0)
    await server.close()


@broker_test
async def test_idle_connections_are_closed_unless_a_request_waits(broker: SmallBroker) -> None:
    broker.add_topic("a")
    server = create_server(broker, ConnectionLimits(idle_s=0.2))
    port = await start_listening(server)
    idle, waiting = await RawConnection.open(port), await RawConnection.open(port)
    waiting.send(ApiKey.FETCH, 12, 7, fetch_request({("a", 0): 0}, wait_ms=700))
    assert await idle.is_closed_by_peer()
    assert (await waiting.receive())[:4] == b"\0\0\0\x07"
    await server.close()


@broker_test
async def test_max_connections_per_ip_bounds_connections_of_an_address(broker: SmallBroker) -> None:
    broker.config.set_dynamic(cluster={"max.connections.per.ip": "2"}, broker={})
    server = create_server(broker)
    port = await start_listening(server)
    first, second = await RawConnection.open(port), await RawConnection.open(port)
    assert (await request_api_versions(first)).error_code is ErrorCode.none
    assert (await request_api_versions(second)).error_code is ErrorCode.none
    third = await RawConnection.open(port)
    assert await third.is_closed_by_peer()
    first.close()
    await wait_until(lambda: len(server.connections) == 1)
    assert (await request_api_versions(await RawConnection.open(port))).error_code is ErrorCode.none
    await server.close()


@broker_test
async def test_connection_above_the_rate_waits_before_it_is_served(broker: SmallBroker) -> None:
    broker.config.set_dynamic(cluster={"max.connection.creation.rate": "1"}, broker={})
    server = create_server(broker)
    port = await start_listening(server)
    early = [await RawConnection.open(port) for _ in range(10)]  # the burst
    late = [await RawConnection.open(port) for _ in range(8)]  # the last one waits 8 s
    late[-1].send(ApiKey.API_VERSIONS, 4, 7, API_VERSIONS_REQUEST)
    for connection in early:
        assert (await request_api_versions(connection)).error_code is ErrorCode.none
    assert server.dispatcher.request_counts[ApiKey.API_VERSIONS] == 10
    [*_, last] = server.connections
    last._unmute()
    assert read_response(await late[-1].receive(), ApiKey.API_VERSIONS, 4).error_code is ErrorCode.none
    await server.close()


@broker_test
async def test_address_above_its_rate_of_new_connections_is_refused_after_a_while(broker: SmallBroker) -> None:
    broker.client_quotas.update({(("ip", None),): {"connection_creation_rate": 0.1}})  # a burst of one
    server = create_server(broker)
    port = await start_listening(server)
    first, second = await RawConnection.open(port), await RawConnection.open(port)
    assert (await request_api_versions(first)).error_code is ErrorCode.none
    second.send(ApiKey.API_VERSIONS, 4, 1, API_VERSIONS_REQUEST)
    assert await second.is_closed_by_peer()  # without a response
    assert broker.client_quotas.throttled["connection_creation_rate", "127.0.0.1", ""].count == 1
    assert (len(server.connections), server.refused_connections) == (1, 1)
    broker.client_quotas.update({})
    assert (await request_api_versions(await RawConnection.open(port))).error_code is ErrorCode.none
    await server.close()


@broker_test
async def test_requests_of_a_muted_connection_wait_until_its_time_is_over(broker: SmallBroker) -> None:
    server = create_server(broker)
    port = await start_listening(server)
    muted = await RawConnection.open(port)
    assert (await request_api_versions(muted)).error_code is ErrorCode.none
    (connection,) = server.connections
    connection.state.mute(3600)
    muted.send(ApiKey.API_VERSIONS, 4, 7, API_VERSIONS_REQUEST)
    for _ in range(3):
        assert (await request_api_versions(await RawConnection.open(port))).error_code is ErrorCode.none
    assert server.dispatcher.request_counts[ApiKey.API_VERSIONS] == 4
    connection._unmute()
    assert read_response(await muted.receive(), ApiKey.API_VERSIONS, 4).error_code is ErrorCode.none
    await server.close()


@broker_test
async def test_port_in_use_is_reported_with_its_listener(broker: SmallBroker) -> None:
    server = create_server(broker)
    port = server.bind()["PLAINTEXT"].port
    other = SmallBroker(Path(broker.config.log_dirs[0]), listeners=f"PLAINTEXT://127.0.0.1:{port}")
    with pytest.raises(ListenError, match=f"PLAINTEXT://127.0.0.1:{port}: address already in use"):
        create_server(other).bind()
    await server.close()


@broker_test
async def test_unknown_host_is_reported_with_its_listener(broker: SmallBroker) -> None:
    broker_with_unknown_host = SmallBroker(Path(broker.config.log_dirs[0]), listeners="PLAINTEXT://256.1.1.1:0")
    with pytest.raises(ListenError, match=r"PLAINTEXT://256\.1\.1\.1:0: (?!unknown error)[a-z ]+$"):
        create_server(broker_with_unknown_host).bind()


@broker_test
async def test_closing_the_server_closes_every_connection(broker: SmallBroker) -> None:
    broker.add_topic("a")
    server = create_server(broker)
    port = await start_listening(server)
    waiting, idle = await RawConnection.open(port), await RawConnection.open(port)
    waiting.send(ApiKey.FETCH, 12, 1, fetch_request({("a", 0): 0}, wait_ms=10_000))
    await wait_until(lambda: len(server.connections) == 2)
    await server.close()
    assert await waiting.is_closed_by_peer()
    assert await idle.is_closed_by_peer()


def test_every_declared_api_has_request_classes() -> None:
    for key, (first, last) in SERVED_VERSIONS.items():
        for version in range(max(first, 3 if key == ApiKey.PRODUCE else 0), last + 1):
            assert request_class(key, version)
