"""Common parts of the requests of groups: their members, topics and protocols."""

from collections.abc import Collection

from ottla_broker.metadata.features import GROUP_VERSION
from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.errors import ErrorCode, KafkaError


def is_consumer_protocol_enabled(ctx: RequestContext) -> bool:
    """True if this broker's settings and the cluster's finalized feature enable the consumer
    protocol (KIP-848).
    """
    is_finalized = ctx.broker.image.feature_level(GROUP_VERSION) >= 1
    return is_finalized and ctx.broker.group_coordinator.config.consumer.is_enabled


def client_host(ctx: RequestContext) -> str:
    """The address of a member in Java's form, with a slash in front, which Kafka's tools show."""
    return f"/{ctx.connection.host}"


def check_not_blank(name: str, value: str | None) -> None:
    """Raises INVALID_REQUEST if the field is empty or has only blanks. None is allowed. `name`: of
    the field, for the message.
    """
    if value is not None and not value.strip():
        raise KafkaError(ErrorCode.invalid_request, f"{name} can't be empty.")


def check_may_describe(
    ctx: RequestContext,
    topics: Collection[str],
    message: str = "The group has described topic(s) that the client is not authorized to describe.",
) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED unless the client may describe all of these topics."""
    if not all(ctx.may(Operation.describe, Resource.topic(name)) for name in sorted(topics)):
        raise KafkaError(ErrorCode.topic_authorization_failed, message)
