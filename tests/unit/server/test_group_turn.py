"""Heartbeats are served after the other requests of groups; if they are many, they get a share of
the time. Responses are sent together, in the order of each connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvloop

from ottla_broker.connection import Connection
from ottla_broker.group_turn import ALONE_S, HEARTBEATS_SHARE, MAX_UNSENT, GroupTurn
from ottla_broker.requests.reply import Reply
from ottla_broker.server import Server
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_response, request_class, write_request
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_schema import schema_of
from tests.unit.api.brokers import RawConnection, start_listening
from tests.unit.async_tests import async_test
from tests.unit.broker_without_sockets import run_broker
from tests.unit.coordination.small_coordinator import build_message
from tests.unit.server.connections import capture_log, request_api_versions

VERSIONS = {
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.HEARTBEAT: 4,
    ApiKey.JOIN_GROUP: 3,  # before version 4, which requires a member id (MEMBER_ID_REQUIRED)
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
}
GROUP = {"group_id": "g"}
JOIN = GROUP | {
    "session_timeout": timedelta(seconds=30),
    "rebalance_timeout": timedelta(seconds=30),
    "protocol_type": "consumer",
    "protocols": ({"name": "range", "metadata": b""},),
}
NOBODY = GROUP | {"member_id": "nobody", "generation_id": 1}


def server_test(test: Callable[[Server], Awaitable[None]]) -> Callable[[Path], None]:
    """Runs a test that takes a broker's server on uvloop."""

    def run(tmp_path: Path) -> None:
        async def with_server() -> None:
            async with run_broker(tmp_path, group_initial_rebalance_delay_ms="0") as broker:
                server = Server(broker)
                # On a slow machine, requests would otherwise seem to come alone.
                server._services.group_turn._clock = lambda: 0.0
                await asyncio.wait_for(test(server), 30)
                await server.close()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(with_server())

    return run


class Client:
    """A client's end of a connection, and the broker's."""

    def __init__(self, raw: RawConnection, connection: Connection) -> None:
        self.raw = raw
        self.connection = connection

    @classmethod
    async def open(cls, server: Server, port: int) -> "Client":
        others = set(server.connections)
        raw = await RawConnection.open(port)
        await request_api_versions(raw)
        (connection,) = set(server.connections) - others
        return cls(raw, connection)

    def inject(self, api: ApiKey, correlation_id: int = 0, /, **fields: Any) -> None:
        """The broker receives this request now, in this turn of the loop, after one of another
        connection.
        """
        self.connection._services.group_turn.receive(NoHeartbeat())
        self.inject_alone(api, correlation_id, **fields)

    def inject_alone(self, api: ApiKey, correlation_id: int = 0, /, **fields: Any) -> None:
        version = VERSIONS[api]
        message = build_message(schema_of(request_class(api, version)), fields)
        self.connection._receive(bytearray(write_request(api, version, correlation_id, "me", message)[4:]))

    async def receive(self, api: ApiKey) -> Any:
        return read_response(await self.raw.receive(), api, VERSIONS[api])

    async def request(self, api: ApiKey, /, **fields: Any) -> Any:
        self.inject(api, **fields)
        return await self.receive(api)

    async def receive_correlation_ids(self, count: int) -> list[int]:
        return [int.from_bytes((await self.raw.receive())[:4]) for _ in range(count)]

    async def wait_for_coordinator(self) -> None:
        await self.request(ApiKey.FIND_COORDINATOR, key="g", key_type=0)  # creates __consumer_offsets
        while (  # noqa: ASYNC110 (there is no event for it)
            await self.request(ApiKey.HEARTBEAT, **NOBODY)
        ).error_code is not ErrorCode.unknown_member_id:
            await asyncio.sleep(0.005)


class DefectiveHeartbeat:
    """Stands for the last heartbeat of a connection."""

    key = int(ApiKey.HEARTBEAT)

    def is_repeated_by(self, frame: bytearray) -> bool:
        return True

    def repeat(self, frame: bytearray) -> Reply:
        raise ArithmeticError


class NoHeartbeat:
    def serve_heartbeat(self, received_s: float) -> None:
        pass


class LongHeartbeats:
    """Each takes a second. `waits_s`: seconds from when each was received until it is served."""

    def __init__(self) -> None:
        self.now_s = 5.0
        self.waits_s: list[float] = []

    def serve_heartbeat(self, received_s: float) -> None:
        self.waits_s.append(self.now_s - received_s)
        self.now_s += 1


class Response:
    def __init__(self, number: int, sent: list[int]) -> None:
        self._number = number
        self._sent = sent

    def flush(self) -> None:
        self._sent.append(self._number)


@async_test
async def test_responses_are_sent_at_the_end_of_the_turn_or_when_they_are_many() -> None:
    loop = asyncio.get_running_loop()
    turn, sent = GroupTurn(loop, loop.time), list[int]()
    for number in range(MAX_UNSENT + 1):
        turn.add_response(Response(number, sent))
    assert sent == list(range(MAX_UNSENT))
    await asyncio.sleep(0)
    assert sent == list(range(MAX_UNSENT + 1))


@async_test
async def test_responses_do_not_wait_for_the_heartbeats_of_the_next_turn() -> None:
    loop = asyncio.get_running_loop()
    turn, sent = GroupTurn(loop, loop.time), list[int]()
    turn.add_response(Response(1, sent))
    turn.add_heartbeat(NoHeartbeat())
    assert sent == [1]


@async_test
async def test_request_comes_alone_if_no_other_connection_has_sent_one_in_the_last_millisecond() -> None:
    now_s = 5.0
    turn, first, second = GroupTurn(asyncio.get_running_loop(), lambda: now_s), NoHeartbeat(), NoHeartbeat()
    assert [turn.receive(one) for one in (first, first, second, first)] == [True, True, False, False]
    now_s += 2 * ALONE_S
    assert turn.receive(second)
    turn.add_heartbeat(first)
    assert not turn.receive(second)  # the turn already has one
    await asyncio.sleep(0)
    assert turn.receive(second)


@async_test
async def test_many_heartbeats_get_a_share_of_the_time() -> None:
    heartbeats = LongHeartbeats()
    turn = GroupTurn(asyncio.get_running_loop(), lambda: heartbeats.now_s)
    for _ in range(4 * MAX_UNSENT):
        turn.receive(heartbeats)
        turn.add_heartbeat(heartbeats)
    await asyncio.sleep(0)
    assert heartbeats.waits_s == list(range(MAX_UNSENT))
    heartbeats.now_s += (MAX_UNSENT + 1) / HEARTBEATS_SHARE  # time for requests between two turns
    await asyncio.sleep(0)
    assert len(heartbeats.waits_s) == 3 * MAX_UNSENT
    await asyncio.sleep(0)
    assert len(heartbeats.waits_s) == 4 * MAX_UNSENT
    assert not turn._is_scheduled


@server_test
async def test_heartbeat_that_comes_alone_is_answered_at_once(server: Server) -> None:
    client = await Client.open(server, await start_listening(server))
    for _ in range(2):  # the first is parsed, the second repeats it
        await client.request(ApiKey.HEARTBEAT, **NOBODY)
    client.inject_alone(ApiKey.HEARTBEAT, 7, **NOBODY)
    assert not server._services.group_turn._is_scheduled
    assert await client.receive_correlation_ids(1) == [7]


@server_test
async def test_heartbeat_is_served_after_a_join_group_of_the_same_turn(server: Server) -> None:
    port = await start_listening(server)
    member, other = await Client.open(server, port), await Client.open(server, port)
    await member.wait_for_coordinator()
    joined = await member.request(ApiKey.JOIN_GROUP, member_id="", **JOIN)
    named = GROUP | {"member_id": joined.member_id, "generation_id": joined.generation_id}
    await member.request(ApiKey.SYNC_GROUP, protocol_type="consumer", protocol_name="range", **named)
    for _ in range(2):  # the first is parsed, because the last heartbeat named another member; the second repeats it
        assert (await member.request(ApiKey.HEARTBEAT, **named)).error_code is ErrorCode.none
    member.inject(ApiKey.HEARTBEAT, **named)
    other.inject(ApiKey.JOIN_GROUP, member_id="", **JOIN)
    assert (await member.receive(ApiKey.HEARTBEAT)).error_code is ErrorCode.rebalance_in_progress


@server_test
async def test_requests_are_answered_in_the_order_of_their_connection(server: Server) -> None:
    client = await Client.open(server, await start_listening(server))
    for correlation in range(0, 20, 2):
        client.inject(ApiKey.HEARTBEAT, correlation, **NOBODY)
        client.inject(ApiKey.LEAVE_GROUP, correlation + 1, members=(), **GROUP)
    assert await client.receive_correlation_ids(20) == list(range(20))


@server_test
async def test_heartbeat_is_answered_before_its_connection_finishes(server: Server) -> None:
    client = await Client.open(server, await start_listening(server))
    for correlation in range(2):  # the first is parsed, the second repeats it
        client.inject(ApiKey.HEARTBEAT, correlation, **NOBODY)
    client.connection.finish()
    assert await client.receive_correlation_ids(2) == [0, 1]
    assert await client.raw.is_closed_by_peer()


@server_test
async def test_heartbeat_is_answered_before_its_connection_is_closed(server: Server) -> None:
    client = await Client.open(server, await start_listening(server))
    client.inject(ApiKey.HEARTBEAT, **NOBODY)
    client.connection._receive(bytearray(b"malformed"))
    assert await client.receive_correlation_ids(1) == [0]
    assert await client.raw.is_closed_by_peer()


@server_test
async def test_connection_that_is_lost_in_its_turn_leaves_others_alone(server: Server) -> None:
    port = await start_listening(server)
    lost, other = await Client.open(server, port), await Client.open(server, port)
    for client in (lost, other):
        await client.request(ApiKey.HEARTBEAT, **NOBODY)
    warnings = capture_log()
    lost.inject(ApiKey.HEARTBEAT, **NOBODY)
    other.inject(ApiKey.HEARTBEAT, 7, **NOBODY)
    lost.connection.connection_lost(None)
    assert await other.receive_correlation_ids(1) == [7]
    assert warnings() == []


@server_test
async def test_defect_in_one_heartbeat_closes_its_connection_only(server: Server) -> None:
    port = await start_listening(server)
    broken, other = await Client.open(server, port), await Client.open(server, port)
    await other.request(ApiKey.HEARTBEAT, **NOBODY)
    broken.connection.state.last_heartbeat = DefectiveHeartbeat()
    log = capture_log()
    broken.inject(ApiKey.HEARTBEAT, **NOBODY)
    other.inject(ApiKey.HEARTBEAT, 7, **NOBODY)
    assert await other.receive_correlation_ids(1) == [7]
    assert await broken.raw.is_closed_by_peer()
    assert "failed" in log()[0]
