"""DeleteTopics (20), versions 1–6.

- Each topic has its own error. Answered when the metadata log has the deletion on disk; files are
  deleted in the background.
- From v6 on a topic may be named by id, so that a re-created topic of the same name is not deleted
  (rule 13).
- A topic that is named twice is INVALID_REQUEST (returned once) and is not deleted; so is one with
  both name and id, or neither.
- Partitions count against the client's `controller_mutation_rate`. Since v5 topics above it are
  THROTTLING_QUOTA_EXCEEDED (KIP-599); before, they are deleted and the client is throttled
  afterwards.
- Needs DELETE on the topic or on the cluster. A client that may not describe a topic does not learn
  its name by its id, and no client that may not delete it learns its id by its name.
- TOPIC_DELETION_DISABLED with `delete.topic.enable=false`.
"""

from collections import Counter

from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as ByName
from kio.schema.delete_topics.v5.response import DeletableTopicResult as NameResult
from kio.schema.delete_topics.v5.response import DeleteTopicsResponse as ByNameResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.types import TopicName

from ottla_broker.config import DELETE_TOPIC_ENABLE
from ottla_broker.requests.api import CHECK_NEXT, Api, Right, catch_error
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.request_quota import MutationQuota
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.DELETE_TOPICS,
    versions=(1, 6),
    flexible=4,
    is_forwarded=True,
    rights=(
        Right(Operation.delete, ResourceType.cluster, refused=CHECK_NEXT),
        Right(Operation.describe, ResourceType.topic, when="if it is named by its name"),
        Right(Operation.delete, ResourceType.topic),
    ),
)

STRICT_SINCE = 5
NAMED_TWICE = KafkaError(ErrorCode.invalid_request, "the request names the topic twice")


@API.handler(1, 5)
async def delete_by_name(ctx: RequestContext, request: ByName) -> ByNameResponse:
    quota = MutationQuota(ctx, strict_since=STRICT_SINCE)
    errors = {
        name: NAMED_TWICE if times_named > 1 else await catch_error(delete_topic(ctx, name, quota, is_named=True))
        for name, times_named in Counter(request.topic_names).items()
    }
    return ByNameResponse(
        throttle_time=quota.throttle_time,
        responses=tuple(
            NameResult(name=name, error_code=error.code, error_message=error.message) for name, error in errors.items()
        ),
    )


@API.handler(6, 6)
async def delete_by_name_or_id(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    times_named = Counter(find_name(ctx, topic) or topic for topic in request.topics)
    ids_last = sorted(request.topics, key=lambda topic: topic.topic_id is not None)
    named = {find_name(ctx, topic) or topic: topic for topic in ids_last}  # of two entries, the one with the id
    quota = MutationQuota(ctx, strict_since=STRICT_SINCE)
    results = [
        await delete_topic_state(ctx, topic, quota, is_named_twice=times_named[key] > 1) for key, topic in named.items()
    ]
    return DeleteTopicsResponse(throttle_time=quota.throttle_time, responses=tuple(results))


def find_name(ctx: RequestContext, topic: DeleteTopicState) -> str | None:
    """The name that the request gives, or that of the topic with the id. None if no topic has the
    id, or if the request gives neither."""
    if topic.name is not None or topic.topic_id is None:
        return topic.name
    found = ctx.broker.image.topic_by_id(topic.topic_id)
    return None if found is None else found.name


async def delete_topic_state(
    ctx: RequestContext, topic: DeleteTopicState, quota: MutationQuota, *, is_named_twice: bool
) -> DeletableTopicResult:
    """Deletes the topic that the request names by its name or its id. Errors are in the result."""
    name, topic_id = find_name(ctx, topic), topic.topic_id
    if is_named_twice:
        error = NAMED_TWICE
    elif (topic.name is None) == (topic_id is None):
        error = KafkaError(ErrorCode.invalid_request, "give a topic's name or its id, and not both")
    elif name is None:
        error = KafkaError(ErrorCode.unknown_topic_id)
    else:
        existing = ctx.broker.image.topics.get(name)
        error = await catch_error(delete_topic(ctx, name, quota, is_named=topic.name is not None))
        if error.code is not ErrorCode.topic_authorization_failed:
            topic_id = existing.id if existing else topic_id
        elif topic.name is None and not ctx.may(Operation.describe, Resource.topic(name)):
            name = None
    return DeletableTopicResult(
        name=None if name is None else TopicName(name),
        topic_id=topic_id,
        error_code=error.code,
        error_message=error.message,
    )


async def delete_topic(ctx: RequestContext, name: str, quota: MutationQuota, *, is_named: bool) -> None:
    """`is_named`: by its name, not its id."""
    if not ctx.broker.config(DELETE_TOPIC_ENABLE):
        raise KafkaError(ErrorCode.topic_deletion_disabled, "delete.topic.enable is false on this cluster")
    if not ctx.may(Operation.delete, CLUSTER):
        if is_named:
            ctx.check_authorized(Operation.describe, Resource.topic(name))
            if name not in ctx.broker.image.topics:
                raise KafkaError(ErrorCode.unknown_topic_or_partition)
        ctx.check_authorized(Operation.delete, Resource.topic(name))
    controller = ctx.broker.active_controller()
    if (existing := ctx.broker.image.topics.get(name)) is not None:
        quota.charge(len(existing.partitions))
    await controller.delete_topic(name)
