"""CreatePartitions (37), versions 0–3.

- Grows each topic to a count of partitions, placed by the controller or as the request says; never shrinks.
- Each topic on its own; answered when the metadata log has it on disk.
"""

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult

from ottla_broker.api.context import Context
from ottla_broker.api.form import Form
from ottla_broker.api.no_throttle import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.errors import ErrorCode, KafkaError


async def create_partitions(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple([await grow(ctx, topic, validate_only=request.validate_only) for topic in request.topics]),
    )


async def grow(ctx: Context, topic: CreatePartitionsTopic, *, validate_only: bool) -> CreatePartitionsTopicResult:
    try:
        if not ctx.may(Operation.alter, Resource.topic(topic.name)):
            raise KafkaError(ErrorCode.topic_authorization_failed)
        assignment = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
        await ctx.broker.controller.create_partitions(topic.name, topic.count, assignment, validate_only=validate_only)
    except KafkaError as reason:
        return CreatePartitionsTopicResult(name=topic.name, error_code=reason.code, error_message=reason.message)
    return CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.none, error_message=None)


FORMS = (Form(0, 3, CreatePartitionsRequest, CreatePartitionsResponse, create_partitions),)
