"""CreateTopics (19), versions 2–7.

- Each topic has its own error. All valid topics are one commit, answered when a majority has it on
  disk.
- −1 partitions or replicas mean the cluster's `num.partitions` and `default.replication.factor`
  (KIP-464).
- Configs are validated before any topic is created. A name repeated in a request is
  INVALID_REQUEST, returned once.
- v5 adds the new topic's configs; v7 its id.
- Partitions count against the client's `controller_mutation_rate`. Since v6 topics above it are
  THROTTLING_QUOTA_EXCEEDED (KIP-599); before, they are created and the client is throttled
  afterwards.
"""

from collections import Counter
from typing import cast
from uuid import UUID

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from ottla_broker.config import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS
from ottla_broker.config.description import describe_topic
from ottla_broker.config.validation import check_topic_changes
from ottla_broker.coordination.auto_topic_creation import auto_replication_factor
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.metadata.topic_plans import NewTopic, check_new_topic_name
from ottla_broker.requests.api import CHECK_NEXT, Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.request_quota import MutationQuota
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.CREATE_TOPICS,
    versions=(2, 7),
    flexible=5,
    is_forwarded=True,
    rights=(
        Right(Operation.create, ResourceType.cluster, refused=CHECK_NEXT),
        Right(Operation.create, ResourceType.topic),
        Right(
            Operation.describe_configs, ResourceType.topic, when="for the configs in the response", refused="no configs"
        ),
    ),
)

USE_CLUSTER_DEFAULT = -1
STRICT_SINCE = 6


@API.handler()
async def create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Creates all valid topics of the request in one commit."""
    times_named = Counter(topic.name for topic in request.topics)
    results = [
        build_error_result(name, KafkaError(ErrorCode.invalid_request, f"the request names topic {name!r} twice"))
        for name in times_named
        if times_named[name] > 1
    ]
    quota = MutationQuota(ctx, strict_since=STRICT_SINCE)
    new_topics: list[NewTopic] = []
    for topic in request.topics:
        try:
            if times_named[topic.name] == 1:
                new_topics.append(validate_topic(ctx, topic))
        except KafkaError as reason:
            results.append(build_error_result(topic.name, reason))
    try:
        outcomes = await ctx.broker.active_controller().create_topics(
            new_topics, validate_only=request.validate_only, charge=quota.charge
        )
    except KafkaError as reason:
        outcomes = [reason] * len(new_topics)
    results += [
        build_error_result(TopicName(new_topic.name), outcome)
        if isinstance(outcome, KafkaError)
        else build_result(ctx, new_topic, outcome)
        for new_topic, outcome in zip(new_topics, outcomes, strict=True)
    ]
    return CreateTopicsResponse(throttle_time=quota.throttle_time, topics=tuple(results))


def validate_topic(ctx: RequestContext, topic: CreatableTopic) -> NewTopic:
    """The topic to create. Raises TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION,
    TOPIC_ALREADY_EXISTS, INVALID_REQUEST, INVALID_CONFIG and INVALID_REPLICA_ASSIGNMENT."""
    if not (ctx.may(Operation.create, CLUSTER) or ctx.is_authorized(Operation.create, Resource.topic(topic.name))):
        raise KafkaError(ErrorCode.topic_authorization_failed)
    if topic.name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.invalid_request, f"{topic.name} is the cluster's own metadata log")
    # Errors of the name come before errors of configs.
    check_new_topic_name(ctx.broker.image, topic.name)
    if empty := [entry.name for entry in topic.configs if entry.value is None]:
        raise KafkaError(ErrorCode.invalid_config, f"{empty[0]} has no value; omit it to get its default")
    config = {entry.name: entry.value for entry in topic.configs if entry.value is not None}
    check_topic_changes(config)
    return build_new_topic(ctx, topic, config)


def build_new_topic(ctx: RequestContext, topic: CreatableTopic, config: dict[str, str]) -> NewTopic:
    if topic.assignments:
        if topic.num_partitions != USE_CLUSTER_DEFAULT or topic.replication_factor != USE_CLUSTER_DEFAULT:
            raise KafkaError(
                ErrorCode.invalid_request,
                "with a replica assignment, partitions and replication factor must both be -1",
            )
        assignment: dict[int, tuple[int, ...]] = {
            entry.partition_index: entry.broker_ids for entry in topic.assignments
        }
        if len(assignment) != len(topic.assignments):
            raise KafkaError(ErrorCode.invalid_replica_assignment, "the replica assignment names a partition twice")
        return NewTopic(topic.name, len(assignment), len(topic.assignments[0].broker_ids), assignment, config)
    return NewTopic(
        topic.name,
        ctx.broker.config(NUM_PARTITIONS) if topic.num_partitions == USE_CLUSTER_DEFAULT else topic.num_partitions,
        auto_replication_factor(ctx.broker.config, ctx.broker.image, DEFAULT_REPLICATION_FACTOR)
        if topic.replication_factor == USE_CLUSTER_DEFAULT
        else topic.replication_factor,
        config=config,
    )


def build_result(ctx: RequestContext, topic: NewTopic, topic_id: UUID) -> CreatableTopicResult:
    """The result has configs, partition count and replication factor only for clients that may
    describe the topic's configs.
    """
    if not ctx.may(Operation.describe_configs, Resource.topic(topic.name)):
        return CreatableTopicResult(
            name=TopicName(topic.name),
            topic_id=topic_id,
            error_code=ErrorCode.none,
            error_message=None,
            topic_config_error_code=i16(ErrorCode.topic_authorization_failed),
            configs=(),
        )
    return CreatableTopicResult(
        name=TopicName(topic.name),
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=cast(i32, topic.partitions),
        replication_factor=cast(i16, topic.replication_factor),
        configs=tuple(
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                config_source=cast(i8, int(entry.source)),
                is_sensitive=entry.is_sensitive,
            )
            for entry in describe_topic(ctx.broker.config, topic.config)
        ),
    )


def build_error_result(name: TopicName, reason: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=None, error_code=reason.code, error_message=reason.message, configs=()
    )
