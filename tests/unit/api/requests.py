"""Produce and Fetch requests as classes of kio, for any version that has their fields."""

import datetime
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.fetch.v12.request import FetchPartition as NamedPartition
from kio.schema.fetch.v12.request import FetchRequest as NamedFetch
from kio.schema.fetch.v12.request import FetchTopic as NamedTopic
from kio.schema.fetch.v12.request import ForgottenTopic as NamedForgotten
from kio.schema.fetch.v13.request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import TopicName
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

Topic = str | uuid.UUID


def produce_request(
    batches: Mapping[tuple[str, int], bytes | None], acks: int = -1, timeout_ms: int = 1000
) -> ProduceRequest:
    """`batches`: (topic, partition) → records; None: null."""
    names = dict.fromkeys(topic for topic, _ in batches)
    return ProduceRequest(
        transactional_id=None,
        acks=i16(acks),
        timeout=i32Timedelta.parse(datetime.timedelta(milliseconds=timeout_ms)),
        topic_data=tuple(
            TopicProduceData(
                name=TopicName(name),
                partition_data=tuple(
                    PartitionProduceData(index=i32(index), records=None if records is None else Records(records))
                    for (topic, index), records in batches.items()
                    if topic == name
                ),
            )
            for name in names
        ),
    )


def fetch_request(
    offsets: Mapping[tuple[Topic, int], int],
    *,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_bytes: int = 1 << 20,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
    forget: Sequence[tuple[Topic, int]] = (),
    epoch: int = -1,
) -> Any:
    """`offsets`: (topic name or id, partition) → offset. With ids the request is of version 13,
    else of version 12.
    """
    named = not any(isinstance(topic, uuid.UUID) for topic, _ in [*offsets, *forget])
    common: dict[str, Any] = {
        "max_wait": i32Timedelta.parse(datetime.timedelta(milliseconds=wait_ms)),
        "min_bytes": i32(min_bytes),
        "max_bytes": i32(max_bytes),
        "isolation_level": i8(isolation),
        "session_id": i32(session[0]),
        "session_epoch": i32(session[1]),
    }
    partition_of: Any = NamedPartition if named else FetchPartition
    topic_of: Any = NamedTopic if named else FetchTopic
    forgotten_of: Any = NamedForgotten if named else ForgottenTopic
    request: Any = NamedFetch if named else FetchRequest
    key = "topic" if named else "topic_id"
    topics = tuple(
        topic_of(
            **{key: topic},
            partitions=tuple(
                partition_of(
                    partition=i32(index),
                    current_leader_epoch=i32(epoch),
                    fetch_offset=i64(offset),
                    partition_max_bytes=i32(partition_bytes),
                )
                for (name, index), offset in offsets.items()
                if name == topic
            ),
        )
        for topic in dict.fromkeys(topic for topic, _ in offsets)
    )
    forgotten = tuple(forgotten_of(**{key: t}, partitions=(i32(p),)) for t, p in forget)
    return request(**common, topics=topics, forgotten_topics_data=forgotten)
