"""Produce and Fetch requests for one partition."""

import datetime

from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import TopicName
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64


def build_produce(topic: str, partition: int, batch: bytes, *, acks: int, timeout_s: float) -> ProduceRequest:
    """A request that appends one record batch. `timeout_s`: how long the leader waits for the other
    replicas.
    """
    data = PartitionProduceData(index=i32(partition), records=Records(batch))
    return ProduceRequest(
        transactional_id=None,
        acks=i16(acks),
        timeout=to_timedelta_field(timeout_s),
        topic_data=(TopicProduceData(name=TopicName(topic), partition_data=(data,)),),
    )


def build_fetch(
    topic: str, partition: int, offset: int, *, max_bytes: int, max_wait_s: float, read_committed: bool = False
) -> FetchRequest:
    """A request that fetches record batches from `offset` on, outside of a session; the broker
    waits up to `max_wait_s` for the first.
    """
    fetched = FetchPartition(partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes))
    return FetchRequest(
        max_wait=to_timedelta_field(max_wait_s),
        min_bytes=i32(1),
        max_bytes=i32(max_bytes),
        isolation_level=i8(read_committed),
        topics=(FetchTopic(topic=TopicName(topic), partitions=(fetched,)),),
        forgotten_topics_data=(),
    )


def to_timedelta_field(seconds: float) -> i32Timedelta:
    """The form that requests have a timeout in: whole milliseconds."""
    return i32Timedelta.parse(datetime.timedelta(milliseconds=round(seconds * 1000)))
