"""Metadata (3), versions 0–13.

- Lists the live brokers, the controller, and for each topic its id, partitions, leaders, epochs, replicas and ISR.
- Topics are requested by name or (from v12) by id; null (in v0 an empty list) means all that the client may describe.
- A topic requested twice, or once by name and once by id, is returned once.
- If a leader of a requested topic may have failed, the response waits a moment for the failure detector and the
  controller: a client that lost its connection asks at once, and would be sent to the failed broker again.
- A missing topic is created if the request and `auto.create.topics.enable` allow it, as in Kafka; the response then
  contains it.
- A partition without a leader is LEADER_NOT_AVAILABLE. Each broker's endpoint is that of the client's listener.
- v1 adds the controller, racks and internal topics; v5 offline replicas; v7 leader epochs; v8 authorized operations,
  which v8–10 also have for the cluster; v10 ids; v12 lookup by id (INVALID_REQUEST before); v13 a top-level error.
"""

from dataclasses import replace
from typing import cast
from uuid import UUID

from kio.schema.metadata.v10.request import MetadataRequest as RequestV10
from kio.schema.metadata.v10.response import MetadataResponse as ResponseV10
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.conversion import convert_message
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.METADATA, versions=(0, 13), flexible=9)

NOT_ASKED = i32(-(2**31))
BY_ID_SINCE = 12


@API.handler(11, 13)
async def metadata(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse:
    if ctx.version < BY_ID_SINCE and any(wanted.name is None or wanted.topic_id for wanted in request.topics or ()):
        return too_early(request)
    image = ctx.broker.image
    await ctx.broker.failure_detector.wait_until_confirmed(leaders(image, request.topics or ()))
    if wants_all(ctx.version, request.topics):
        visible = [
            topic
            for topic in image.topics.values()
            if ctx.is_authorized(Operation.describe, Resource.topic(topic.name))
        ]
        found = [describe(ctx, topic, request) for topic in visible]
    else:
        asked = [await one(ctx, wanted, request) for wanted in dict.fromkeys(request.topics or ())]
        found = list({topic.name or topic.topic_id: topic for topic in asked}.values())
    brokers = [(broker, broker.endpoints.get(ctx.connection.listener)) for broker in image.unfenced_brokers()]
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            MetadataResponseBroker(node_id=BrokerId(broker.id), host=at.host, port=i32(at.port), rack=broker.rack)
            for broker, at in brokers
            if at is not None
        ),
        cluster_id=ctx.broker.cluster_id,
        controller_id=BrokerId(image.controller_id),
        topics=tuple(found),
        error_code=ErrorCode.none,
    )


def leaders(image: MetadataImage, topics: tuple[MetadataRequestTopic, ...]) -> set[int]:
    """Who leads partitions of the topics that are asked for by name."""
    known = [image.topics[wanted.name] for wanted in topics if wanted.name in image.topics]
    return {state.leader for topic in known for state in topic.partitions.values()}


def too_early(request: MetadataRequest) -> MetadataResponse:
    """Ids are in the request from version 10 on, but may be used from 12 on only (KIP-516)."""
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(),
        topics=tuple(
            refused(wanted.name or "", wanted.topic_id, ErrorCode.invalid_request) for wanted in request.topics or ()
        ),
        error_code=ErrorCode.invalid_request,
    )


def wants_all(version: int, topics: tuple[MetadataRequestTopic, ...] | None) -> bool:
    return topics is None or (version == 0 and not topics)


async def one(ctx: RequestContext, wanted: MetadataRequestTopic, request: MetadataRequest) -> MetadataResponseTopic:
    image = ctx.broker.image
    if wanted.name is None:
        by_id = image.topic_by_id(wanted.topic_id) if wanted.topic_id else None
        if by_id is None or not ctx.is_authorized(Operation.describe, Resource.topic(by_id.name)):
            return refused(None, wanted.topic_id, ErrorCode.unknown_topic_id)
        return describe(ctx, by_id, request)
    if not ctx.is_authorized(Operation.describe, Resource.topic(wanted.name)):
        return refused(wanted.name, None, ErrorCode.topic_authorization_failed)
    if wanted.name not in image.topics:
        try:
            await ctx.broker.auto_create_topic(wanted.name, allowed=request.allow_auto_topic_creation)
        except KafkaError as reason:
            return refused(wanted.name, None, reason.code)
    return describe(ctx, image.topics[wanted.name], request)


def refused(name: str | None, topic_id: UUID | None, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=None if name is None else TopicName(name), topic_id=topic_id, partitions=()
    )


def describe(ctx: RequestContext, topic: TopicImage, request: MetadataRequest) -> MetadataResponseTopic:
    operations = (
        ctx.authorized_operations(Resource.topic(topic.name))
        if request.include_topic_authorized_operations
        else NOT_ASKED
    )
    alive = {broker.id for broker in ctx.broker.image.unfenced_brokers()}
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=tuple(partition(topic.partitions[p], alive) for p in sorted(topic.partitions)),
        topic_authorized_operations=cast(i32, operations),
    )


def partition(state: PartitionRecord, alive: set[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=ErrorCode.leader_not_available if state.leader == NO_LEADER else ErrorCode.none,
        partition_index=cast(i32, state.partition),
        leader_id=cast(BrokerId, state.leader),
        leader_epoch=cast(i32, state.leader_epoch),
        replica_nodes=broker_ids(state.replicas),
        isr_nodes=broker_ids(state.isr),
        offline_replicas=broker_ids(tuple(broker for broker in state.replicas if broker not in alive)),
    )


def broker_ids(ids: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return cast("tuple[BrokerId, ...]", ids)


@API.handler(0, 10)
async def with_cluster_operations(ctx: RequestContext, request: RequestV10) -> ResponseV10:
    answer: ResponseV10 = convert_message(await metadata(ctx, convert_message(request, MetadataRequest)), ResponseV10)
    if not request.include_cluster_authorized_operations:
        return answer
    return replace(answer, cluster_authorized_operations=cast(i32, ctx.authorized_operations(CLUSTER)))
