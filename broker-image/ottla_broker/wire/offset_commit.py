"""The request that commits offsets for a consumer group from outside of the group."""

from collections.abc import Mapping
from itertools import groupby
from typing import cast

from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64


def build_offset_commit(group: str, commits: Mapping[tuple[str, int], tuple[int, str]]) -> OffsetCommitRequest:
    """Request that commits offsets for a group without members.

    `commits`: (topic, partition) → (offset, metadata).
    """
    topics = []
    for topic, found in groupby(sorted(commits.items()), key=lambda it: it[0][0]):
        partitions = tuple(
            OffsetCommitRequestPartition(
                partition_index=cast(i32, partition), committed_offset=cast(i64, offset), committed_metadata=metadata
            )
            for (_, partition), (offset, metadata) in found
        )
        topics.append(OffsetCommitRequestTopic(name=TopicName(topic), partitions=partitions))
    return OffsetCommitRequest(group_id=GroupId(group), member_id="", topics=tuple(topics))
