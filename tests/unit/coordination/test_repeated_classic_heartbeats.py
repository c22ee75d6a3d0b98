"""A classic member's heartbeat that equals its last one, except for the generation, gets the right
response without being parsed.
"""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from ottla_broker.api.heartbeat import heartbeat
from ottla_broker.coordination.loading import ShardState
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.requests.repeated_classic_heartbeat import repeat_classic_heartbeat
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_request, read_response, request_class, write_request
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import schema_of
from ottla_broker.wire.request_header import read_request_header
from tests.unit.authorizers import DenyAll
from tests.unit.coordination.small_coordinator import SmallCoordinator, build_message, run_with_coordinator

KEY = ApiKey.HEARTBEAT


class Member:
    """A member of the group g and its connection. `was_repeated`: the last heartbeat was answered
    without being parsed.
    """

    def __init__(self, broker: SmallCoordinator, version: int = 4) -> None:
        self.broker = broker
        self.version = version
        self.connection = ConnectionState("10.0.0.1", 1, "PLAINTEXT")
        self.correlation_id = 0
        self.member_id = ""
        self.was_repeated = False

    async def join(self) -> int:
        """Joins the group, alone. Returns the generation."""
        joined: Any = None
        for _ in range(2):  # the first response has the member id
            joined = await self.broker.send(
                ApiKey.JOIN_GROUP,
                9,
                group_id="g",
                member_id=self.member_id,
                session_timeout=timedelta(seconds=10),
                rebalance_timeout=timedelta(minutes=1),
                protocol_type="consumer",
                protocols=({"name": "range", "metadata": b""},),
            )
            self.member_id = joined.member_id
        return int(joined.generation_id)

    async def sync(self, generation: int) -> None:
        values = {"group_id": "g", "member_id": self.member_id, "generation_id": generation}
        protocol = {"protocol_type": "consumer", "protocol_name": "range"}
        synced = await self.broker.send(ApiKey.SYNC_GROUP, 5, **values, **protocol)
        assert synced.error_code is ErrorCode.none

    async def send(self, generation: int) -> ErrorCode:
        """Sends a heartbeat, which is parsed unless it repeats the last one. Returns the error
        code.
        """
        self.correlation_id += 1
        values = {"group_id": "g", "member_id": self.member_id, "generation_id": generation}
        request = build_message(schema_of(request_class(KEY, self.version)), values)
        frame = write_request(KEY, self.version, self.correlation_id, "me", request)[4:]
        header = read_request_header(frame)
        context = RequestContext(cast(Any, self.broker), self.connection, self.version, "me", self.broker.authorizer)
        reply = repeat_classic_heartbeat(context, header, frame)
        self.was_repeated = reply is not None
        if reply is None:
            return (await heartbeat(context, read_request(bytes(frame), header, request_class(KEY, 4)))).error_code
        assert not isinstance(reply, asyncio.Future)
        (response,) = reply
        assert int.from_bytes(response[:4]) == len(response) - 4
        assert int.from_bytes(response[4:8]) == self.correlation_id
        return cast(ErrorCode, read_response(bytes(response[4:]), KEY, self.version).error_code)


async def join_alone(member: Member) -> int:
    """The member joins alone and sends its first heartbeat. Returns the generation."""
    generation = await member.join()
    await member.sync(generation)
    assert await member.send(generation) is ErrorCode.none
    assert not member.was_repeated
    return generation


def test_a_repeated_heartbeat_extends_the_session() -> None:
    async def test(broker: SmallCoordinator) -> None:
        member = Member(broker)
        generation = await join_alone(member)
        for _ in range(3):
            await asyncio.sleep(8)
            assert await member.send(generation) is ErrorCode.none
            assert member.was_repeated
        await asyncio.sleep(11)
        assert await member.send(generation) is ErrorCode.unknown_member_id
        assert member.was_repeated

    run_with_coordinator(test)


@pytest.mark.parametrize("version", [3, 4])
def test_a_repeated_heartbeat_follows_the_generations_of_the_group(version: int) -> None:
    async def test(broker: SmallCoordinator) -> None:
        member, other = Member(broker, version), Member(broker)
        generation = await join_alone(member)
        joining = asyncio.ensure_future(other.join())
        await asyncio.sleep(1)
        assert await member.send(generation) is ErrorCode.rebalance_in_progress
        assert member.was_repeated
        assert await member.join() == await joining == generation + 1
        await member.sync(generation + 1)
        assert await member.send(generation) is ErrorCode.illegal_generation
        assert member.was_repeated
        assert await member.send(generation + 1) is ErrorCode.none
        assert member.was_repeated, "another generation"

    run_with_coordinator(test)


def test_a_heartbeat_of_another_member_is_parsed() -> None:
    async def test(broker: SmallCoordinator) -> None:
        member = Member(broker)
        generation = await join_alone(member)
        member.member_id = "x" * len(member.member_id)
        assert await member.send(generation) is ErrorCode.unknown_member_id
        assert not member.was_repeated

    run_with_coordinator(test)


def test_a_repeated_heartbeat_follows_changes_of_rights_and_of_the_coordinator() -> None:
    async def test(broker: SmallCoordinator) -> None:
        broker.authorizer = rights = DenyAll()
        rights.denies = False
        member = Member(broker)
        generation = await join_alone(member)
        (shard,) = broker.group_coordinator._shards.values()
        for state, expected in (
            (ShardState.loading, ErrorCode.none),
            (ShardState.failed, ErrorCode.coordinator_not_available),
            (ShardState.serving, ErrorCode.none),
        ):
            shard.state = state
            assert await member.send(generation) is expected
            assert member.was_repeated
        rights.denies = True
        with pytest.raises(KafkaError) as refused:
            await member.send(generation)
        assert refused.value.code is ErrorCode.group_authorization_failed
        assert not member.was_repeated

    run_with_coordinator(test)


@pytest.mark.parametrize("version", [0, 2])
def test_older_versions_are_always_parsed(version: int) -> None:
    async def test(broker: SmallCoordinator) -> None:
        member = Member(broker, version)
        generation = await join_alone(member)
        for _ in range(2):
            assert await member.send(generation) is ErrorCode.none
            assert not member.was_repeated

    run_with_coordinator(test)
