"""The resources that have configs, and who may describe or alter them."""

from collections.abc import Mapping
from enum import IntEnum

from ottla_broker.metadata.image import (
    CLIENT_METRICS_RESOURCE,
    CREDENTIALS_RESOURCE,
    GROUP_RESOURCE,
    MIRROR_RESOURCE,
    MIRRORED_TOPIC_RESOURCE,
)
from ottla_broker.metadata.topic_names import validate_topic_name
from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.security.principal import ANONYMOUS
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.pipeline_report import PIPELINE_RESOURCE
from ottla_broker.wire.roll_report import ROLL_RESOURCE


class ConfigResource(IntEnum):
    """The codes of Kafka's `org.apache.kafka.common.config.ConfigResource.Type`, which are powers
    of two, and Ottla's: a mirror; a mirrored topic, of which brokers report the status to each
    other; a user's SCRAM credentials, which mirrors copy; and the reports of a pipeline and of a
    rolling restart."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = CLIENT_METRICS_RESOURCE
    GROUP = GROUP_RESOURCE
    MIRROR = MIRROR_RESOURCE
    MIRRORED_TOPIC = MIRRORED_TOPIC_RESOURCE
    CREDENTIALS = CREDENTIALS_RESOURCE
    PIPELINE = PIPELINE_RESOURCE
    ROLL = ROLL_RESOURCE


def check_authorized(ctx: RequestContext, operation: Operation, kind: int, name: str) -> None:
    """Raises TOPIC_, GROUP_, CLUSTER_ or DELEGATION_TOKEN_AUTHORIZATION_FAILED, and INVALID_REQUEST
    for a kind without configs and for a change of credentials. `operation`: DESCRIBE_CONFIGS or
    ALTER_CONFIGS.
    """
    match kind:
        case ConfigResource.TOPIC:
            ctx.check_authorized(operation, Resource.topic(name))
        case ConfigResource.MIRRORED_TOPIC if operation is Operation.describe_configs:
            ctx.check_authorized(operation, Resource.topic(name))
        case ConfigResource.MIRRORED_TOPIC:
            ctx.check_authorized(Operation.cluster_action, CLUSTER)
        case ConfigResource.CREDENTIALS if operation is Operation.describe_configs:
            check_credentials_authorized(ctx, name)
        case ConfigResource.CREDENTIALS:
            raise KafkaError(ErrorCode.invalid_request, "credentials are altered with AlterUserScramCredentials")
        case ConfigResource.GROUP:
            ctx.check_authorized(operation, Resource.group(name))
        case (
            ConfigResource.BROKER
            | ConfigResource.BROKER_LOGGER
            | ConfigResource.CLIENT_METRICS
            | ConfigResource.MIRROR
            | ConfigResource.PIPELINE
            | ConfigResource.ROLL
        ):
            ctx.check_authorized(operation, CLUSTER)
        case _:
            kinds = ", ".join(f"{kind.value} ({kind.name.lower()})" for kind in ConfigResource)
            raise KafkaError(ErrorCode.invalid_request, f"resource type {kind} has no configs; allowed: {kinds}")


def check_credentials_authorized(ctx: RequestContext, user: str) -> None:
    """Raises DELEGATION_TOKEN_AUTHORIZATION_FAILED unless the client has logged in and may describe
    the user's delegation tokens. Such a client could log in as the user, so it may read the user's
    salted passwords too.
    """
    if ctx.connection.principal == ANONYMOUS:
        reason = "credentials are described to clients that have logged in"
        raise KafkaError(ErrorCode.delegation_token_authorization_failed, reason)
    ctx.check_authorized(Operation.describe_tokens, Resource(ResourceType.user, f"User:{user}"))


def check_topic_exists(ctx: RequestContext, name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION or UNKNOWN_TOPIC_OR_PARTITION."""
    validate_topic_name(name)
    if name not in ctx.broker.image.topics:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")


def check_is_this_broker(ctx: RequestContext, name: str) -> None:
    """Raises INVALID_REQUEST if the name is that of another broker, which alone knows its settings
    and loggers."""
    if parse_broker_id(name) != ctx.broker.node_id:
        raise KafkaError(
            ErrorCode.invalid_request, f"this is broker {ctx.broker.node_id}; send this request to broker {name!r}"
        )


def parse_broker_id(name: str) -> int:
    """The broker that a resource names. Raises INVALID_REQUEST."""
    if not (name.isascii() and name.isdigit()):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"{name!r} is not a broker id; allowed: a number, or an empty name for configs of all brokers",
        )
    return int(name)


def current_configs(ctx: RequestContext, kind: int, name: str) -> Mapping[str, str]:
    """The configs of a resource that are set in the metadata."""
    return ctx.broker.image.configs.get((kind, name), {})
