"""Common parts of requests about share groups: the check that they are enabled, the partitions and
acknowledgements in ShareFetch and ShareAcknowledge, and the errors of topics whose offsets change.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast
from uuid import UUID

from kio.schema.types import BrokerId
from kio.static.primitive import i32

from ottla_broker.metadata.features import SHARE_VERSION
from ottla_broker.metadata.partition_index import TopicIdPartition
from ottla_broker.requests.api import catch_error
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.current_leader import leader_endpoints
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.share_groups.share_groups import ShareGroups
from ottla_broker.share_groups.share_partition import Acknowledgement, AcknowledgeType, check_acknowledgement
from ottla_broker.share_groups.share_sessions import ShareSession
from ottla_broker.wire.errors import NO_ERROR, ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID

T = TypeVar("T")

Acknowledgements = Mapping[TopicIdPartition, Sequence[Acknowledgement]]


def share_groups_of(ctx: RequestContext) -> ShareGroups:
    """The parts of the broker that serve share groups."""
    share_groups = ctx.broker.share_groups
    assert isinstance(share_groups, ShareGroups)
    return share_groups


async def close_session(ctx: RequestContext, session: ShareSession) -> None:
    """Closes the session, which the loss of its connection no longer ends."""
    ctx.connection.on_closed.pop((session.group_id, session.member_id), None)
    await share_groups_of(ctx).partitions.close_session(session)


def check_share_groups_served(ctx: RequestContext) -> None:
    """Raises UNSUPPORTED_VERSION while `share.version` is 0 and the broker's settings do not enable
    share groups.
    """
    broker = ctx.broker
    if not (broker.image.feature_level(SHARE_VERSION) or broker.group_coordinator.config.share.is_enabled):
        raise KafkaError(
            ErrorCode.unsupported_version, "share groups are not enabled: the feature share.version has level 0"
        )


def topic_error(ctx: RequestContext, topic: str) -> KafkaError:
    """Why the client may not change a group's offsets of a topic; NO_ERROR if it may."""
    if not ctx.is_authorized(Operation.read, Resource.topic(topic)):
        return KafkaError(ErrorCode.topic_authorization_failed)
    if topic not in ctx.broker.image.topics:
        return KafkaError(ErrorCode.unknown_topic_or_partition)
    return NO_ERROR


def are_all_unauthorized(errors: Collection[KafkaError]) -> bool:
    """True if the client may read none of the topics whose errors these are; False without
    topics.
    """
    return bool(errors) and all(error.code is ErrorCode.topic_authorization_failed for error in errors)


def check_member_named(group_id: str | None, member_id: str | None) -> None:
    """Raises INVALID_REQUEST unless the request has a group id and a member id."""
    if group_id is None or not member_id:
        raise KafkaError(ErrorCode.invalid_request, "a group id and a member id are required")


def requested_partitions(topics: Iterable[Any]) -> list[TopicIdPartition]:
    return [(topic.topic_id or NO_UUID, int(one.partition_index)) for topic in topics for one in topic.partitions]


def read_acknowledgements(topics: Iterable[Any]) -> Acknowledgements:
    return {
        (topic.topic_id or NO_UUID, int(one.partition_index)): [
            Acknowledgement(
                int(batch.first_offset), int(batch.last_offset), tuple(int(kind) for kind in batch.acknowledge_types)
            )
            for batch in one.acknowledgement_batches
        ]
        for topic in topics
        for one in topic.partitions
        if one.acknowledgement_batches
    }


def find_invalid(acknowledgements: Acknowledgements) -> dict[TopicIdPartition, KafkaError]:
    """The partitions whose acknowledgements are invalid, whether or not their records are known."""
    invalid = {}
    for at, given in acknowledgements.items():
        try:
            for one in given:
                check_acknowledgement(one)
        except KafkaError as reason:
            invalid[at] = reason
    return invalid


def find_unannounced_renewals(acknowledgements: Acknowledgements) -> dict[TopicIdPartition, KafkaError]:
    """The partitions in which a request renews locks, with the error for a request that has not
    announced renewals.
    """
    error = KafkaError(ErrorCode.invalid_request, "acknowledge type 4 (renew) needs IsRenewAck")
    return {
        at: error for at, given in acknowledgements.items() if any(AcknowledgeType.renew in one.types for one in given)
    }


def check_may_read(ctx: RequestContext, topic_id: UUID) -> None:
    """Raises UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED."""
    if (name := ctx.broker.image.topic_names.get(topic_id)) is None:
        raise KafkaError(ErrorCode.unknown_topic_id, "no topic has that id")
    ctx.check_authorized(Operation.read, Resource.topic(name))


def find_forbidden(ctx: RequestContext, partitions: Iterable[TopicIdPartition]) -> dict[TopicIdPartition, KafkaError]:
    """The partitions of topics that the client may not read, or that do not exist, with the error.
    A missing partition of an existing topic is not found here.
    """
    errors: dict[UUID, KafkaError] = {}
    partitions = list(partitions)
    for topic_id in dict.fromkeys(topic_id for topic_id, _ in partitions):
        try:
            check_may_read(ctx, topic_id)
        except KafkaError as reason:
            errors[topic_id] = reason
    return {at: errors[at[0]] for at in partitions if at[0] in errors}


async def acknowledge_all(
    ctx: RequestContext, group_id: str, member_id: str, acknowledgements: Acknowledgements, *, may_renew: bool
) -> dict[TopicIdPartition, KafkaError]:
    """The result for each partition, once it is stored; NO_ERROR without an error. `may_renew`: the
    request announces that it renews locks.
    """
    rejected = find_invalid(acknowledgements)
    if not may_renew:
        rejected |= find_unannounced_renewals(acknowledgements)
    rejected |= find_forbidden(ctx, acknowledgements)
    partitions = share_groups_of(ctx).partitions
    accepted = [at for at in acknowledgements if at not in rejected]
    results = await asyncio.gather(
        *(catch_error(partitions.acknowledge(group_id, member_id, at, acknowledgements[at])) for at in accepted)
    )
    return {**rejected, **dict(zip(accepted, results, strict=True))}


def build_endpoints(ctx: RequestContext, leaders: Iterable[int], endpoint: Callable[..., T]) -> tuple[T, ...]:
    """Endpoints of the current leaders in a response. `endpoint`: their class in the response."""
    return tuple(
        endpoint(node_id=BrokerId(cast(i32, one.broker)), host=one.host, port=cast(i32, one.port), rack=one.rack)
        for one in leader_endpoints(ctx, leaders)
    )
