"""CreatePartitions (37), versions 0–3.

- Increases the number of partitions of topics, and never decreases it. The controller places the
  new partitions unless the request does.
- A mirrored topic has as many partitions as its source: POLICY_VIOLATION.
- New partitions count against the client's `controller_mutation_rate`. Since v3 topics above it are
  THROTTLING_QUOTA_EXCEEDED (KIP-599); before, they grow and the client is throttled afterwards.
- Each topic has its own outcome (a topic named twice: INVALID_REQUEST, returned once), answered
  when the metadata log has it on disk.
"""

from collections import Counter

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult

from ottla_broker.metadata.mirror_plans import read_only_message
from ottla_broker.requests.api import Api, Right, catch_error
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.request_quota import MutationQuota
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.CREATE_PARTITIONS,
    versions=(0, 3),
    flexible=2,
    is_forwarded=True,
    rights=(Right(Operation.alter, ResourceType.topic),),
)

STRICT_SINCE = 3
NAMED_TWICE = KafkaError(ErrorCode.invalid_request, "the request names the topic twice")


@API.handler()
async def create_partitions(ctx: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    quota = MutationQuota(ctx, strict_since=STRICT_SINCE)
    times_named = Counter(topic.name for topic in request.topics)
    errors = {name: NAMED_TWICE for name in times_named if times_named[name] > 1}
    for topic in request.topics:
        if topic.name not in errors:
            errors[topic.name] = await catch_error(create_topic_partitions(ctx, topic, quota, request.validate_only))
    return CreatePartitionsResponse(
        throttle_time=quota.throttle_time,
        results=tuple(
            CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
            for name, error in errors.items()
        ),
    )


async def create_topic_partitions(
    ctx: RequestContext, topic: CreatePartitionsTopic, quota: MutationQuota, validate_only: bool
) -> None:
    ctx.check_authorized(Operation.alter, Resource.topic(topic.name))
    existing = ctx.broker.image.topics.get(topic.name)
    if existing is not None and (mirrored := ctx.broker.image.active_mirror(existing.id)) is not None:
        raise KafkaError(ErrorCode.policy_violation, read_only_message(topic.name, mirrored.mirror))
    assignment = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
    controller = ctx.broker.active_controller()
    if existing is not None and topic.count > len(existing.partitions):
        quota.charge(topic.count - len(existing.partitions))
    await controller.create_partitions(topic.name, topic.count, assignment, validate_only=validate_only)
