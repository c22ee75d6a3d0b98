"""The client against a server in the same process."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.list_offsets.v11.request import ListOffsetsRequest
from kio.schema.metadata.v13.request import MetadataRequest
from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest
from kio.schema.types import BrokerId, GroupId
from kio.static.primitive import i8, i32

from ottla_broker.metadata.records import Endpoint
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire import client as client_module
from ottla_broker.wire.batch import drop_partial_batch
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.client import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Client,
    NoBrokersAvailable,
    parse_bootstrap_servers,
)
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.records import iter_records
from tests.unit.api.brokers import SmallBroker, batch, serve, start_listening
from tests.unit.server.test_server import on_a_loop

Test = Callable[..., Coroutine[Any, Any, None]]


@on_a_loop
async def test_produce_fetch_and_offsets(broker: SmallBroker) -> None:
    broker.add_topic("a", 2)
    server = serve(broker)
    port = await start_listening(server)
    broker.register(port)
    async with Client.connect(f"127.0.0.1:{port}") as client:
        assert [await client.produce("a", 1, batch(b"1", b"2")) for _ in range(3)] == [0, 2, 4]
        found = await client.fetch("a", 1, 3)
        assert [record.offset for _, record in iter_records(found.records)] == [2, 3, 4, 5]
        assert (found.high_watermark, found.log_start) == (6, 0)
        assert await client.list_offset("a", 1, EARLIEST_TIMESTAMP) == 0
        assert await client.list_offset("a", 1, LATEST_TIMESTAMP) == 6
        assert await client.list_offset("a", 1, 1_000) == 0
        assert await client.list_offset("a", 1, 1_001) == -1
        with pytest.raises(KafkaError, match="gone") as refused:
            await client.produce("gone", 0, batch(b"1"))
        assert refused.value.code is ErrorCode.unknown_topic_or_partition
        with pytest.raises(KafkaError) as refused:
            await client.fetch("a", 1, 7)
        assert refused.value.code is ErrorCode.offset_out_of_range
        waiting = asyncio.create_task(client.fetch("a", 0, 0, max_wait_s=10))
        other = Client(parse_bootstrap_servers(f"127.0.0.1:{port}"))
        await other.produce("a", 0, batch(b"woken"))
        assert [record.value for _, record in iter_records((await waiting).records)] == [b"woken"]
        await other.close()
    await server.close()


@on_a_loop
async def test_answers_come_in_the_version_asked_whatever_was_spoken(broker: SmallBroker) -> None:
    server = serve(broker)
    port = await start_listening(server)
    broker.register(port)
    async with Client.connect(f"127.0.0.1:{port}") as client:
        channel = await client._any_channel()
        request = OffsetForLeaderEpochRequest(topics=())
        assert channel.latest_usable_version(request) == 4
        channel.versions[23] = (2, 3)
        assert channel.latest_usable_version(request) == 3
        assert type(await client.send(request)).__version__ == 4
        channel.versions[23] = (5, 9)
        with pytest.raises(KafkaError, match="the broker supports versions 5 to 9"):
            await client.send(request)
        del channel.versions[12]
        beat = HeartbeatRequest(group_id=GroupId("g"), generation_id=i32(1), member_id="m")
        with pytest.raises(KafkaError, match="supports no version"):
            await client.send(beat)
        with pytest.raises(KafkaError, match="no broker 77"):
            await client.send(request, broker=77)
    await server.close()


@on_a_loop
async def test_a_lost_connection_is_told_and_made_anew(broker: SmallBroker) -> None:
    server = serve(broker)
    port = await start_listening(server)
    broker.register(port)
    ask = ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=(), timeout=NO_THROTTLE)
    async with Client.connect(f"127.0.0.1:{port}") as client:
        for connection in tuple(server.connections):
            connection.close("a test")
        with pytest.raises(ConnectionError):
            await client.send(ask)
        assert (await client.send(ask)).topics == ()
    await server.close()


@on_a_loop
async def test_a_question_is_asked_again_where_its_connection_broke_and_a_change_is_not(broker: SmallBroker) -> None:
    stopping, staying = serve(broker), serve(broker)
    ports = [await start_listening(stopping), await start_listening(staying)]
    broker.register(ports[1])
    question = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    change = CreateTopicsRequest(topics=(), timeout=NO_THROTTLE)
    async with Client.connect(",".join(f"127.0.0.1:{it}" for it in ports)) as client:
        assert stopping.connections and not staying.connections
        asked = asyncio.create_task(client.send(question))
        await stopping.close()
        assert (await asked).controller_id == 1

        ask, broken = Channel.send, [type(question), type(change)]

        async def breaking(channel: Channel, request: object) -> object:
            if type(request) in broken:
                broken.remove(type(request))
                channel.close()
            return await ask(channel, request)

        with mock.patch.object(Channel, "send", breaking):
            assert (await client.send_to_controller(question)).controller_id == 1
            with pytest.raises(ConnectionError):
                await client.send_to_controller(change)
            assert broken == []
    await staying.close()


@on_a_loop
async def test_after_an_answer_that_did_not_come_in_time_the_next_is_asked_on_a_new_connection(
    broker: SmallBroker,
) -> None:
    broker.add_topic("a")
    server = serve(broker)
    port = await start_listening(server)
    broker.register(port)
    async with Client.connect(f"127.0.0.1:{port}", timeout_s=0.3) as client:
        with pytest.raises(TimeoutError):
            await client.fetch("a", 0, 0, max_wait_s=60)  # everything asked behind it would wait for a minute
        assert await client.list_offset("a", 0, LATEST_TIMESTAMP) == 0
    await server.close()


@on_a_loop
async def test_a_broker_that_accepts_and_says_nothing_is_passed_over(broker: SmallBroker) -> None:
    server = serve(broker)
    port = await start_listening(server)
    broker.register(port)
    with socket.socket() as silent, mock.patch.object(client_module, "CONNECT_TIMEOUT_S", 0.1):
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        mute = f"127.0.0.1:{silent.getsockname()[1]}"
        async with Client.connect(f"{mute},127.0.0.1:{port}", timeout_s=5) as client:
            assert client._controller == 1
        with pytest.raises(NoBrokersAvailable, match=f"{mute}: no response in time"):
            async with Client.connect(mute, timeout_s=5):
                pass
    await server.close()


@on_a_loop
async def test_what_is_for_a_controller_that_has_just_fallen_goes_to_any_broker(broker: SmallBroker) -> None:
    server = serve(broker)
    port = await start_listening(server)
    broker.register(port)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        gone = Endpoint("127.0.0.1", nobody.getsockname()[1])
        broker.image.brokers[2] = replace(broker.image.brokers[1], id=2, endpoints={"PLAINTEXT": gone})
        broker.image.controller_id = 2
        async with Client.connect(f"127.0.0.1:{port}") as client:
            ask = ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=(), timeout=NO_THROTTLE)
            assert (await client.send_to_controller(ask)).topics == ()
            assert client._controller == 2
    await server.close()


@on_a_loop
async def test_nobody_there_is_told_by_address(broker: SmallBroker) -> None:
    server = serve(broker)
    port = server.bind()["PLAINTEXT"].port
    await server.close()
    with pytest.raises(NoBrokersAvailable, match=f"127.0.0.1:{port}"):
        async with Client.connect(f"127.0.0.1:{port}", timeout_s=5):
            pass


def test_bootstrap() -> None:
    assert parse_bootstrap_servers("a:1, [::1]:2") == [("a", 1), ("::1", 2)]
    for bad in ("", "a", "a:b", ":9"):
        with pytest.raises(ValueError):
            parse_bootstrap_servers(bad)


def test_a_batch_that_was_cut_off_is_left_out() -> None:
    one, two = batch(b"1"), batch(b"2")
    assert drop_partial_batch(one + two) == one + two
    assert drop_partial_batch(one + two[:-1]) == one
    assert drop_partial_batch(one + two[:20]) == one
    assert drop_partial_batch(b"") == b""


def test_nobody_there_is_said_in_words() -> None:
    async def ask() -> None:
        with socket.socket() as closed:  # bound, and nobody listens
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
            with pytest.raises(
                NoBrokersAvailable, match=rf"^no broker responds: 127\.0\.0\.1:{port}: connection refused$"
            ):
                async with Client.connect(f"127.0.0.1:{port}", timeout_s=0.2) as client:
                    await client.metadata(())

    asyncio.run(ask())
