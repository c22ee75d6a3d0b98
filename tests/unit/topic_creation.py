"""Topics that a controller of the test creates, one at a time."""

from uuid import UUID

from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.wire.errors import ErrorCode, KafkaError


async def create_topic(controller: Controller, topic: NewTopic) -> UUID:
    """Returns the topic id. Raises KafkaError if the controller rejects the topic."""
    (result,) = await controller.create_topics([topic])
    if isinstance(result, KafkaError):
        raise result
    return result


async def ensure_topic(controller: Controller, topic: NewTopic) -> None:
    """Creates the topic unless it exists."""
    try:
        await create_topic(controller, topic)
    except KafkaError as reason:
        if reason.code is not ErrorCode.topic_already_exists:
            raise
