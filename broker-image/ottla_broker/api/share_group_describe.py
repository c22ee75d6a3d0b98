"""ShareGroupDescribe (77), version 1 (KIP-932).

- Describes share groups: epochs, and members with their assigned partitions. Assigned topics that
  do not exist any more are omitted.
- A missing group, and one of another kind, is GROUP_ID_NOT_FOUND with a message.
- A group with a topic that the client may not describe is TOPIC_AUTHORIZATION_FAILED, without
  members.
"""

from typing import cast

from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from ottla_broker.coordination.share_group import ShareGroup, ShareMember
from ottla_broker.requests.api import Api, Right, build_error_response
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.group_requests import check_may_describe
from ottla_broker.requests.share_requests import check_share_groups_served
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.SHARE_GROUP_DESCRIBE,
    versions=(1, 1),
    flexible=1,
    rights=(
        Right(Operation.describe, ResourceType.group),
        Right(Operation.describe, ResourceType.topic, when="of all topics of the members"),
    ),
)

ASSIGNOR = "simple"


@API.handler()
async def share_group_describe(ctx: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(describe_group(ctx, group, request.include_authorized_operations) for group in request.group_ids),
    )


def describe_group(ctx: RequestContext, group_id: GroupId, include_operations: bool) -> DescribedGroup:
    resource = Resource.group(group_id)
    try:
        check_share_groups_served(ctx)
        ctx.check_authorized(Operation.describe, resource)
        group = ctx.broker.group_coordinator.share_groups_of(group_id).find_group(group_id)
        check_topics_authorized(ctx, group)
    except KafkaError as reason:
        return build_error_response(DescribedGroup, reason, group_id=group_id)
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state,
        group_epoch=cast(i32, group.epoch),
        assignment_epoch=cast(i32, group.assignment_epoch),
        assignor_name=ASSIGNOR,
        members=tuple(describe_member(ctx, member) for member in group.members.values()),
        authorized_operations=ctx.authorized_operations(resource, requested=include_operations),
    )


def check_topics_authorized(ctx: RequestContext, group: ShareGroup) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED unless the client may describe all topics of the
    members.
    """
    names = group.subscribed_topics()
    assigned = {topic for member in group.members.values() for topic in member.assigned}
    names.update(name for topic in assigned if (name := ctx.broker.image.topic_names.get(topic)) is not None)
    check_may_describe(ctx, names)


def describe_member(ctx: RequestContext, member: ShareMember) -> Member:
    names = ctx.broker.image.topic_names
    return Member(
        member_id=member.id,
        rack_id=member.rack_id,
        member_epoch=cast(i32, member.epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(TopicName(name) for name in member.subscribed_topic_names),
        assignment=Assignment(
            topic_partitions=tuple(
                TopicPartitions(
                    topic_id=topic,
                    topic_name=TopicName(names[topic]),
                    partitions=tuple(cast(i32, it) for it in sorted(partitions)),
                )
                for topic, partitions in sorted(member.assigned.items())
                if topic in names
            )
        ),
    )
