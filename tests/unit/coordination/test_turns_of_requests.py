"""How many turns of the event loop the requests of groups take: none or one, whatever else the
broker serves. In each turn the broker serves a request of every other connection.
"""

import asyncio
from datetime import timedelta
from typing import Any, cast

from ottla_broker.requests.context import ConnectionState
from ottla_broker.requests.reply import Buffers
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_response, request_class, write_request
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_schema import schema_of
from ottla_broker.wire.request_header import read_request_header
from tests.unit.coordination.small_coordinator import SmallCoordinator, build_message, run_with_coordinator

PLENTY = 1 << 30
MINUTE = timedelta(minutes=1)


class ExpiredSession:
    """A login that has ended."""

    def may_send(self, _: int) -> bool:
        return False


class Client:
    """A connection to the dispatcher of a broker."""

    def __init__(self, broker: SmallCoordinator) -> None:
        self.dispatcher = broker.create_dispatcher()
        self.connection = ConnectionState("10.0.0.1", 1, "PLAINTEXT")

    async def send(self, key: ApiKey, version: int, *, turns: int, **fields: Any) -> Any:
        """Returns the response, which must come after exactly `turns` turns of the loop."""
        request = build_message(schema_of(request_class(key, version)), fields)
        frame = write_request(key, version, 1, "me", request)[4:]
        reply = self.dispatcher.dispatch(frame, read_request_header(frame), self.connection, PLENTY)
        assert reply is not None
        for _ in range(turns):
            assert isinstance(reply, asyncio.Future) and not reply.done()
            await asyncio.sleep(0)
        buffers: Buffers = reply.result() if isinstance(reply, asyncio.Future) else reply
        return read_response(b"".join(buffers)[4:], key, version)


def test_a_heartbeat_of_the_consumer_protocol_takes_one_turn_and_a_repeated_one_none() -> None:
    async def test(broker: SmallCoordinator) -> None:
        key, client = ApiKey.CONSUMER_GROUP_HEARTBEAT, Client(broker)
        values = {"group_id": "g", "member_id": "m"}
        subscription = {"rebalance_timeout": MINUTE, "subscribed_topic_names": ("t",), "topic_partitions": ()}
        joined = await broker.send(key, 1, member_epoch=0, **values, **subscription)
        assert joined.member_epoch == 1
        parsed = await client.send(key, 1, turns=1, member_epoch=1, topic_partitions=None, **values)
        assert parsed == await client.send(key, 1, turns=0, member_epoch=1, topic_partitions=None, **values)

    run_with_coordinator(test)


def test_a_repeated_heartbeat_is_answered_from_its_bytes_unless_dispatch_must_decide() -> None:
    async def test(broker: SmallCoordinator) -> None:
        key, client = ApiKey.HEARTBEAT, Client(broker)
        cast(Any, broker).ready = True
        values = {"group_id": "g", "member_id": "nobody", "generation_id": 1}
        request = build_message(schema_of(request_class(key, 4)), values)
        frame = write_request(key, 4, 7, "me", request)[4:]
        assert client.dispatcher.repeat_heartbeat(frame, client.connection) is None, "it is the first one"
        expected = client.dispatcher.dispatch(frame, read_request_header(frame), client.connection, PLENTY)
        assert client.dispatcher.repeat_heartbeat(frame, client.connection) == expected
        assert client.dispatcher.request_counts[key] == 2
        last = client.connection.last_heartbeat
        assert last is not None and last.is_repeated_by(frame)
        assert not last.is_repeated_by(write_request(key, 4, 7, "you", request)[4:])
        cast(Any, broker).ready = False
        assert client.dispatcher.repeat_heartbeat(frame, client.connection) is None
        cast(Any, broker).ready = True
        client.connection.sasl = cast(Any, ExpiredSession())
        assert client.dispatcher.repeat_heartbeat(frame, client.connection) is None

    run_with_coordinator(test)


def test_requests_of_the_classic_protocol_that_wait_for_nobody_take_no_turn() -> None:
    async def test(broker: SmallCoordinator) -> None:
        client, values = Client(broker), {"group_id": "g", "member_id": "nobody", "generation_id": 1}
        for key, version in ((ApiKey.JOIN_GROUP, 9), (ApiKey.SYNC_GROUP, 5), (ApiKey.HEARTBEAT, 4)):
            protocol = {"protocol_type": "consumer", "protocol_name": "range", "session_timeout": MINUTE}
            response = await client.send(key, version, turns=0, **values, **protocol)
            assert response.error_code is ErrorCode.unknown_member_id
        left = await client.send(ApiKey.LEAVE_GROUP, 5, turns=0, group_id="g", members=({"member_id": "nobody"},))
        assert left.members[0].error_code is ErrorCode.unknown_member_id

    run_with_coordinator(test)
