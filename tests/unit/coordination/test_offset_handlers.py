"""OffsetCommit, OffsetFetch and OffsetDelete in every version."""

import datetime
from uuid import UUID

import pytest

from ottla_broker.metadata.image import TopicImage
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode
from tests.unit.coordination.small_coordinator import (
    TOPIC,
    SmallCoordinator,
    commit,
    error_codes,
    partition,
    run_with_coordinator,
)


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_of_every_version_are_stored(version: int) -> None:
    async def test(broker: SmallCoordinator) -> None:
        assert await commit(broker, version, partition(0), partition(1, metadata=None)) == [ErrorCode.none] * 2
        committed = broker.group_coordinator.fetch_offsets("g")["t"]
        assert (committed[0].offset, committed[0].metadata, committed[1].metadata) == (5, "m", "")
        assert committed[0].leader_epoch == (3 if version >= 6 else -1)
        assert committed[0].topic_id == TOPIC.id

    run_with_coordinator(test)


@pytest.mark.parametrize("version", [2, 9, 10])
def test_invalid_partitions_do_not_prevent_the_commit_of_others(version: int) -> None:
    async def test(broker: SmallCoordinator) -> None:
        codes = await commit(broker, version, partition(0), partition(2), partition(1, metadata="x" * 11))
        assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition, ErrorCode.offset_metadata_too_large]
        missing = [{"name": "u", "topic_id": UUID(int=99), "partitions": [partition(0)]}]
        unknown = ErrorCode.unknown_topic_id if version == 10 else ErrorCode.unknown_topic_or_partition
        assert await commit(broker, version, topics=missing) == [unknown]

    run_with_coordinator(test)


def test_commit_with_a_generation_of_an_unknown_group_is_rejected() -> None:
    async def test(broker: SmallCoordinator) -> None:
        assert await commit(broker, 8, partition(0), generation_id_or_member_epoch=3) == [ErrorCode.illegal_generation]
        assert await commit(broker, 9, partition(0), generation_id_or_member_epoch=3) == [ErrorCode.group_id_not_found]

    run_with_coordinator(test)


def test_retention_time_of_a_commit_is_stored() -> None:
    async def test(broker: SmallCoordinator) -> None:
        await commit(broker, 4, partition(0), retention_time=datetime.timedelta(seconds=60))
        assert broker.group_coordinator.fetch_offsets("g")["t"][0].expire_ms == broker.runtime.now_ms() + 60_000

    run_with_coordinator(test)


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_fetched_in_every_version(version: int) -> None:
    async def test(broker: SmallCoordinator) -> None:
        await commit(broker, 9, partition(1, offset=41))
        topics = [{"name": "t", "topic_id": TOPIC.id, "partition_indexes": (0, 1)}]
        group = {"group_id": "g", "topics": topics}
        response = await broker.send(ApiKey.OFFSET_FETCH, version, **group, groups=[group])
        fetched = response.groups[0] if version >= 8 else response
        (topic,) = fetched.topics
        assert topic.topic_id == TOPIC.id if version >= 10 else topic.name == "t"
        assert [(p.partition_index, p.committed_offset, p.metadata) for p in topic.partitions] == [
            (0, -1, ""),
            (1, 41, "m"),
        ]
        if version >= 2:
            all_topics = {"group_id": "g", "topics": None}
            response = await broker.send(ApiKey.OFFSET_FETCH, version, **all_topics, groups=[all_topics])
            fetched = response.groups[0] if version >= 8 else response
            assert [[p.partition_index for p in topic.partitions] for topic in fetched.topics] == [[1]]

    run_with_coordinator(test)


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
def test_error_of_a_fetch_is_in_the_field_that_its_version_has(version: int) -> None:
    async def test(broker: SmallCoordinator) -> None:
        broker.group_coordinator.unload(0)
        group = {"group_id": "g", "topics": [{"name": "t", "topic_id": TOPIC.id, "partition_indexes": (0,)}]}
        response = await broker.send(ApiKey.OFFSET_FETCH, version, **group, groups=[group])
        if version == 1:
            assert error_codes(response) == [ErrorCode.not_coordinator]
        else:
            assert (response.groups[0] if version >= 8 else response).error_code is ErrorCode.not_coordinator

    run_with_coordinator(test)


def test_recreated_topic_has_no_offsets() -> None:
    """Rule 13."""

    async def test(broker: SmallCoordinator) -> None:
        await commit(broker, 9, partition(0, offset=41))
        broker.image.topics["t"] = TopicImage("t", UUID(int=70), TOPIC.partitions)
        group = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": (0,)}]}
        response = await broker.send(ApiKey.OFFSET_FETCH, 9, groups=[group])
        assert response.groups[0].topics[0].partitions[0].committed_offset == -1
        response = await broker.send(ApiKey.OFFSET_FETCH, 9, groups=[{"group_id": "g", "topics": None}])
        assert [topic.partitions for topic in response.groups[0].topics] in ([], [()])

    run_with_coordinator(test)


def test_unknown_topic_id_is_reported() -> None:
    async def test(broker: SmallCoordinator) -> None:
        group = {"group_id": "g", "topics": [{"topic_id": UUID(int=99), "partition_indexes": (0,)}]}
        response = await broker.send(ApiKey.OFFSET_FETCH, 10, groups=[group])
        (topic,) = response.groups[0].topics
        assert (topic.topic_id, topic.partitions[0].error_code) == (UUID(int=99), ErrorCode.unknown_topic_id)

    run_with_coordinator(test)


def test_offsets_are_deleted_by_partition() -> None:
    async def test(broker: SmallCoordinator) -> None:
        await commit(broker, 9, partition(0), partition(1))
        partitions = [{"partition_index": 0}, {"partition_index": 7}]
        topics = [{"name": "t", "partitions": partitions}, {"name": "u", "partitions": partitions[:1]}]
        response = await broker.send(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
        unknown = ErrorCode.unknown_topic_or_partition
        assert (response.error_code, error_codes(response)) == (ErrorCode.none, [ErrorCode.none, unknown, unknown])
        assert list(broker.group_coordinator.fetch_offsets("g")["t"]) == [1]

    run_with_coordinator(test)
