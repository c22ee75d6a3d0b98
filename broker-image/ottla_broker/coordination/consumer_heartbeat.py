"""The effect of a ConsumerGroupHeartbeat request on its consumer group (KIP-848). No I/O.

A heartbeat creates or updates its member, which may begin a new group epoch. It computes the target
assignment of a new group epoch, and moves its own member one step towards the target. Other members
move with their next heartbeats.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ottla_broker.coordination import consumer_change
from ottla_broker.coordination.assignors import NO_PARTITIONS, Assignment
from ottla_broker.coordination.consumer_change import ConsumerChange
from ottla_broker.coordination.consumer_group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    to_topic_partitions,
)
from ottla_broker.coordination.consumer_group_records import (
    RegularExpressionKey,
    RegularExpressionValue,
    TargetAssignmentValue,
)
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import ConsumerGroupConfig
from ottla_broker.coordination.reconciliation import reconcile_member
from ottla_broker.coordination.target_assignment import update_target_assignment
from ottla_broker.coordination.topic_regex import check_regular_expression, matching_topics
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

REGEX_MIN_REFRESH_MS = 10_000
"""How often a group's regular expressions are evaluated again, at most."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
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
    may_describe: Callable[[str], bool] = lambda _: True

    @property
    def is_full(self) -> bool:
        has_subscription = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """`assignment`: the partitions that the member may consume; None when that has not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


def heartbeat(
    change: ConsumerChange,
    request: ConsumerHeartbeat,
    metadata: CoordinatorMetadata,
    config: ConsumerGroupConfig,
    now: Timestamps,
) -> HeartbeatResult:
    """The member's result. Raises GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
    UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID, INVALID_REGULAR_EXPRESSION."""
    group = change.group
    check_room(group, request.member_id, request.group_instance_id, config)
    member = _find_or_create_member(change, request)
    is_new = member.id not in group.members
    updated = _with_sent_fields(member, request)
    if is_new:
        logger.info("group %s: member %s joins", group.id, updated.id)
    has_changed = update_member(change, member, updated, metadata, request.may_describe, config, now)
    update_target_assignment(change, metadata, config, now)
    after = reconcile(change, group.members[updated.id], metadata, request.owned, has_changed)
    deadlines = group.deadlines_of(after.id)
    deadlines.join = deadlines.sync = None  # of a member that used the classic protocol until now
    schedule_session_timeout(group, after, config.session_timeout_ms, now)
    schedule_revocation_timeout(group, after, now)
    is_told = request.member_epoch == JOINING_EPOCH or request.is_full or after.assigned != member.assigned
    return HeartbeatResult(after.id, after.epoch, config.heartbeat_interval_ms, after.assigned if is_told else None)


def changes_nothing(group: ConsumerGroup, member_id: str, member_epoch: int, metadata: CoordinatorMetadata) -> bool:
    """True if a heartbeat in which the member says no more than its epoch changes neither the group
    nor the member. Regular expressions may have to be evaluated again."""
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
    return replace(member, **changed) if changed else member


def check_room(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None, config: ConsumerGroupConfig
) -> None:
    """Raises GROUP_MAX_SIZE_REACHED for a member that is not in a full group yet. A static member
    that returns under a new id takes no more room (KAFKA-20601).
    """
    is_known = member_id in group.members or group_instance_id in group.static_members
    if len(group.members) >= config.max_size and not is_known:
        raise KafkaError(
            ErrorCode.group_max_size_reached,
            f"The consumer group has reached its maximum capacity of {config.max_size} members.",
        )


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
    replacement = replace(holder, id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
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
    kind = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {kind} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Assignment | None, assigned: Assignment) -> bool:
    return owned is not None and all(
        partitions <= assigned.get(topic, frozenset()) for topic, partitions in owned.items()
    )


# -- subscriptions and the group epoch -------------------------------------------------------------


def update_member(
    change: ConsumerChange,
    member: ConsumerMember,
    updated: ConsumerMember,
    metadata: CoordinatorMetadata,
    may_describe: Callable[[str], bool],
    config: ConsumerGroupConfig,
    now: Timestamps,
) -> bool:
    """Writes the member if it is new or has changed, and a new group epoch if subscriptions or
    subscribed topics have changed. Returns whether the member's subscription has changed."""
    group = change.group
    if updated is not member or updated.id not in group.members:
        consumer_change.write_member(change, updated)
    has_new_names = updated.subscribed_topic_names != member.subscribed_topic_names
    has_new_regex = updated.subscribed_topic_regex != member.subscribed_topic_regex
    if has_new_regex:
        _drop_unused_regex(change, member.subscribed_topic_regex)
        check_regular_expression(updated.subscribed_topic_regex)
    has_regex = bool(updated.subscribed_topic_regex)
    topics_changed = _refresh_regular_expressions(change, metadata, may_describe, config, now, has_regex=has_regex)
    has_changed = has_new_names or has_new_regex
    if has_changed or topics_changed or group.epoch == 0 or group.metadata_version != metadata.version:
        _maybe_raise_epoch(change, metadata, must_raise=has_changed or topics_changed or group.epoch == 0)
    return has_changed


def _maybe_raise_epoch(change: ConsumerChange, metadata: CoordinatorMetadata, *, must_raise: bool) -> None:
    group = change.group
    metadata_hash = metadata.hash_topics(group.subscribed_topics())
    if must_raise or metadata_hash != group.metadata_hash:
        consumer_change.write_epoch(change, group.epoch + 1, metadata_hash)
        logger.info("group %s: epoch %d begins", group.id, group.epoch)
    group.metadata_version = metadata.version


def _drop_unused_regex(change: ConsumerChange, expression: str) -> None:
    group = change.group
    if (
        expression
        and expression in group.regular_expressions
        and expression not in group.subscriptions.regular_expressions
    ):
        change.write(RegularExpressionKey(group.id, expression), None)


def _refresh_regular_expressions(
    change: ConsumerChange,
    metadata: CoordinatorMetadata,
    may_describe: Callable[[str], bool],
    config: ConsumerGroupConfig,
    now: Timestamps,
    *,
    has_regex: bool,
) -> bool:
    """Finds the topics of the group's regular expressions when one is new, when topics have
    changed, or after `group.consumer.regex.refresh.interval.ms`. Returns whether any has other
    topics than before. Topics are those that the member whose heartbeat this is may describe.
    `has_regex`: that member has one."""
    group = change.group
    if not has_regex and not group.regular_expressions:
        return False
    if not (wanted := group.subscriptions.regular_expressions):
        return False
    age_ms = now.wall_ms - group.regex_resolved_ms
    is_due = age_ms > config.regex_refresh_interval_ms or (
        group.regex_metadata_version != metadata.version and age_ms > REGEX_MIN_REFRESH_MS
    )
    outdated = wanted if is_due else wanted - group.regular_expressions.keys()
    has_changed = False
    for expression in sorted(outdated):
        topics = tuple(sorted(matching_topics(expression, metadata.topic_names(), may_describe)))
        known = group.regular_expressions.get(expression)
        has_changed = has_changed or topics != (() if known is None else known.topics)
        if known is None or topics != known.topics:
            value = RegularExpressionValue(topics, metadata.version, now.wall_ms)
            change.write(RegularExpressionKey(group.id, expression), value)
    if is_due:
        group.regex_metadata_version, group.regex_resolved_ms = metadata.version, now.wall_ms
    return has_changed


# -- assignment ------------------------------------------------------------------------------------


def reconcile(
    change: ConsumerChange,
    member: ConsumerMember,
    metadata: CoordinatorMetadata,
    owned: Assignment | None,
    has_subscription_changed: bool,
) -> ConsumerMember:
    """Moves the member one step towards its target."""
    group = change.group
    if member.is_reconciled_to(group.assignment_epoch) and not has_subscription_changed:
        return member
    after = reconcile_member(
        member,
        target=group.targets.get(member.id, NO_PARTITIONS),
        target_epoch=group.assignment_epoch,
        owners=group.owners,
        subscribed=metadata.topic_ids(group.topics_of_subscription(member.subscription)),
        owned=owned,
        has_subscription_changed=has_subscription_changed,
    )
    if after != member:
        consumer_change.write_assignment(change, after)
    return after


# -- deadlines -------------------------------------------------------------------------------------


def schedule_session_timeout(group: ConsumerGroup, member: ConsumerMember, timeout_ms: int, now: Timestamps) -> None:
    deadlines = group.deadlines_of(member.id)
    deadlines.session = now.loop_ms + timeout_ms
    group.lower_next_deadline(deadlines.session)


def schedule_revocation_timeout(group: ConsumerGroup, member: ConsumerMember, now: Timestamps) -> None:
    """A member must give up its partitions within its rebalance timeout, counted from when it was
    asked to in this epoch."""
    deadlines = group.deadlines_of(member.id)
    if member.state is not MemberState.unrevoked_partitions or member.classic is not None:
        deadlines.revocation = None
    elif deadlines.revocation is None or deadlines.revocation_epoch != member.epoch:
        deadlines.revocation, deadlines.revocation_epoch = now.loop_ms + member.rebalance_timeout_ms, member.epoch
        group.lower_next_deadline(deadlines.revocation)


def take_expired_members(group: ConsumerGroup, now: Timestamps) -> dict[str, str]:
    """Members one of whose deadlines has passed, each with the reason. Finds the next deadline of
    the others."""
    expired: dict[str, str] = {}
    for member_id, deadlines in list(group.deadlines.items()):
        reasons = (
            (deadlines.session, "its session expired"),
            (deadlines.revocation, "it did not give up its partitions within the rebalance timeout"),
            (deadlines.join, "it did not rejoin within the rebalance timeout"),
            (deadlines.sync, "it did not send SyncGroup within the rebalance timeout"),
        )
        reason = next((text for deadline, text in reasons if deadline is not None and deadline <= now.loop_ms), None)
        if member_id not in group.members:
            del group.deadlines[member_id]
        elif reason is not None:
            expired[member_id] = reason
    remaining = (one.earliest() for member_id, one in group.deadlines.items() if member_id not in expired)
    group.next_deadline_ms = min((deadline for deadline in remaining if deadline is not None), default=None)
    return expired


# -- leaving ---------------------------------------------------------------------------------------


def find_leaving_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
    """Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if request.group_instance_id is None:
        return group.find_member(request.member_id)
    return group.find_static_member(request.member_id, request.group_instance_id)


def leave_for_restart(change: ConsumerChange, member: ConsumerMember) -> HeartbeatResult:
    """A static member keeps its assignment, and its instance id can be taken over, until its
    session ends."""
    consumer_change.write_assignment(change, replace(member, epoch=STATIC_LEAVING_EPOCH, pending_revocation={}))
    return HeartbeatResult(member.id, STATIC_LEAVING_EPOCH)


def fence_members(change: ConsumerChange, member_ids: list[str], metadata: CoordinatorMetadata) -> None:
    """Removes members, whose partitions are free at once, and begins a new group epoch."""
    group = change.group
    expressions = {group.members[member_id].subscribed_topic_regex for member_id in member_ids}
    for member_id in member_ids:
        consumer_change.remove_member(change, member_id)
    for expression in expressions:
        _drop_unused_regex(change, expression)
    consumer_change.write_epoch(change, group.epoch + 1, metadata.hash_topics(group.subscribed_topics()))
    if not group.members:
        group.assigned_ms = None


def left_result(member_id: str) -> HeartbeatResult:
    return HeartbeatResult(member_id, LEAVING_EPOCH)
