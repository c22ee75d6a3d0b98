"""The hand-written codecs of JoinGroup and SyncGroup agree with kio's. The requests that they read
get the responses of the APIs' handlers.
"""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.types import GroupId

from ottla_broker.api.join_group import build_join_request, build_join_response
from ottla_broker.api.sync_group import build_sync_request, build_sync_response
from ottla_broker.coordination.effects import GroupMemberMetadata, JoinRequest, JoinResult, SyncRequest, SyncResult
from ottla_broker.requests.classic_rebalance import (
    read_join_group,
    read_sync_group,
    write_join_group,
    write_sync_group,
)
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.requests.reply import Buffers
from ottla_broker.security.authorizer import AllowAll
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import (
    read_request,
    read_response,
    request_class,
    write_request,
    write_response,
)
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_reader import Cursor, MalformedMessage
from ottla_broker.wire.message_schema import schema_of
from ottla_broker.wire.partition_requests import to_timedelta_field
from ottla_broker.wire.request_header import read_request_header
from tests.unit.authorizers import DenyAll
from tests.unit.coordination.small_coordinator import SmallCoordinator, build_message, run_with_coordinator
from tests.unit.wire.frames import encode_request, few_examples
from tests.unit.wire.messages import instances

PLENTY = 1 << 30
MINUTE = timedelta(minutes=1)
JOIN_GROUP_VERSIONS, SYNC_GROUP_VERSIONS = range(5, 10), range(3, 6)
LAST_VERSIONS = (9, 5)

texts, optional_texts = st.text(max_size=200), st.none() | st.text(max_size=8)
metadata = st.builds(GroupMemberMetadata, texts, optional_texts, st.binary(max_size=200))
join_results = st.builds(
    JoinResult,
    texts,
    st.sampled_from(ErrorCode),
    st.integers(-1, (1 << 31) - 1),
    optional_texts,
    optional_texts,
    texts,
    st.booleans(),
    st.lists(metadata, max_size=3).map(tuple),
)
sync_results = st.builds(
    SyncResult, st.sampled_from(ErrorCode), optional_texts, optional_texts, st.binary(max_size=200)
)


SAME_NAME = JoinGroupRequest(
    group_id=GroupId("g"),
    session_timeout=to_timedelta_field(1.0),
    rebalance_timeout=to_timedelta_field(1.0),
    member_id="",
    group_instance_id=None,
    protocol_type="consumer",
    protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=name.encode()) for name in ("a", "b", "a")),
    reason=None,
)


def fields_of(request: JoinRequest | SyncRequest) -> dict[str, object]:
    return {name: getattr(request, name) for name in dir(request) if not name.startswith("_")}


@pytest.mark.parametrize("version", JOIN_GROUP_VERSIONS)
@given(sent=instances(JoinGroupRequest))
@example(sent=SAME_NAME)
@few_examples
def test_join_group_is_read_as_by_kio(version: int, sent: JoinGroupRequest) -> None:
    frame = bytes(encode_request(ApiKey.JOIN_GROUP, version, sent))
    header = read_request_header(frame)
    read = read_request(frame, header, JoinGroupRequest)
    context = RequestContext(cast(Any, None), ConnectionState("10.0.0.1", 1, "PLAINTEXT"), version, "me", AllowAll())
    group_id, parsed = read_join_group(context, Cursor(frame, header.body_offset), version)
    assert (group_id, fields_of(parsed)) == (sent.group_id, fields_of(build_join_request(context, read)))


@pytest.mark.parametrize("version", SYNC_GROUP_VERSIONS)
@given(sent=instances(SyncGroupRequest))
@few_examples
def test_sync_group_is_read_as_by_kio(version: int, sent: SyncGroupRequest) -> None:
    frame = bytes(encode_request(ApiKey.SYNC_GROUP, version, sent))
    header = read_request_header(frame)
    read = read_request(frame, header, SyncGroupRequest)
    group_id, parsed = read_sync_group(Cursor(frame, header.body_offset), version)
    assert (group_id, fields_of(parsed)) == (sent.group_id, fields_of(build_sync_request(read)))


@pytest.mark.parametrize("version", JOIN_GROUP_VERSIONS)
@given(result=join_results, correlation_id=st.integers(-(1 << 31), (1 << 31) - 1))
@few_examples
def test_join_group_is_written_as_by_kio(version: int, result: JoinResult, correlation_id: int) -> None:
    expected = write_response(ApiKey.JOIN_GROUP, version, correlation_id, build_join_response(result))
    assert write_join_group(version, correlation_id, result) == expected


@pytest.mark.parametrize("version", SYNC_GROUP_VERSIONS)
@given(result=sync_results, correlation_id=st.integers(-(1 << 31), (1 << 31) - 1))
@few_examples
def test_sync_group_is_written_as_by_kio(version: int, result: SyncResult, correlation_id: int) -> None:
    expected = write_response(ApiKey.SYNC_GROUP, version, correlation_id, build_sync_response(result))
    assert write_sync_group(version, correlation_id, result) == expected


class Member:
    """A member of the group g, and its connection to a broker's dispatcher. `versions`: of its
    JoinGroup and SyncGroup requests."""

    def __init__(self, broker: SmallCoordinator, versions: tuple[int, int] = LAST_VERSIONS) -> None:
        self.join_version, self.sync_version = versions
        self.dispatcher = broker.create_dispatcher()
        self.connection = ConnectionState("10.0.0.1", 1, "PLAINTEXT")
        self.id = ""

    def send(self, key: ApiKey, version: int, **fields: Any) -> "asyncio.Future[Any]":
        """A future of the dispatcher's response, already done if the response was ready at once."""
        values = {"group_id": "g", "member_id": self.id, "protocol_type": "consumer"} | fields
        request = build_message(schema_of(request_class(key, version)), values)
        frame = write_request(key, version, 7, "me", request)[4:]
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def read(buffers: Buffers) -> None:
            response.set_result(read_response(b"".join(buffers)[4:], key, version))

        reply = self.dispatcher.dispatch(frame, read_request_header(frame), self.connection, PLENTY)
        if isinstance(reply, asyncio.Future):
            cast(Any, reply).on_complete = lambda done: read(done.result())
        else:
            assert reply is not None
            read(reply)
        return response

    def join(self) -> "asyncio.Future[Any]":
        protocols = ({"name": "range", "metadata": self.id.encode()},)
        timeouts = {"session_timeout": timedelta(seconds=30), "rebalance_timeout": MINUTE}
        return self.send(ApiKey.JOIN_GROUP, self.join_version, protocols=protocols, **timeouts)

    def sync(self, generation: int, assignments: dict[str, bytes]) -> Any:
        entries = tuple({"member_id": id, "assignment": assignment} for id, assignment in assignments.items())
        values = {"generation_id": generation, "protocol_name": "range", "assignments": entries}
        return self.send(ApiKey.SYNC_GROUP, self.sync_version, **values)

    async def get_id(self) -> None:
        response = await self.join()
        assert response.error_code is ErrorCode.member_id_required
        assert response.member_id.startswith("me-")
        self.id = response.member_id


async def rebalance(first: Member, second: Member) -> int:
    """The second member joins the first, which is alone. Returns the generation."""
    joining = second.join()
    assert not joining.done()
    rejoined = first.join()
    assert rejoined.done() and joining.done(), "both are answered in the turn of the last JoinGroup"
    leading, following = rejoined.result(), joining.result()
    generation = int(leading.generation_id)
    assert following.generation_id == generation
    assert leading.leader == following.leader == first.id
    assert [(one.member_id, one.metadata) for one in leading.members] == [
        (one.id, one.id.encode()) for one in (first, second)
    ]
    assert following.members == ()
    waiting = second.sync(generation, {})
    assert not waiting.done()
    assigned = await first.sync(generation, {first.id: b"one", second.id: b"two"})
    assert waiting.done()
    assert (assigned.assignment, waiting.result().assignment) == (b"one", b"two")
    return generation


@pytest.mark.parametrize("versions", [(5, 3), LAST_VERSIONS])
def test_members_join_and_sync(versions: tuple[int, int]) -> None:
    async def test(broker: SmallCoordinator) -> None:
        first, second = Member(broker, versions), Member(broker, versions)
        await first.get_id()
        generation = int((await first.join()).generation_id)
        await first.sync(generation, {first.id: b"all"})
        await second.get_id()
        assert await rebalance(first, second) == generation + 1

    run_with_coordinator(test)


JOIN: dict[str, Any] = {
    "group_id": "g",
    "member_id": "nobody",
    "protocol_type": "consumer",
    "protocols": ({"name": "range", "metadata": b""},),
    "session_timeout": MINUTE,
    "rebalance_timeout": MINUTE,
}
SYNC: dict[str, Any] = {
    "group_id": "g",
    "member_id": "nobody",
    "generation_id": 1,
    "protocol_type": "consumer",
    "protocol_name": "range",
}
WELL_FORMED: list[tuple[ApiKey, int, dict[str, Any]]] = [
    *((ApiKey.JOIN_GROUP, version, JOIN) for version in (5, 9)),
    *((ApiKey.SYNC_GROUP, version, SYNC) for version in (3, 5)),
]
FAILING: list[tuple[ApiKey, int, dict[str, Any]]] = [
    (ApiKey.JOIN_GROUP, 9, JOIN),
    (ApiKey.JOIN_GROUP, 8, JOIN),
    (ApiKey.JOIN_GROUP, 5, JOIN),
    (ApiKey.JOIN_GROUP, 5, JOIN | {"group_instance_id": "i"}),
    (ApiKey.JOIN_GROUP, 5, JOIN | {"protocols": ()}),
    (ApiKey.JOIN_GROUP, 4, JOIN),
    (ApiKey.JOIN_GROUP, 9, JOIN | {"group_id": ""}),
    (ApiKey.JOIN_GROUP, 9, JOIN | {"group_instance_id": "i"}),
    (ApiKey.JOIN_GROUP, 9, JOIN | {"session_timeout": timedelta(hours=9)}),
    (ApiKey.JOIN_GROUP, 9, JOIN | {"protocol_type": "other"}),
    (ApiKey.JOIN_GROUP, 9, JOIN | {"protocols": ()}),
    (ApiKey.SYNC_GROUP, 5, SYNC),
    (ApiKey.SYNC_GROUP, 4, SYNC),
    (ApiKey.SYNC_GROUP, 3, SYNC),
    (ApiKey.SYNC_GROUP, 3, SYNC | {"group_id": ""}),
    (ApiKey.SYNC_GROUP, 2, SYNC),
    (ApiKey.SYNC_GROUP, 5, SYNC | {"group_id": ""}),
    (ApiKey.SYNC_GROUP, 5, SYNC | {"protocol_type": None}),
    (ApiKey.SYNC_GROUP, 5, SYNC | {"protocol_name": None}),
]


@pytest.mark.parametrize("kind", ["none", "classic", "consumer"])
def test_requests_that_fail_get_the_responses_of_the_handlers(kind: str) -> None:
    async def test(broker: SmallCoordinator) -> None:
        member = Member(broker)
        if kind == "classic":
            await member.get_id()
            await member.sync(int((await member.join()).generation_id), {})
        elif kind == "consumer":
            subscription = {"rebalance_timeout": MINUTE, "subscribed_topic_names": ("t",), "topic_partitions": ()}
            await broker.send(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=0, **subscription
            )
        for key, version, fields in FAILING:
            expected = await broker.send(key, version, **fields)
            assert expected.error_code is not ErrorCode.none
            assert await member.send(key, version, **fields) == expected

    run_with_coordinator(test)


def test_a_client_without_the_right_is_refused() -> None:
    async def test(broker: SmallCoordinator) -> None:
        broker.authorizer = DenyAll()
        member = Member(broker)
        for key, version, fields in WELL_FORMED:
            response = await member.send(key, version, **fields)
            assert response.error_code is ErrorCode.group_authorization_failed
            assert response == await broker.send(key, version, **fields)

    run_with_coordinator(test)


def test_a_truncated_request_is_malformed() -> None:
    async def test(broker: SmallCoordinator) -> None:
        member = Member(broker)
        for key, version, fields in WELL_FORMED:
            request = build_message(schema_of(request_class(key, version)), fields)
            frame = write_request(key, version, 7, "me", request)[4:]
            for size in range(read_request_header(frame).body_offset, len(frame)):
                with pytest.raises(MalformedMessage):
                    member.dispatcher.dispatch(frame[:size], read_request_header(frame), member.connection, PLENTY)

    run_with_coordinator(test)
