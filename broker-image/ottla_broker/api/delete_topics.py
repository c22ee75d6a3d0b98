"""DeleteTopics (20), versions 1–6.

- Deletes each topic on its own; answered when the metadata log has it on disk. Files go in the background.
- From 6 a topic may be named by id, so that a re-created one of the same name is not taken for it (rule 13).
- `delete.topic.enable=false` refuses with TOPIC_DELETION_DISABLED.
"""

from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as ByName
from kio.schema.delete_topics.v5.response import DeletableTopicResult as NameResult
from kio.schema.delete_topics.v5.response import DeleteTopicsResponse as ByNameResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.types import TopicName

from ottla_broker.api.context import Context
from ottla_broker.api.form import Form
from ottla_broker.api.no_throttle import NO_THROTTLE
from ottla_broker.config import DELETE_TOPIC_ENABLE
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.errors import ErrorCode, KafkaError


async def by_name(ctx: Context, request: ByName) -> ByNameResponse:
    results = []
    for name in request.topic_names:
        reason = await delete(ctx, name)
        results.append(
            NameResult(
                name=name,
                error_code=reason.code if reason else ErrorCode.none,
                error_message=reason.message if reason else None,
            )
        )
    return ByNameResponse(throttle_time=NO_THROTTLE, responses=tuple(results))


async def by_name_or_id(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        throttle_time=NO_THROTTLE, responses=tuple([await one(ctx, topic) for topic in request.topics])
    )


async def one(ctx: Context, topic: DeleteTopicState) -> DeletableTopicResult:
    name = topic.name
    if name is None:
        found = ctx.broker.image.topic_by_id(topic.topic_id) if topic.topic_id else None
        if found is None:
            return DeletableTopicResult(name=None, topic_id=topic.topic_id, error_code=ErrorCode.unknown_topic_id)
        name = TopicName(found.name)
    known = ctx.broker.image.topics.get(name)
    reason = await delete(ctx, name)
    return DeletableTopicResult(
        name=name,
        topic_id=known.id if known else topic.topic_id,
        error_code=reason.code if reason else ErrorCode.none,
        error_message=reason.message if reason else None,
    )


async def delete(ctx: Context, name: str) -> KafkaError | None:
    if not ctx.may(Operation.delete, Resource.topic(name)):
        return KafkaError(ErrorCode.topic_authorization_failed)
    if not ctx.broker.config(DELETE_TOPIC_ENABLE):
        return KafkaError(ErrorCode.topic_deletion_disabled, "delete.topic.enable is false on this cluster")
    try:
        await ctx.broker.controller.delete_topic(name)
    except KafkaError as reason:
        return reason
    return None


FORMS = (
    Form(1, 5, ByName, ByNameResponse, by_name),
    Form(6, 6, DeleteTopicsRequest, DeleteTopicsResponse, by_name_or_id),
)
