"""Common parts of the requests that brokers send to the share coordinator."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ottla_broker.requests.api import catch_error
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.share_requests import share_groups_of
from ottla_broker.security.authorizer import CLUSTER, Operation
from ottla_broker.share_groups.share_coordinator import ShareCoordinator
from ottla_broker.share_groups.share_state import SharePartitionKey
from ottla_broker.wire.message_schema import NO_UUID

T = TypeVar("T")


def share_coordinator_of(ctx: RequestContext) -> ShareCoordinator:
    """Raises CLUSTER_AUTHORIZATION_FAILED, which is the error of each partition in the request."""
    ctx.check_authorized(Operation.cluster_action, CLUSTER)
    return share_groups_of(ctx).coordinator


async def answer_each(
    request: Any, answer: Callable[[SharePartitionKey, Any], Awaitable[object]], topic_result: Callable[..., T]
) -> tuple[T, ...]:
    """The results of the topics in a request. Its share-partitions are answered one by one.

    `topic_result`: class of the result of a topic.
    """
    return tuple(
        [
            topic_result(
                topic_id=topic.topic_id,
                partitions=tuple(
                    [
                        await answer(
                            SharePartitionKey(request.group_id, topic.topic_id or NO_UUID, requested.partition),
                            requested,
                        )
                        for requested in topic.partitions
                    ]
                ),
            )
            for topic in request.topics
        ]
    )


async def change_each(
    request: Any,
    change: Callable[[SharePartitionKey, Any], Awaitable[object]],
    topic_result: Callable[..., T],
    partition_result: Callable[..., object],
) -> tuple[T, ...]:
    """Like `answer_each`, for changes: the result of a share-partition is the error of its
    change.
    """

    async def answer(key: SharePartitionKey, requested: Any) -> object:
        error = await catch_error(change(key, requested))
        return partition_result(partition=requested.partition, error_code=error.code, error_message=error.message)

    return await answer_each(request, answer, topic_result)
