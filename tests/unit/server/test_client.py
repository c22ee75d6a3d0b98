"""The client, with a server in the same process."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

import pytest
import uvloop
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.list_offsets.v11.request import ListOffsetsRequest
from kio.schema.metadata.v13.request import MetadataRequest
from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest
from kio.schema.types import BrokerId, GroupId
from kio.static.primitive import i8, i32
from msgspec.structs import replace

from ottla_broker.metadata.records import Endpoint
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire import client as client_module
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.batch import drop_partial_batch, find_last_batch
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.client import (
    Client,
    NoBrokersAvailable,
    parse_bootstrap_servers,
)
from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla_broker.wire.records import iter_records
from tests.unit.api.brokers import SmallBroker, batch, create_server, start_listening
from tests.unit.async_tests import async_test
from tests.unit.server.connections import broker_test

Test = Callable[..., Coroutine[Any, Any, None]]


@pytest.mark.parametrize("security", [UNSECURED, ClientSecurity("SSL")], ids=["plain", "tls"])
@pytest.mark.parametrize("host", ["a" * 64, "a..b", "\ud800"])
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_invalid_host_name_is_an_os_error(run: Callable[..., Any], host: str, security: ClientSecurity) -> None:
    with pytest.raises(OSError, match="is not a host name"):
        run(open_channel(host, 9092, "test", security=security))


@broker_test
async def test_client_produces_fetches_and_lists_offsets(broker: SmallBroker) -> None:
    broker.add_topic("a", 2)
    server = create_server(broker)
    port = await start_listening(server)
    broker.register(port)
    async with Client.connect(f"127.0.0.1:{port}") as client:
        assert [await client.produce("a", 1, batch(b"1", b"2")) for _ in range(3)] == [0, 2, 4]
        fetched = await client.fetch("a", 1, 3)
        assert [record.offset for _, record in iter_records(fetched.records)] == [2, 3, 4, 5]
        assert (fetched.high_watermark, fetched.log_start) == (6, 0)
        assert await client.list_offset("a", 1, EARLIEST_TIMESTAMP) == 0
        assert await client.list_offset("a", 1, LATEST_TIMESTAMP) == 6
        assert await client.list_offset("a", 1, 1_000) == 0
        assert await client.list_offset("a", 1, 1_001) == -1
        with pytest.raises(KafkaError, match="gone") as raised:
            await client.produce("gone", 0, batch(b"1"))
        assert raised.value.code is ErrorCode.unknown_topic_or_partition
        with pytest.raises(KafkaError) as raised:
            await client.fetch("a", 1, 7)
        assert raised.value.code is ErrorCode.offset_out_of_range
        waiting = asyncio.create_task(client.fetch("a", 0, 0, max_wait_s=10))
        other = Client(parse_bootstrap_servers(f"127.0.0.1:{port}"))
        await other.produce("a", 0, batch(b"woken"))
        assert [record.value for _, record in iter_records((await waiting).records)] == [b"woken"]
        await other.close()
    await server.close()


@broker_test
async def test_request_is_sent_in_the_latest_version_that_both_support(broker: SmallBroker) -> None:
    server = create_server(broker)
    port = await start_listening(server)
    broker.register(port)
    async with Client.connect(f"127.0.0.1:{port}") as client:
        channel = await client._any_channel()
        request = OffsetForLeaderEpochRequest(topics=())
        assert channel.latest_usable_version(request) == 4
        channel.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = (2, 3)
        assert channel.latest_usable_version(request) == 3
        assert type(await client.send(request)).__version__ == 4
        channel.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = (5, 9)
        with pytest.raises(KafkaError, match="the broker supports versions 5 to 9"):
            await client.send(request)
        del channel.versions[ApiKey.HEARTBEAT]
        heartbeat = HeartbeatRequest(group_id=GroupId("g"), generation_id=i32(1), member_id="m")
        with pytest.raises(KafkaError, match="supports no version"):
            await client.send(heartbeat)
        with pytest.raises(KafkaError, match="no broker 77"):
            await client.send(request, broker=77)
    await server.close()


@broker_test
async def test_lost_connection_is_an_error_and_opened_again(broker: SmallBroker) -> None:
    server = create_server(broker)
    port = await start_listening(server)
    broker.register(port)
    request = ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=(), timeout=NO_THROTTLE)
    async with Client.connect(f"127.0.0.1:{port}") as client:
        for connection in tuple(server.connections):
            connection.close("a test")
        with pytest.raises(ConnectionError):
            await client.send(request)
        assert (await client.send(request)).topics == ()
    await server.close()


@broker_test
async def test_malformed_response_is_an_error_of_its_connection(broker: SmallBroker) -> None:
    server = create_server(broker)
    port = await start_listening(server)
    channel = await open_channel("127.0.0.1", port, "test")
    with (
        mock.patch.object(channel, "send_in_version", mock.AsyncMock(return_value=bytearray(6))),
        pytest.raises(ConnectionError, match="malformed response to Metadata: "),
    ):
        await channel.send(MetadataRequest(topics=None, include_topic_authorized_operations=False))
    assert not channel.is_open
    with (
        mock.patch.object(Channel, "send_in_version", mock.AsyncMock(return_value=bytearray(6))),
        pytest.raises(ConnectionError, match="malformed response to ApiVersions: "),
    ):
        await open_channel("127.0.0.1", port, "test")
    await server.close()


@broker_test
async def test_read_only_request_is_repeated_after_a_lost_connection_and_a_change_is_not(broker: SmallBroker) -> None:
    stopping, staying = create_server(broker), create_server(broker)
    ports = [await start_listening(stopping), await start_listening(staying)]
    broker.register(ports[1])
    read_only = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    change = CreateTopicsRequest(topics=(), timeout=NO_THROTTLE)
    async with Client.connect(",".join(f"127.0.0.1:{it}" for it in ports)) as client:
        assert stopping.connections and not staying.connections
        pending = asyncio.create_task(client.send(read_only))
        await stopping.close()
        assert (await pending).controller_id == 1

        send, broken = Channel.send, [type(read_only), type(change)]

        async def break_connection(channel: Channel, request: object) -> object:
            if type(request) in broken:
                broken.remove(type(request))
                channel.close()
            return await send(channel, request)

        with mock.patch.object(Channel, "send", break_connection):
            assert (await client.send_to_controller(read_only)).controller_id == 1
            with pytest.raises(ConnectionError):
                await client.send_to_controller(change)
            assert broken == []
    await staying.close()


@broker_test
async def test_request_after_a_timeout_uses_a_new_connection(
    broker: SmallBroker,
) -> None:
    broker.add_topic("a")
    server = create_server(broker)
    port = await start_listening(server)
    broker.register(port)
    async with Client.connect(f"127.0.0.1:{port}", timeout_s=2) as client:
        with pytest.raises(TimeoutError):
            await client.fetch("a", 0, 0, max_wait_s=60)  # later requests on this connection would wait for a minute
        assert await client.list_offset("a", 0, LATEST_TIMESTAMP) == 0
    await server.close()


@broker_test
async def test_bootstrap_continues_after_a_broker_that_does_not_respond(broker: SmallBroker) -> None:
    server = create_server(broker)
    port = await start_listening(server)
    broker.register(port)
    with socket.socket() as silent, mock.patch.object(client_module, "CONNECT_TIMEOUT_S", 0.1):
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent_address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with Client.connect(f"{silent_address},127.0.0.1:{port}", timeout_s=5) as client:
            assert client._controller == 1
        with pytest.raises(NoBrokersAvailable, match=f"{silent_address}: no response in time"):
            async with Client.connect(silent_address, timeout_s=5):
                pass
    await server.close()


@broker_test
async def test_request_to_an_unreachable_controller_goes_to_another_broker(broker: SmallBroker) -> None:
    server = create_server(broker)
    port = await start_listening(server)
    broker.register(port)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        unreachable = Endpoint("127.0.0.1", closed.getsockname()[1])
        broker.image.brokers[2] = replace(broker.image.brokers[1], id=2, endpoints={"PLAINTEXT": unreachable})
        broker.image.controller_id = 2
        async with Client.connect(f"127.0.0.1:{port}") as client:
            request = ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=(), timeout=NO_THROTTLE)
            assert (await client.send_to_controller(request)).topics == ()
            assert client._controller == 2
    await server.close()


@broker_test
async def test_error_names_the_addresses_that_do_not_respond(broker: SmallBroker) -> None:
    server = create_server(broker)
    port = server.bind()["PLAINTEXT"].port
    await server.close()
    with pytest.raises(NoBrokersAvailable, match=f"127.0.0.1:{port}"):
        async with Client.connect(f"127.0.0.1:{port}", timeout_s=5):
            pass


def test_bootstrap_servers_are_parsed() -> None:
    assert parse_bootstrap_servers("a:1, [::1]:2") == [("a", 1), ("::1", 2)]
    for invalid in ("", "a", "a:b", ":9"):
        with pytest.raises(ValueError):
            parse_bootstrap_servers(invalid)


def test_partial_batch_at_the_end_is_dropped() -> None:
    first, second = batch(b"1"), batch(b"2")
    assert drop_partial_batch(first + second) == first + second
    assert drop_partial_batch(first + second[:-1]) == first
    assert drop_partial_batch(first + second[:20]) == first
    assert drop_partial_batch(b"") == b""
    assert find_last_batch(first + second + second[:-1]) == (len(first), len(first + second))
    assert find_last_batch(first[:-1]) == (0, 0)


def test_batch_that_is_shorter_than_its_header_is_corrupt() -> None:
    """With its length, the search would find the same batch again, or go on inside of it."""
    for length in (-12, 0, 48):
        corrupt = bytearray(batch(b"1"))
        corrupt[8:12] = length.to_bytes(4, signed=True)
        with pytest.raises(KafkaError, match=f"the batch at 0 has {length + 12} bytes"):
            find_last_batch(bytes(corrupt))


@async_test
async def test_refused_connection_is_reported_in_words() -> None:
    with socket.socket() as closed:  # bound, and not listening
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(NoBrokersAvailable, match=rf"^no broker responds: 127\.0\.0\.1:{port}: connection refused$"):
            async with Client.connect(f"127.0.0.1:{port}", timeout_s=10) as client:
                await client.metadata(())
