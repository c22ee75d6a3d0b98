"""The response to a ConsumerGroupHeartbeat."""

from typing import cast

from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.static.primitive import i32

from ottla_broker.coordination.assignors import Assignment as PartitionsByTopic
from ottla_broker.coordination.consumer_heartbeat import HeartbeatResult
from ottla_broker.requests.durations import NO_THROTTLE, to_duration
from ottla_broker.wire.errors import ErrorCode


def build_response(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=result.member_id,
        member_epoch=cast(i32, result.member_epoch),
        heartbeat_interval=to_duration(result.heartbeat_interval_ms),
        assignment=None if result.assignment is None else _build_assignment(result.assignment),
    )


def _build_assignment(assignment: PartitionsByTopic) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic, partitions=tuple(cast(i32, it) for it in sorted(partitions)))
            for topic, partitions in sorted(assignment.items())
        )
    )
