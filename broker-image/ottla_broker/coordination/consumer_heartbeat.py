"""The effect of a ConsumerGroupHeartbeat request on its consumer group (KIP-848). No I/O.

A heartbeat creates or updates its member, which may begin a new group epoch (`admit`). It computes
the target assignment of a new group epoch, and moves its own member one step towards the target
(`advance`). Other members move with their next heartbeats.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from ottla_broker.coordination import consumer_change
from ottla_broker.coordination.assignors import NO_PARTITIONS, Assignment
from ottla_broker.coordination.consumer_change import ConsumerChange
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_records import TargetAssignmentValue
from ottla_broker.coordination.consumer_member import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
    to_topic_partitions,
)
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import ConsumerGroupConfig
from ottla_broker.coordination.group_epoch import drop_unused_regex, update_member
from ottla_broker.coordination.group_type import CONSUMER
from ottla_broker.coordination.member_deadlines import schedule_revocation_timeout, schedule_session_timeout
from ottla_broker.coordination.protocol_errors import group_full_error, member_fenced_error
from ottla_broker.coordination.reconciliation import reconcile_member
from ottla_broker.coordination.target_assignment import update_target_assignment
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


def may_describe_all(_: str) -> bool:
    return True


class ConsumerHeartbeat(NamedTuple):
    """A member's heartbeat request. None, and −1 for the timeout, mean unchanged since its last
    heartbeat. `may_describe`: true if the client may see the topic of this name."""

    member_id: str
    member_epoch: int
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""
    may_describe: Callable[[str], bool] = may_describe_all

    @property
    def is_epoch_only(self) -> bool:
        """True if the member says nothing but its epoch."""
        return (
            self.rebalance_timeout_ms == -1
            and self.subscribed_topic_names is None
            and self.subscribed_topic_regex is None
            and self.server_assignor is None
            and self.rack_id is None
            and self.owned is None
        )

    def with_epoch(self, member_epoch: int) -> "ConsumerHeartbeat":
        """The same heartbeat with another epoch. Only for one that `is_epoch_only`."""
        return ConsumerHeartbeat(
            self.member_id,
            member_epoch,
            self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            may_describe=self.may_describe,
        )

    @property
    def is_full(self) -> bool:
        """True if the member says everything, as in its first heartbeat and in the one after an
        error."""
        has_subscription = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None


class HeartbeatResult(NamedTuple):
    """`assignment`: the partitions that the member may consume; None when that has not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


class AdmittedMember(NamedTuple):
    """A member that has been created or updated by its heartbeat. `assigned`: its partitions before
    the heartbeat."""

    member_id: str
    assigned: Assignment
    has_subscription_changed: bool


def heartbeat(
    change: ConsumerChange,
    request: ConsumerHeartbeat,
    metadata: CoordinatorMetadata,
    config: ConsumerGroupConfig,
    now: Timestamps,
) -> HeartbeatResult:
    """The member's result. Raises the errors of `admit` and `advance`."""
    admitted = admit(change, request, metadata, config, now)
    update_target_assignment(change, metadata, config, now)
    return advance(change, request, admitted, metadata, config, now)


def admit(
    change: ConsumerChange,
    request: ConsumerHeartbeat,
    metadata: CoordinatorMetadata,
    config: ConsumerGroupConfig,
    now: Timestamps,
) -> AdmittedMember:
    """Creates or updates the member, and begins a new group epoch where that is needed. Raises
    GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID,
    FENCED_INSTANCE_ID, INVALID_REGULAR_EXPRESSION."""
    group = change.group
    check_room(group, request.member_id, request.group_instance_id, config)
    member = _find_or_create_member(change, request)
    is_new = member.id not in group.members
    updated = _with_sent_fields(member, request)
    if is_new:
        logger.info("group %s: member %s joins", group.id, updated.id)
    has_changed = update_member(change, member, updated, metadata, request.may_describe, config, now)
    return AdmittedMember(updated.id, member.assigned, has_changed)


def advance(
    change: ConsumerChange,
    request: ConsumerHeartbeat,
    admitted: AdmittedMember,
    metadata: CoordinatorMetadata,
    config: ConsumerGroupConfig,
    now: Timestamps,
) -> HeartbeatResult:
    """Moves the member one step towards its target. Raises FENCED_MEMBER_EPOCH."""
    group = change.group
    member = group.members[admitted.member_id]
    after = reconcile(change, member, metadata, request.owned, admitted.has_subscription_changed)
    deadlines = group.deadlines_of(after.id)
    deadlines.join = deadlines.sync = None  # of a member that used the classic protocol until now
    schedule_session_timeout(group, after, config.session_timeout_ms, now)
    schedule_revocation_timeout(group, after, now)
    includes_assignment = (
        request.member_epoch == JOINING_EPOCH or request.is_full or after.assigned != admitted.assigned
    )
    return HeartbeatResult(
        after.id, after.epoch, config.heartbeat_interval_ms, after.assigned if includes_assignment else None
    )


def changes_nothing(group: ConsumerGroup, member_id: str, member_epoch: int, metadata: CoordinatorMetadata) -> bool:
    """True if a heartbeat in which the member says no more than its epoch changes neither the group
    nor the member. False for a group with regular expressions, which may have to be evaluated
    again."""
    member = group.members.get(member_id)
    return (
        member is not None
        and member.epoch == member_epoch == group.assignment_epoch == group.epoch
        and member.state is MemberState.stable
        and member.classic is None
        and group.metadata_version == metadata.version
        and not group.regular_expressions
        and not group.subscriptions.regular_expressions
    )


def _with_sent_fields(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """The member itself if nothing has changed, as in nearly all heartbeats."""
    is_same_client = request.client_id == member.client_id and request.client_host == member.client_host
    is_same_instance = request.group_instance_id == member.group_instance_id
    if request.is_epoch_only and is_same_client and is_same_instance and member.classic is None:
        return member
    names = request.subscribed_topic_names
    sent: dict[str, object] = {
        "group_instance_id": request.group_instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        "server_assignor": request.server_assignor,
        "subscribed_topic_names": None if names is None else tuple(sorted(set(names))),
        "subscribed_topic_regex": request.subscribed_topic_regex,
        "client_id": request.client_id,
        "client_host": request.client_host,
    }
    changed: dict[str, Any] = {
        name: value for name, value in sent.items() if value is not None and value != getattr(member, name)
    }
    if member.classic is not None:
        changed["classic"] = None
    return member._replace(**changed) if changed else member


def check_room(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None, config: ConsumerGroupConfig
) -> None:
    """Raises GROUP_MAX_SIZE_REACHED for a member that is not in a full group yet. A static member
    that returns under a new id takes no more room (KAFKA-20601).
    """
    is_known = member_id in group.members or group_instance_id in group.static_members
    if len(group.members) >= config.max_size and not is_known:
        raise group_full_error(CONSUMER, config.max_size)


# -- the member ------------------------------------------------------------------------------------


def _find_or_create_member(change: ConsumerChange, request: ConsumerHeartbeat) -> ConsumerMember:
    group = change.group
    is_joining = request.member_epoch == JOINING_EPOCH
    if request.group_instance_id is None:
        member = group.members.get(request.member_id) if is_joining else group.find_member(request.member_id)
        member = member or ConsumerMember(request.member_id)
    elif is_joining:
        return find_or_replace_static_member(
            change, request.member_id, request.group_instance_id, uses_classic_protocol=False
        )
    else:
        member = group.find_static_member(request.member_id, request.group_instance_id)
    _check_epoch(member, request)
    return member


def find_or_replace_static_member(
    change: ConsumerChange, member_id: str, group_instance_id: str, *, uses_classic_protocol: bool
) -> ConsumerMember:
    """The member of this instance id under this member id. A former holder is replaced if it has
    left, or if it and the new one do not both use the consumer protocol; otherwise raises
    UNRELEASED_INSTANCE_ID."""
    group = change.group
    if (holder_id := group.static_members.get(group_instance_id)) is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    holder = group.members[holder_id]
    if not uses_classic_protocol and holder.classic is None and holder.epoch != STATIC_LEAVING_EPOCH:
        raise KafkaError(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {group_instance_id} cannot join the group because the "
            f"instance id is owned by {holder_id} member.",
        )
    target = group.targets.get(holder_id, NO_PARTITIONS)
    replacement = holder._replace(id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    consumer_change.remove_member(change, holder_id)
    consumer_change.write_member(change, replacement)
    consumer_change.write_target(change, member_id, TargetAssignmentValue(to_topic_partitions(target)))
    consumer_change.write_assignment(change, replacement)
    logger.info("group %s: static member %s rejoins as %s", group.id, group_instance_id, member_id)
    return group.members[member_id]


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """Raises FENCED_MEMBER_EPOCH for an epoch that the member cannot be in. The previous one is
    accepted from a member that may have lost the response which raised it.
    """
    epoch = request.member_epoch
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    lost_response = epoch == member.previous_epoch and _is_subset(request.owned, member.assigned)
    if epoch < member.epoch and lost_response:
        return
    raise member_fenced_error(CONSUMER, epoch, member.epoch)


def _is_subset(owned: Assignment | None, assigned: Assignment) -> bool:
    return owned is not None and all(
        partitions <= assigned.get(topic, frozenset()) for topic, partitions in owned.items()
    )


# -- assignment ------------------------------------------------------------------------------------


def reconcile(
    change: ConsumerChange,
    member: ConsumerMember,
    metadata: CoordinatorMetadata,
    owned: Assignment | None,
    has_subscription_changed: bool,
) -> ConsumerMember:
    """Moves the member one step towards its target. Raises FENCED_MEMBER_EPOCH."""
    group = change.group
    if member.is_reconciled_to(group.assignment_epoch) and not has_subscription_changed:
        return member
    after = reconcile_member(
        member,
        target=group.targets.get(member.id, NO_PARTITIONS),
        target_epoch=group.assignment_epoch,
        owners=group.owners,
        subscribed=_subscribed_topic_ids(group, member, metadata),
        owned=owned,
        has_subscription_changed=has_subscription_changed,
    )
    if after is not member and after != member:
        consumer_change.write_assignment(change, after)
    return after


def _subscribed_topic_ids(
    group: ConsumerGroup, member: ConsumerMember, metadata: CoordinatorMetadata
) -> frozenset[UUID]:
    if member.subscribed_topic_regex:
        return metadata.topic_ids(group.topics_of_subscription(member.subscription))
    return metadata.subscribed_topic_ids(member.subscribed_topic_names)


# -- leaving ---------------------------------------------------------------------------------------


def find_leaving_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
    """Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if request.group_instance_id is None:
        return group.find_member(request.member_id)
    return group.find_static_member(request.member_id, request.group_instance_id)


def leave_for_restart(change: ConsumerChange, member: ConsumerMember) -> HeartbeatResult:
    """A static member keeps its assignment, and its instance id can be taken over, until its
    session ends."""
    consumer_change.write_assignment(
        change, member._replace(epoch=STATIC_LEAVING_EPOCH, pending_revocation=NO_PARTITIONS)
    )
    return HeartbeatResult(member.id, STATIC_LEAVING_EPOCH)


def fence_members(change: ConsumerChange, member_ids: list[str], metadata: CoordinatorMetadata) -> None:
    """Removes members, whose partitions are free at once, and begins a new group epoch."""
    group = change.group
    expressions = {group.members[member_id].subscribed_topic_regex for member_id in member_ids}
    for member_id in member_ids:
        consumer_change.remove_member(change, member_id)
    for expression in expressions:
        drop_unused_regex(change, expression)
    consumer_change.write_epoch(change, group.epoch + 1, metadata.hash_topics(group.subscribed_topics()))
    if not group.members:
        group.assigned_ms = None
