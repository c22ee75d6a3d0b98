"""What the console reads from group coordinators, and what they refuse."""

from collections.abc import Mapping
from typing import Any

import pytest
from kio.schema.offset_fetch.v8.request import OffsetFetchRequest
from kio.schema.offset_fetch.v8.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from ottla_broker.console.cluster_requests import ClusterRequests
from ottla_broker.console.group_description import CLASSIC, ListedGroup
from ottla_broker.console.group_requests import GroupRequests
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test


def listed(name: str, coordinator: int) -> ListedGroup:
    return ListedGroup(name, CLASSIC, "Empty", "consumer", coordinator)


class FakeCoordinators(ClusterRequests):
    """Group coordinators that return one committed offset of each group. `errors`: error codes by
    group; an entry `broker 2` of any code means that this coordinator does not respond.
    """

    def __init__(self, errors: Mapping[str, ErrorCode]) -> None:
        self._errors = errors

    @property
    def client(self) -> Any:
        return self

    async def send(self, request: OffsetFetchRequest, *, broker: int) -> OffsetFetchResponse:
        if f"broker {broker}" in self._errors:
            raise ConnectionError("connection refused")
        return OffsetFetchResponse(
            throttle_time=NO_THROTTLE, groups=tuple(self._fetch(str(one.group_id)) for one in request.groups)
        )

    def _fetch(self, name: str) -> OffsetFetchResponseGroup:
        code = self._errors.get(name, ErrorCode.none)
        partition = OffsetFetchResponsePartitions(
            partition_index=i32(1), committed_offset=i64(7), metadata="", error_code=ErrorCode.none
        )
        topic = OffsetFetchResponseTopics(name=TopicName("t"), partitions=(partition,))
        return OffsetFetchResponseGroup(
            group_id=GroupId(name), topics=(topic,) if code is ErrorCode.none else (), error_code=code
        )


def requests_with(errors: Mapping[str, ErrorCode]) -> GroupRequests:
    broker: Any = None
    return GroupRequests(broker, FakeCoordinators(errors))


@async_test
async def test_a_group_whose_coordinator_moves_is_not_taken_for_one_without_offsets() -> None:
    assert await requests_with({}).find_committed_offsets(listed("g", 1)) == {("t", 1): 7}
    with pytest.raises(KafkaError, match="group 'g': not_coordinator"):
        await requests_with({"g": ErrorCode.not_coordinator}).find_committed_offsets(listed("g", 1))


@async_test
async def test_groups_of_a_topic_whose_offsets_are_unknown_are_named() -> None:
    errors = {"b": ErrorCode.coordinator_load_in_progress, "broker 2": ErrorCode.unknown_server_error}
    groups = [listed("a", 1), listed("b", 1), listed("c", 2), listed("d", 3)]
    found, failures = await requests_with(errors).find_groups_of_topic("t", [0, 1], groups)
    assert found == {"a": {("t", 1): 7}, "d": {("t", 1): 7}}
    assert failures == (
        "Broker 2 does not respond: connection refused.",
        "Broker 1 returns no offsets of b: coordinator_load_in_progress.",
    )
