"""The handlers of groups: what each version says, and that whatever a client sends gets a fitting answer."""

import asyncio
import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla_broker.coordination.coordinator_shard import ShardState
from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.wire.codec import request_class
from ottla_broker.wire.errors import ErrorCode
from tests.unit.coordination.journals import MemoryJournal
from tests.unit.coordination.small import (
    DELETE,
    DESCRIBE,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN,
    LEAVE,
    LIST,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC,
    Nobody,
    Small,
    commit,
    partition,
    scenario,
)
from tests.unit.wire.messages import instances

OURS = {
    OFFSET_COMMIT,
    OFFSET_FETCH,
    FIND_COORDINATOR,
    JOIN,
    HEARTBEAT,
    LEAVE,
    SYNC,
    DESCRIBE,
    LIST,
    INIT_PRODUCER_ID,
} | {
    DELETE,
    OFFSET_DELETE,
}


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_found(version: int) -> None:
    async def test(broker: Small) -> None:
        answer = await broker.named(FIND_COORDINATOR, version, key="g", coordinator_keys=("g",), key_type=0)
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.none, 1, "here", 9092)
        del broker.image.topics["__consumer_offsets"]
        answer = await broker.named(FIND_COORDINATOR, version, key="g", coordinator_keys=("g",), key_type=0)
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id) == (ErrorCode.coordinator_not_available, -1)

    scenario(test)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (2, ErrorCode.transactional_id_authorization_failed),
        (4, ErrorCode.unsupported_version),
        (6, ErrorCode.unsupported_version),
    ],
)
def test_transactional_producers_are_told_at_once_that_there_are_no_transactions(version: int, code: ErrorCode) -> None:
    async def test(broker: Small) -> None:
        answer = await broker.named(FIND_COORDINATOR, version, key="x", coordinator_keys=("x",), key_type=1)
        found = answer.coordinators[0] if version >= 4 else answer
        assert found.error_code is code
        assert "transactions are not implemented" in found.error_message
        answer = await broker.named(INIT_PRODUCER_ID, 4, transactional_id="x")
        assert answer.error_code is ErrorCode.transactional_id_authorization_failed

    scenario(test)


@pytest.mark.parametrize("version", range(7))
def test_producer_ids(version: int) -> None:
    async def test(broker: Small) -> None:
        answers = [await broker.named(INIT_PRODUCER_ID, version, transactional_id=None) for _ in range(3)]
        assert [(a.producer_id, a.producer_epoch) for a in answers] == [(5, 0), (6, 0), (-1, -1)]
        assert answers[2].error_code is ErrorCode.coordinator_load_in_progress

    scenario(test)


async def one_member(broker: Small, version: int) -> Any:
    fields = {
        "group_id": "g",
        "session_timeout": datetime.timedelta(seconds=10),
        "rebalance_timeout": datetime.timedelta(seconds=60),
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"meta"}],
    }
    told = await broker.named(JOIN, version, **fields)
    if version >= 4:
        assert told.error_code is ErrorCode.member_id_required
        told = await broker.named(JOIN, version, **fields, member_id=told.member_id)
    return told


@pytest.mark.parametrize("version", range(10))
def test_a_member_s_life_in_every_version(version: int) -> None:
    async def test(broker: Small) -> None:
        told = await one_member(broker, version)
        assert (told.error_code, told.generation_id, told.leader) == (ErrorCode.none, 1, told.member_id)
        assert [(one.member_id, one.metadata) for one in told.members] == [(told.member_id, b"meta")]
        me = {"group_id": "g", "member_id": told.member_id, "generation_id": 1}
        assert broker.group_coordinator.describe_group("g").members[told.member_id].client_host == "/10.0.0.1"
        synced = await broker.named(
            SYNC,
            min(version, 5),
            **me,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": told.member_id, "assignment": b"all"}],
        )
        assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"all")
        assert (await broker.named(HEARTBEAT, min(version, 4), **me)).error_code is ErrorCode.none
        described = (await broker.named(DESCRIBE, min(version, 6), groups=("g",))).groups[0]
        assert (described.group_state, described.protocol_data) == ("Stable", "range")
        assert described.members[0].member_assignment == b"all"
        listed = await broker.named(LIST, min(version, 5), states_filter=("stable",), types_filter=("CLASSIC",))
        assert [group.group_id for group in listed.groups] == ["g"]
        assert (await broker.named(DELETE, min(version, 2), groups_names=("g",))).results[
            0
        ].error_code is ErrorCode.non_empty_group
        left = await broker.named(LEAVE, min(version, 5), **me, members=[{"member_id": told.member_id}])
        assert left.error_code is ErrorCode.none
        assert (await broker.named(DELETE, min(version, 2), groups_names=("g", "g"))).results[
            0
        ].error_code is ErrorCode.none
        assert broker.group_coordinator.list_groups() == []

    scenario(test)


def test_errors_of_members_in_every_shape_of_leave_group() -> None:
    async def test(broker: Small) -> None:
        await one_member(broker, 5)
        assert (await broker.named(LEAVE, 2, group_id="g", member_id="x")).error_code is ErrorCode.unknown_member_id
        answer = await broker.named(LEAVE, 3, group_id="g", members=[{"member_id": "x"}])
        assert (answer.error_code, answer.members[0].error_code) == (ErrorCode.none, ErrorCode.unknown_member_id)

    scenario(test)


def test_a_sync_without_the_protocol_it_must_name() -> None:
    async def test(broker: Small) -> None:
        told = await one_member(broker, 9)
        me = {"group_id": "g", "member_id": told.member_id, "generation_id": 1}
        assert (await broker.named(SYNC, 5, **me)).error_code is ErrorCode.inconsistent_group_protocol

    scenario(test)


def test_heartbeats_are_fine_while_the_group_loads() -> None:
    async def test(broker: Small) -> None:
        broker.group_coordinator._shards[0].state = ShardState.loading
        me = {"group_id": "g", "member_id": "m", "generation_id": 1}
        assert (await broker.named(HEARTBEAT, 4, **me)).error_code is ErrorCode.none
        assert (await broker.named(SYNC, 3, **me)).error_code is ErrorCode.coordinator_load_in_progress
        broker.group_coordinator._shards[0].state = ShardState.serving
        assert (await broker.named(HEARTBEAT, 4, **me)).error_code is ErrorCode.unknown_member_id

    scenario(test)


def test_groups_that_are_not_there() -> None:
    async def test(broker: Small) -> None:
        old = (await broker.named(DESCRIBE, 5, groups=("g",))).groups[0]
        assert (old.error_code, old.group_state) == (ErrorCode.none, "Dead")
        new = (await broker.named(DESCRIBE, 6, groups=("g",))).groups[0]
        assert (new.error_code, new.error_message, new.group_state) == (
            ErrorCode.group_id_not_found,
            "Group g not found.",
            "Dead",
        )
        gone = (await broker.named(DELETE, 2, groups_names=("g",))).results[0]
        assert gone.error_code is ErrorCode.group_id_not_found
        topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        assert (
            await broker.named(OFFSET_DELETE, 0, group_id="g", topics=topics)
        ).error_code is ErrorCode.group_id_not_found

    scenario(test)


def test_who_may_nothing_learns_nothing() -> None:
    async def test(broker: Small) -> None:
        await commit(broker, 9, partition(0))
        broker.authorizer = Nobody()
        no = ErrorCode.group_authorization_failed
        assert await commit(broker, 9, partition(0)) == [no]
        group = {"group_id": "g", "topics": None}
        assert (await broker.named(OFFSET_FETCH, 9, groups=[group])).groups[0].error_code is no
        for key, version in ((JOIN, 9), (SYNC, 3), (HEARTBEAT, 4), (LEAVE, 5), (OFFSET_DELETE, 0)):
            assert (await broker.named(key, version, group_id="g")).error_code is no
        assert (await broker.named(DESCRIBE, 6, groups=("g",))).groups[0].error_code is no
        assert (await broker.named(DELETE, 2, groups_names=("g",))).results[0].error_code is no
        assert (await broker.named(LIST, 5)).groups == ()
        assert (await broker.named(FIND_COORDINATOR, 4, coordinator_keys=("g",))).coordinators[0].error_code is no
        assert (
            await broker.named(INIT_PRODUCER_ID, 4, transactional_id=None)
        ).error_code is ErrorCode.cluster_authorization_failed

    scenario(test)


def test_a_client_id_as_long_as_can_be_makes_no_member_id_that_cannot_be_written() -> None:
    async def test(broker: Small) -> None:
        broker.client_id = "x" * 32_767
        for version in (0, 9):
            told = await one_member(broker, version)
            assert told.error_code is ErrorCode.none
            assert len(told.member_id) < 300
            broker.group_coordinator.unload(0)
            await broker.group_coordinator.load(0, MemoryJournal())

    scenario(test)


VERSIONS = [
    (key, version)
    for key, (first, last) in SERVED_VERSIONS.items()
    if key in OURS
    for version in range(first, last + 1)
]


@given(
    st.lists(
        st.sampled_from(VERSIONS).flatmap(lambda at: st.tuples(st.just(at), instances(request_class(*at)))), max_size=6
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_whatever_is_asked_gets_an_answer_of_its_shape(requests: list[tuple[tuple[int, int], Any]]) -> None:
    async def test(broker: Small) -> None:
        for (key, version), request in requests:
            async with asyncio.timeout(3 * 3_600):  # the longest session is half an hour
                await broker.ask(key, version, request)

    scenario(test)
