"""Metadata (3), versions 0–13.

- Lists the live brokers, the controller, and for each topic its id, partitions, leaders, epochs,
  replicas and ISR.
- Topics are requested by name or (from v12) by id; null (in v0 an empty list) means all that the
  client may describe.
- A topic requested twice, or once by name and once by id, is returned once.
- If a leader of a topic that is requested by name may have failed, the response waits a moment for
  the failure detector and the controller: a client that lost its connection asks at once, and would
  be sent to the failed broker again.
- A missing topic is created if the request and `auto.create.topics.enable` allow it, as in Kafka,
  and a topic of coordinators in any case. The response then contains it.
- A partition without a leader is LEADER_NOT_AVAILABLE. Each broker's endpoint is that of the
  client's listener.
- v1 adds the controller, racks and internal topics; v5 offline replicas; v7 leader epochs; v8
  authorized operations, which v8–10 also have for the cluster; v10 ids; v12 lookup by id
  (INVALID_REQUEST before); v13 a top-level error.
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

from ottla_broker.config import AUTO_CREATE_TOPICS_ENABLE
from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord
from ottla_broker.requests.api import CHECK_NEXT, Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.conversion import convert_message
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.METADATA,
    versions=(0, 13),
    flexible=9,
    rights=(
        Right(
            Operation.describe,
            ResourceType.topic,
            refused="TOPIC_AUTHORIZATION_FAILED; left out if all topics are requested",
        ),
        Right(Operation.create, ResourceType.cluster, when="to create a topic", refused=CHECK_NEXT),
        Right(Operation.create, ResourceType.topic, when="to create a topic"),
        Right(Operation.describe, ResourceType.cluster, when="for operations on the cluster", refused="no operations"),
    ),
)

LOOKUP_BY_ID_SINCE = 12


@API.handler(11, 13)
async def metadata(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse:
    if ctx.version < LOOKUP_BY_ID_SINCE and any(
        requested.name is None or requested.topic_id for requested in request.topics or ()
    ):
        return lookup_by_id_error(request)
    image = ctx.broker.image
    await ctx.broker.failure_detector.wait_until_confirmed(find_leaders(image, request.topics or ()))
    if requests_all_topics(ctx.version, request.topics):
        visible = [topic for topic in image.topics.values() if ctx.may(Operation.describe, Resource.topic(topic.name))]
        returned_topics = [describe_topic(ctx, topic, request) for topic in visible]
    else:
        described = [
            await describe_requested(ctx, requested, request) for requested in dict.fromkeys(request.topics or ())
        ]
        returned_topics = list({topic.name or topic.topic_id: topic for topic in described}.values())
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
        topics=tuple(returned_topics),
        error_code=ErrorCode.none,
    )


def find_leaders(image: MetadataImage, topics: tuple[MetadataRequestTopic, ...]) -> set[int]:
    """Leaders of the partitions of topics requested by name."""
    existing = [image.topics[requested.name] for requested in topics if requested.name in image.topics]
    return {state.leader for topic in existing for state in topic.partitions.values()}


def lookup_by_id_error(request: MetadataRequest) -> MetadataResponse:
    """The response to a request that looks up a topic by id before version 12: requests have ids
    from version 10 on, but may use them from 12 on only (KIP-516)."""
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(),
        topics=tuple(
            build_error_topic(requested.name or "", requested.topic_id, ErrorCode.invalid_request)
            for requested in request.topics or ()
        ),
        error_code=ErrorCode.invalid_request,
    )


def requests_all_topics(version: int, topics: tuple[MetadataRequestTopic, ...] | None) -> bool:
    return topics is None or (version == 0 and not topics)


async def describe_requested(
    ctx: RequestContext, requested: MetadataRequestTopic, request: MetadataRequest
) -> MetadataResponseTopic:
    image = ctx.broker.image
    if requested.name is None:
        by_id = image.topic_by_id(requested.topic_id) if requested.topic_id else None
        if by_id is None:
            return build_error_topic(None, requested.topic_id, ErrorCode.unknown_topic_id)
        if not ctx.is_authorized(Operation.describe, Resource.topic(by_id.name)):
            return build_error_topic(None, requested.topic_id, ErrorCode.topic_authorization_failed)
        return describe_topic(ctx, by_id, request)
    if not ctx.is_authorized(Operation.describe, Resource.topic(requested.name)):
        return build_error_topic(requested.name, None, ErrorCode.topic_authorization_failed)
    if requested.name not in image.topics:
        would_create = request.allow_auto_topic_creation and ctx.broker.config(AUTO_CREATE_TOPICS_ENABLE)
        if would_create and not (
            ctx.may(Operation.create, CLUSTER) or ctx.is_authorized(Operation.create, Resource.topic(requested.name))
        ):
            return build_error_topic(requested.name, None, ErrorCode.topic_authorization_failed)
        try:
            await ctx.broker.auto_create_topic(requested.name, allowed=request.allow_auto_topic_creation)
        except KafkaError as reason:
            return replace(
                build_error_topic(requested.name, None, reason.code),
                topic_authorized_operations=topic_operations(ctx, requested.name, request),
            )
    return describe_topic(ctx, image.topics[requested.name], request)


def build_error_topic(name: str | None, topic_id: UUID | None, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=None if name is None else TopicName(name), topic_id=topic_id, partitions=()
    )


def describe_topic(ctx: RequestContext, topic: TopicImage, request: MetadataRequest) -> MetadataResponseTopic:
    alive = {broker.id for broker in ctx.broker.image.unfenced_brokers()}
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=tuple(describe_partition(topic.partitions[p], alive) for p in sorted(topic.partitions)),
        topic_authorized_operations=topic_operations(ctx, topic.name, request),
    )


def topic_operations(ctx: RequestContext, name: str, request: MetadataRequest) -> i32:
    return ctx.authorized_operations(Resource.topic(name), requested=request.include_topic_authorized_operations)


def describe_partition(state: PartitionRecord, alive: set[int]) -> MetadataResponsePartition:
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
async def metadata_v10(ctx: RequestContext, request: RequestV10) -> ResponseV10:
    answer: ResponseV10 = convert_message(await metadata(ctx, convert_message(request, MetadataRequest)), ResponseV10)
    operations = ctx.cluster_operations(requested=request.include_cluster_authorized_operations)
    return replace(answer, cluster_authorized_operations=operations)
