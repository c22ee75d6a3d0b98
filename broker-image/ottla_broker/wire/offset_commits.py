"""Committing a group's offsets from outside of it, as the request for that."""

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


def offset_commit(group: str, places: Mapping[tuple[str, int], tuple[int, str]]) -> OffsetCommitRequest:
    """`places`: (topic, partition) → (offset, metadata). For a group without members: it names none, and no generation."""
    by_topic = groupby(sorted(places.items()), key=lambda one: one[0][0])
    return OffsetCommitRequest(
        group_id=GroupId(group),
        member_id="",
        topics=tuple(
            OffsetCommitRequestTopic(
                name=TopicName(topic),
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=cast(i32, partition),
                        committed_offset=cast(i64, offset),
                        committed_metadata=metadata,
                    )
                    for (_, partition), (offset, metadata) in found
                ),
            )
            for topic, found in by_topic
        ),
    )
