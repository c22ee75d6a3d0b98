"""ConsumerGroupDescribe (69), versions 0–1 (KIP-848).

- Describes consumer groups: epochs, assignor, and members with their current and target assignment.
  Assigned topics that no longer exist are omitted.
- A missing group, and a classic one, is GROUP_ID_NOT_FOUND with a message. Then clients ask
  DescribeGroups.
- A group with a topic that the client may not describe is TOPIC_AUTHORIZATION_FAILED, without
  members.
- UNSUPPORTED_VERSION where the consumer protocol is not enabled.
- v1 adds whether a member uses the classic or the consumer protocol.
"""

from typing import cast

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32

from ottla_broker.coordination.assignors import NO_PARTITIONS
from ottla_broker.coordination.assignors import Assignment as PartitionsByTopic
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_member import ConsumerMember
from ottla_broker.requests.api import Api, Right, build_error_response
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.group_requests import check_may_describe, is_consumer_protocol_enabled
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    versions=(0, 1),
    flexible=0,
    rights=(
        Right(Operation.describe, ResourceType.group),
        Right(Operation.describe, ResourceType.topic, when="of all topics of the members"),
    ),
)

CLASSIC_MEMBER, CONSUMER_MEMBER = i8(0), i8(1)


@API.handler()
async def consumer_group_describe(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(describe_group(ctx, group, request.include_authorized_operations) for group in request.group_ids),
    )


def describe_group(ctx: RequestContext, group_id: GroupId, include_operations: bool) -> DescribedGroup:
    resource = Resource.group(group_id)
    try:
        if not is_consumer_protocol_enabled(ctx):
            raise KafkaError(ErrorCode.unsupported_version)
        ctx.check_authorized(Operation.describe, resource)
        group = ctx.broker.group_coordinator.consumer_groups_of(group_id).find_group(group_id)
        check_topics_authorized(ctx, group)
    except KafkaError as reason:
        return build_error_response(DescribedGroup, reason, group_id=group_id)
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state,
        group_epoch=cast(i32, group.epoch),
        assignment_epoch=cast(i32, group.assignment_epoch),
        assignor_name=group.subscriptions.preferred_assignor(ctx.broker.group_coordinator.config.consumer.assignors[0]),
        members=tuple(describe_member(ctx, group, member) for member in group.members.values()),
        authorized_operations=ctx.authorized_operations(resource, requested=include_operations),
    )


def check_topics_authorized(ctx: RequestContext, group: ConsumerGroup) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED if the client may not describe one of the group's
    topics.
    """
    names = {name for member in group.members.values() for name in member.subscribed_topic_names}
    topics = {topic for member in group.members.values() for topic in {**member.assigned, **member.pending_revocation}}
    topics.update(topic for target in group.targets.values() for topic in target)
    names.update(name for topic in topics if (name := ctx.broker.image.topic_names.get(topic)) is not None)
    check_may_describe(ctx, names)


def describe_member(ctx: RequestContext, group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.id,
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        member_epoch=cast(i32, member.epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(TopicName(name) for name in member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=describe_assignment(ctx, member.assigned),
        target_assignment=describe_assignment(ctx, group.targets.get(member.id, NO_PARTITIONS)),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def describe_assignment(ctx: RequestContext, assignment: PartitionsByTopic) -> Assignment:
    names = ctx.broker.image.topic_names
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(
                topic_id=topic,
                topic_name=TopicName(names[topic]),
                partitions=tuple(cast(i32, it) for it in sorted(partitions)),
            )
            for topic, partitions in sorted(assignment.items())
            if topic in names
        )
    )
