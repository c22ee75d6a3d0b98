"""APIs of groups in every version, and responses to arbitrary requests."""

import asyncio
import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla_broker.coordination.loading import ShardState
from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import request_class
from ottla_broker.wire.errors import ErrorCode
from tests.unit.authorizers import DenyAll
from tests.unit.coordination.memory_journal import MemoryJournal
from tests.unit.coordination.small_coordinator import SmallCoordinator, commit, partition, run_with_coordinator
from tests.unit.wire.messages import instances

COORDINATOR_APIS = {
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
}


@pytest.mark.parametrize("version", range(7))
def test_coordinator_of_a_group_is_found(version: int) -> None:
    async def test(broker: SmallCoordinator) -> None:
        response = await broker.send(ApiKey.FIND_COORDINATOR, version, key="g", coordinator_keys=("g",), key_type=0)
        answer = response.coordinators[0] if version >= 4 else response
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (ErrorCode.none, 1, "here", 9092)
        del broker.image.topics["__consumer_offsets"]
        response = await broker.send(ApiKey.FIND_COORDINATOR, version, key="g", coordinator_keys=("g",), key_type=0)
        answer = response.coordinators[0] if version >= 4 else response
        assert (answer.error_code, answer.node_id) == (ErrorCode.coordinator_not_available, -1)

    run_with_coordinator(test)


@pytest.mark.parametrize("version", [2, 4, 6])
def test_transactional_producer_finds_its_coordinator_and_begins(version: int) -> None:
    async def test(broker: SmallCoordinator) -> None:
        response = await broker.send(ApiKey.FIND_COORDINATOR, version, key="x", coordinator_keys=("x",), key_type=1)
        answer = response.coordinators[0] if version >= 4 else response
        assert (answer.error_code, answer.node_id) == (ErrorCode.none, 1)
        timeout = datetime.timedelta(seconds=1)
        fields = {"transactional_id": "x", "transaction_timeout": timeout}
        for epoch in range(3):
            response = await broker.send(ApiKey.INIT_PRODUCER_ID, version, **fields)
            assert (response.error_code, response.producer_id, response.producer_epoch) == (ErrorCode.none, 5, epoch)

    run_with_coordinator(test)


@pytest.mark.parametrize("version", range(7))
def test_producer_ids_are_allocated(version: int) -> None:
    async def test(broker: SmallCoordinator) -> None:
        responses = [await broker.send(ApiKey.INIT_PRODUCER_ID, version, transactional_id=None) for _ in range(3)]
        assert [(a.producer_id, a.producer_epoch) for a in responses] == [(5, 0), (6, 0), (-1, -1)]
        assert responses[2].error_code is ErrorCode.coordinator_load_in_progress

    run_with_coordinator(test)


async def join_group(broker: SmallCoordinator, version: int) -> Any:
    """Joins alone, with the member id that versions from 4 on require. Returns the response."""
    fields = {
        "group_id": "g",
        "session_timeout": datetime.timedelta(seconds=10),
        "rebalance_timeout": datetime.timedelta(seconds=60),
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"meta"}],
    }
    joined = await broker.send(ApiKey.JOIN_GROUP, version, **fields)
    if version >= 4:
        assert joined.error_code is ErrorCode.member_id_required
        joined = await broker.send(ApiKey.JOIN_GROUP, version, **fields, member_id=joined.member_id)
    return joined


@pytest.mark.parametrize("version", range(10))
def test_member_joins_syncs_and_leaves_in_every_version(version: int) -> None:
    async def test(broker: SmallCoordinator) -> None:
        joined = await join_group(broker, version)
        assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.none, 1, joined.member_id)
        assert [(it.member_id, it.metadata) for it in joined.members] == [(joined.member_id, b"meta")]
        member = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1}
        assert broker.group_coordinator.describe_group("g").members[joined.member_id].client_host == "/10.0.0.1"
        synced = await broker.send(
            ApiKey.SYNC_GROUP,
            min(version, 5),
            **member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": joined.member_id, "assignment": b"all"}],
        )
        assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"all")
        assert (await broker.send(ApiKey.HEARTBEAT, min(version, 4), **member)).error_code is ErrorCode.none
        described = (await broker.send(ApiKey.DESCRIBE_GROUPS, min(version, 6), groups=("g",))).groups[0]
        assert (described.group_state, described.protocol_data) == ("Stable", "range")
        assert described.members[0].member_assignment == b"all"
        listed = await broker.send(
            ApiKey.LIST_GROUPS, min(version, 5), states_filter=("stable",), types_filter=("CLASSIC",)
        )
        assert [group.group_id for group in listed.groups] == ["g"]
        assert (await broker.send(ApiKey.DELETE_GROUPS, min(version, 2), groups_names=("g",))).results[
            0
        ].error_code is ErrorCode.non_empty_group
        left = await broker.send(
            ApiKey.LEAVE_GROUP, min(version, 5), **member, members=[{"member_id": joined.member_id}]
        )
        assert left.error_code is ErrorCode.none
        assert (await broker.send(ApiKey.DELETE_GROUPS, min(version, 2), groups_names=("g", "g"))).results[
            0
        ].error_code is ErrorCode.none
        assert broker.group_coordinator.list_groups() == []

    run_with_coordinator(test)


def test_leave_group_reports_errors_of_members_in_versions_2_and_3() -> None:
    async def test(broker: SmallCoordinator) -> None:
        await join_group(broker, 5)
        assert (
            await broker.send(ApiKey.LEAVE_GROUP, 2, group_id="g", member_id="x")
        ).error_code is ErrorCode.unknown_member_id
        response = await broker.send(ApiKey.LEAVE_GROUP, 3, group_id="g", members=[{"member_id": "x"}])
        assert (response.error_code, response.members[0].error_code) == (ErrorCode.none, ErrorCode.unknown_member_id)

    run_with_coordinator(test)


def test_sync_without_a_protocol_is_rejected() -> None:
    async def test(broker: SmallCoordinator) -> None:
        joined = await join_group(broker, 9)
        member = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1}
        assert (await broker.send(ApiKey.SYNC_GROUP, 5, **member)).error_code is ErrorCode.inconsistent_group_protocol

    run_with_coordinator(test)


def test_heartbeats_succeed_while_the_group_is_being_loaded() -> None:
    async def test(broker: SmallCoordinator) -> None:
        broker.group_coordinator._shards[0].state = ShardState.loading
        member = {"group_id": "g", "member_id": "m", "generation_id": 1}
        assert (await broker.send(ApiKey.HEARTBEAT, 4, **member)).error_code is ErrorCode.none
        assert (await broker.send(ApiKey.SYNC_GROUP, 3, **member)).error_code is ErrorCode.coordinator_load_in_progress
        broker.group_coordinator._shards[0].state = ShardState.serving
        assert (await broker.send(ApiKey.HEARTBEAT, 4, **member)).error_code is ErrorCode.unknown_member_id

    run_with_coordinator(test)


def test_unknown_groups_are_described_as_dead_and_cannot_be_deleted() -> None:
    async def test(broker: SmallCoordinator) -> None:
        old = (await broker.send(ApiKey.DESCRIBE_GROUPS, 5, groups=("g",))).groups[0]
        assert (old.error_code, old.group_state) == (ErrorCode.none, "Dead")
        new = (await broker.send(ApiKey.DESCRIBE_GROUPS, 6, groups=("g",))).groups[0]
        assert (new.error_code, new.error_message, new.group_state) == (
            ErrorCode.group_id_not_found,
            "Group g not found.",
            "Dead",
        )
        gone = (await broker.send(ApiKey.DELETE_GROUPS, 2, groups_names=("g",))).results[0]
        assert gone.error_code is ErrorCode.group_id_not_found
        topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        assert (
            await broker.send(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
        ).error_code is ErrorCode.group_id_not_found

    run_with_coordinator(test)


def test_requests_without_authorization_are_rejected() -> None:
    async def test(broker: SmallCoordinator) -> None:
        await commit(broker, 9, partition(0))
        broker.authorizer = DenyAll()
        denied = ErrorCode.group_authorization_failed
        assert await commit(broker, 9, partition(0)) == [denied]
        group = {"group_id": "g", "topics": None}
        assert (await broker.send(ApiKey.OFFSET_FETCH, 9, groups=[group])).groups[0].error_code is denied
        for key, version in (
            (ApiKey.JOIN_GROUP, 9),
            (ApiKey.SYNC_GROUP, 3),
            (ApiKey.HEARTBEAT, 4),
            (ApiKey.LEAVE_GROUP, 5),
            (ApiKey.OFFSET_DELETE, 0),
        ):
            assert (await broker.send(key, version, group_id="g")).error_code is denied
        assert (await broker.send(ApiKey.DESCRIBE_GROUPS, 6, groups=("g",))).groups[0].error_code is denied
        assert (await broker.send(ApiKey.DELETE_GROUPS, 2, groups_names=("g",))).results[0].error_code is denied
        assert (await broker.send(ApiKey.LIST_GROUPS, 5)).groups == ()
        assert (await broker.send(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=("g",))).coordinators[
            0
        ].error_code is denied
        assert (
            await broker.send(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
        ).error_code is ErrorCode.cluster_authorization_failed

    run_with_coordinator(test)


def test_member_id_of_a_long_client_id_is_truncated() -> None:
    async def test(broker: SmallCoordinator) -> None:
        broker.client_id = "x" * 32_767
        for version in (0, 9):
            joined = await join_group(broker, version)
            assert joined.error_code is ErrorCode.none
            assert len(joined.member_id) < 300
            broker.group_coordinator.unload(0)
            await broker.group_coordinator.load(MemoryJournal())

    run_with_coordinator(test)


VERSIONS = [
    (key, version)
    for key, (first, last) in SERVED_VERSIONS.items()
    if key in COORDINATOR_APIS
    for version in range(first, last + 1)
]


@given(
    st.lists(
        st.sampled_from(VERSIONS).flatmap(lambda it: st.tuples(st.just(it), instances(request_class(*it)))), max_size=6
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_arbitrary_requests_get_a_response_of_their_schema(requests: list[tuple[tuple[int, int], Any]]) -> None:
    async def test(broker: SmallCoordinator) -> None:
        for (key, version), request in requests:
            async with asyncio.timeout(3 * 3_600):  # the longest session is half an hour
                await broker.send_message(key, version, request)

    run_with_coordinator(test)
