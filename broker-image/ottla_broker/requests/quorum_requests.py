"""Functions that the handlers of requests between replicas of the metadata log share."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from kio.schema.types import TopicName

from ottla_broker.config import CONTROLLER_QUORUM_AUTO_JOIN_ENABLE
from ottla_broker.metadata.image import BROKER_RESOURCE
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.errors import ErrorCode, KafkaError

P = TypeVar("P")


def metadata_partition(topics: Iterable[tuple[TopicName, Sequence[P]]]) -> tuple[TopicName, P]:
    """The metadata log's topic and partition in a request. Raises INVALID_REQUEST without them, as
    Kafka does.
    """
    for topic, partitions in topics:
        if topic == METADATA_TOPIC and partitions:
            return topic, partitions[0]
    raise KafkaError(ErrorCode.invalid_request, f"the request names no partition of {METADATA_TOPIC}")


def check_cluster_id(ctx: RequestContext, cluster_id: str | None) -> None:
    """Raises INCONSISTENT_CLUSTER_ID for the id of another cluster. None is allowed."""
    if cluster_id not in (None, ctx.broker.cluster_id):
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id, f"the request is for cluster {cluster_id}, not {ctx.broker.cluster_id}"
        )


async def set_auto_join(ctx: RequestContext, broker: int, value: str | None) -> None:
    """Sets `controller.quorum.auto.join.enable` of one broker; None removes it. The value is kept
    in the metadata log, so that the next leader knows it too.
    """
    changes = {CONTROLLER_QUORUM_AUTO_JOIN_ENABLE.name: value}
    await ctx.broker.active_controller().alter_configs(BROKER_RESOURCE, str(broker), changes)
