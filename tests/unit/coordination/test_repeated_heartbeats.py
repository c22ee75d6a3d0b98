"""A consumer's heartbeat that equals its last one, except for the epoch, gets the right response
without being parsed.
"""

import asyncio
from datetime import timedelta
from typing import Any, cast

from ottla_broker.requests.api import build_error_response, find_handler
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.requests.repeated_heartbeat import repeat_heartbeat
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_request, read_response, request_class, write_request
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import schema_of
from ottla_broker.wire.request_header import read_request_header
from tests.unit.authorizers import DenyAll
from tests.unit.coordination.small_coordinator import SmallCoordinator, build_message, run_with_coordinator

KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
JOIN = {"rebalance_timeout": timedelta(minutes=1), "subscribed_topic_names": ("t",), "topic_partitions": ()}


class Member:
    """A member of the group g and its connection. `was_repeated`: the last heartbeat was answered
    without being parsed.
    """

    def __init__(self, broker: SmallCoordinator, member_id: str) -> None:
        self.broker = broker
        self.member_id = member_id
        self.connection = ConnectionState("10.0.0.1", 1, "PLAINTEXT")
        self.correlation_id = 0
        self.was_repeated = False

    async def send(self, epoch: int, **fields: Any) -> Any:
        """Sends a heartbeat, which is parsed unless it repeats the last one. Returns its
        response.
        """
        self.correlation_id += 1
        body = {"group_id": "g", "member_id": self.member_id, "member_epoch": epoch, "topic_partitions": None} | fields
        request = build_message(schema_of(request_class(KEY, 1)), body)
        frame = write_request(KEY, 1, self.correlation_id, "me", request)[4:]
        context = RequestContext(cast(Any, self.broker), self.connection, 1, "me", self.broker.authorizer)
        reply = repeat_heartbeat(context, read_request_header(frame), frame)
        self.was_repeated = reply is not None
        if reply is not None:
            (response,) = await reply if isinstance(reply, asyncio.Future) else reply
            assert int.from_bytes(response[:4]) == len(response) - 4
            assert int.from_bytes(response[4:8]) == self.correlation_id
            return read_response(bytes(response[4:]), KEY, 1)
        handler = find_handler(KEY, 1)
        assert handler is not None
        try:
            return await handler.handle(
                context, read_request(bytes(frame), read_request_header(frame), handler.request)
            )
        except KafkaError as reason:
            return build_error_response(handler.response, reason)


async def join_and_repeat_heartbeat(member: Member) -> Any:
    """The member joins, reports nothing new, and repeats that heartbeat. Returns the response."""
    joined = await member.send(0, **JOIN)
    parsed = await member.send(joined.member_epoch)
    assert not member.was_repeated
    repeated = await member.send(joined.member_epoch)
    assert member.was_repeated and repeated == parsed
    return repeated


def test_a_repeated_heartbeat_gets_the_last_response_and_extends_the_session() -> None:
    async def test(broker: SmallCoordinator) -> None:
        member = Member(broker, "m")
        await join_and_repeat_heartbeat(member)
        for _ in range(3):
            await asyncio.sleep(40)
            assert (await member.send(1)).error_code is ErrorCode.none
            assert member.was_repeated
        await asyncio.sleep(46)
        assert (await member.send(1)).error_code is ErrorCode.unknown_member_id
        assert member.was_repeated

    run_with_coordinator(test)


def test_a_repeated_heartbeat_follows_changes_of_the_group() -> None:
    async def test(broker: SmallCoordinator) -> None:
        first, second = Member(broker, "m"), Member(broker, "n")
        await join_and_repeat_heartbeat(first)
        await asyncio.sleep(2)
        await second.send(0, **JOIN)
        response = await first.send(1)
        assert first.was_repeated
        assigned = response.assignment.topic_partitions
        assert sum(len(one.partitions) for one in assigned) == 1 and response.member_epoch == 1
        owned = tuple({"topic_id": one.topic_id, "partitions": one.partitions} for one in assigned)
        response = await first.send(1, topic_partitions=owned)
        assert not first.was_repeated
        assert response.member_epoch == 2
        await first.send(2)
        assert not first.was_repeated, "the last one had partitions"
        await second.send(-1)
        await asyncio.sleep(2)  # the assignment interval
        response = await first.send(2)
        assert first.was_repeated and response.member_epoch == 3
        assert sum(len(one.partitions) for one in response.assignment.topic_partitions) == 2
        response = await first.send(3)
        assert first.was_repeated, "another epoch"
        assert (response.member_epoch, response.assignment) == (3, None)
        assert (await first.send(9)).error_code is ErrorCode.fenced_member_epoch
        assert first.was_repeated

    run_with_coordinator(test)


def test_a_repeated_heartbeat_follows_changes_of_topics_configs_and_rights() -> None:
    async def test(broker: SmallCoordinator) -> None:
        broker.authorizer = rights = DenyAll()
        rights.denies = False
        member = Member(broker, "m")
        await join_and_repeat_heartbeat(member)
        broker.group_coordinator.metadata.on_topics_changed()
        assert (await member.send(1)).error_code is ErrorCode.none
        assert member.was_repeated
        broker.image.configs[32, "g"] = {"consumer.heartbeat.interval.ms": "7000"}
        for _ in range(2):
            assert int((await member.send(1)).heartbeat_interval.total_seconds()) == 7
            assert member.was_repeated
        rights.denies = True
        assert (await member.send(1)).error_code is ErrorCode.group_authorization_failed
        assert not member.was_repeated

    run_with_coordinator(test)


def test_a_heartbeat_that_says_more_is_never_repeated() -> None:
    async def test(broker: SmallCoordinator) -> None:
        member = Member(broker, "m")
        joined = await member.send(0, **JOIN)
        for _ in range(2):
            await member.send(joined.member_epoch, topic_partitions=())
            assert not member.was_repeated

    run_with_coordinator(test)
