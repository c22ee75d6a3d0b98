"""Authorization of the topics in descriptions of groups."""

from collections.abc import Collection

from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.errors import ErrorCode, KafkaError


def check_topics_described(
    ctx: RequestContext,
    names: Collection[str],
    message: str = "The group has described topic(s) that the client is not authorized to describe.",
) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED unless the client may describe all of these topics."""
    if not all(ctx.may(Operation.describe, Resource.topic(name)) for name in sorted(names)):
        raise KafkaError(ErrorCode.topic_authorization_failed, message)
