"""Topics made by a controller itself, one at a time."""

from uuid import UUID

from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.wire.errors import ErrorCode, KafkaError


async def make_topic(controller: Controller, topic: NewTopic) -> UUID:
    """KafkaError when it is refused."""
    (made,) = await controller.create_topics([topic])
    if isinstance(made, KafkaError):
        raise made
    return made


async def ensure_topic(controller: Controller, topic: NewTopic) -> None:
    """The same, unless it is there."""
    try:
        await make_topic(controller, topic)
    except KafkaError as reason:
        if reason.code is not ErrorCode.topic_already_exists:
            raise
