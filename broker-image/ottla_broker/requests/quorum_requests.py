"""What the handlers of requests between replicas of the metadata log share."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from kio.schema.types import TopicName

from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorizer import CLUSTER, Operation
from ottla_broker.wire.errors import ErrorCode, KafkaError

P = TypeVar("P")


def authorize(ctx: RequestContext, operation: Operation = Operation.cluster_action) -> None:
    """CLUSTER_AUTHORIZATION_FAILED."""
    if not ctx.is_authorized(operation, CLUSTER):
        raise KafkaError(ErrorCode.cluster_authorization_failed)


def metadata_partition(topics: Iterable[tuple[TopicName, Sequence[P]]]) -> tuple[TopicName, P]:
    """The one partition of the metadata log in a request; INVALID_REQUEST without it, as in Kafka."""
    for topic, partitions in topics:
        if topic == METADATA_TOPIC and partitions:
            return topic, partitions[0]
    raise KafkaError(ErrorCode.invalid_request, f"the request names no partition of {METADATA_TOPIC}")
