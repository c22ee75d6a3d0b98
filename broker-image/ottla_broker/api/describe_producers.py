"""DescribeProducers (61), version 0.

- Returns the active producers of each partition: id, epoch, last sequence and timestamp, and the
  first offset of an open transaction (KIP-664). Only the leader responds; other brokers return
  NOT_LEADER_OR_FOLLOWER.
"""

from typing import cast

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.types import ProducerId
from kio.static.primitive import i32, i64

from ottla_broker.log.producer_state import ProducerStateEntry
from ottla_broker.metadata.topic_names import validate_topic_name
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0, rights=(Right(Operation.read, ResourceType.topic),))


@API.handler()
async def describe_producers(ctx: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(describe_partition(ctx, topic.name, index) for index in topic.partition_indexes),
            )
            for topic in request.topics
        ),
    )


def describe_partition(ctx: RequestContext, topic: str, index: i32) -> PartitionResponse:
    try:
        ctx.check_authorized(Operation.read, Resource.topic(topic))
        validate_topic_name(topic)
        producers = ctx.broker.partitions.leader(topic, index).log.producers.active_producers()
    except KafkaError as reason:
        return PartitionResponse(
            partition_index=index, error_code=reason.code, error_message=reason.message, active_producers=()
        )
    return PartitionResponse(
        partition_index=index, error_code=ErrorCode.none, active_producers=tuple(map(build_producer_state, producers))
    )


def build_producer_state(producer: ProducerStateEntry) -> ProducerState:
    return ProducerState(
        producer_id=cast(ProducerId, producer.producer_id),
        producer_epoch=cast(i32, producer.epoch),
        last_sequence=cast(i32, producer.last_sequence),
        last_timestamp=cast(i64, producer.last_timestamp),
        coordinator_epoch=cast(i32, producer.coordinator_epoch),
        current_txn_start_offset=cast(i64, producer.current_txn_first_offset),
    )
