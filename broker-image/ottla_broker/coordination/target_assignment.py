"""The target assignment of a consumer group (KIP-848). No I/O."""

import logging
from collections.abc import Mapping
from uuid import UUID

from ottla_broker.coordination import consumer_change
from ottla_broker.coordination.assignment_interval import may_assign
from ottla_broker.coordination.assignors import ASSIGNORS, NO_PARTITIONS, UNIFORM, AssignableMember, Assignment
from ottla_broker.coordination.consumer_change import ConsumerChange
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_records import TargetAssignmentValue
from ottla_broker.coordination.consumer_member import to_topic_partitions
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import ConsumerGroupConfig
from ottla_broker.coordination.subscription_counts import TopicSubscription
from ottla_broker.coordination.uniform_balance import UniformBalance

logger = logging.getLogger(__name__)


def update_target_assignment(
    change: ConsumerChange, metadata: CoordinatorMetadata, config: ConsumerGroupConfig, now: Timestamps
) -> None:
    """Computes the target assignment of a new group epoch, unless the assignment interval is
    running."""
    group = change.group
    is_outdated = group.epoch > group.assignment_epoch
    if is_outdated and may_assign(group.assigned_ms, config.assignment_interval_ms, now.loop_ms):
        _compute_target_assignment(change, metadata, config)
        group.assigned_ms = now.loop_ms


def _compute_target_assignment(
    change: ConsumerChange, metadata: CoordinatorMetadata, config: ConsumerGroupConfig
) -> None:
    """Writes the targets that change, then the assignment epoch."""
    group = change.group
    name = group.subscriptions.preferred_assignor(config.assignors[0])
    topics_of = {
        subscription: metadata.topic_ids(group.topics_of_subscription(subscription))
        for subscription in group.subscriptions
    }
    counts = {topic: metadata.partition_count(topic) for topic in frozenset().union(*topics_of.values())}
    can_balance = name == UNIFORM and len(topics_of) == 1
    if not can_balance or (group.balance is not None and not group.balance.is_valid(counts)):
        group.balance = None
    targets = (
        _assign_all(group, name, topics_of, counts) if group.balance is None else group.balance.rebalance(group.targets)
    )
    for member_id, target in targets.items():
        known = group.targets.get(member_id)
        if known is not target and known != target:
            consumer_change.write_target(change, member_id, TargetAssignmentValue(to_topic_partitions(target)))
    if can_balance and group.balance is None:
        group.balance = UniformBalance(group.members, group.targets, counts)
    consumer_change.write_assignment_epoch(change, group.epoch)
    logger.info("group %s: target assignment of epoch %d computed by assignor %s", group.id, group.epoch, name)


def _assign_all(
    group: ConsumerGroup,
    assignor: str,
    topics_of: Mapping[TopicSubscription, frozenset[UUID]],
    counts: Mapping[UUID, int],
) -> dict[str, Assignment]:
    """The targets of all members."""
    members = {
        member.id: AssignableMember(
            topics_of[member.subscription], group.targets.get(member.id, NO_PARTITIONS), member.group_instance_id
        )
        for member in group.members.values()
    }
    return ASSIGNORS[assignor](members, counts) if members else {}
