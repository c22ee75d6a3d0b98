"""The effect of a ShareGroupHeartbeat request on its share group (KIP-932). No I/O.

A heartbeat creates or updates its member, which may begin a new group epoch. It computes the target
assignment of a new group epoch, and returns its own member's part of it. Other members get theirs
with their next heartbeats.
"""

import logging
from collections.abc import Iterable
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ottla_broker.coordination import share_change
from ottla_broker.coordination.assignment_interval import may_assign
from ottla_broker.coordination.assignors import NO_PARTITIONS, AssignableMember, Assignment
from ottla_broker.coordination.consumer_member import JOINING_EPOCH, to_topic_partitions
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import ShareGroupConfig
from ottla_broker.coordination.group_type import SHARE
from ottla_broker.coordination.protocol_errors import group_full_error, member_fenced_error
from ottla_broker.coordination.share_assignor import assign_shares
from ottla_broker.coordination.share_change import ShareChange
from ottla_broker.coordination.share_group import ShareGroup, ShareMember, StateTopic
from ottla_broker.coordination.share_group_records import (
    ShareAssignmentKey,
    ShareMemberKey,
    ShareTargetEpochKey,
    ShareTargetEpochValue,
    ShareTargetKey,
    ShareTargetValue,
)

logger = logging.getLogger(__name__)


class ShareHeartbeat(msgspec.Struct, frozen=True):
    """A member's request. A field that is None has not changed since its last heartbeat."""

    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


class ShareHeartbeatResult(msgspec.Struct, frozen=True):
    """`assignment`: the partitions that the member may fetch; None when they have not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


def heartbeat(
    change: ShareChange,
    request: ShareHeartbeat,
    metadata: CoordinatorMetadata,
    config: ShareGroupConfig,
    now: Timestamps,
) -> ShareHeartbeatResult:
    """Adds the effect of the request to `change`, and returns the member's result. Raises
    GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH."""
    group = change.group
    member = _find_or_create_member(group, request, config)
    updated = replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        subscribed_topic_names=member.subscribed_topic_names
        if request.subscribed_topic_names is None
        else tuple(sorted(set(request.subscribed_topic_names))),
        client_id=request.client_id,
        client_host=request.client_host,
    )
    is_new = member.id not in group.members
    if is_new:
        logger.info("share group %s: member %s joins", group.id, member.id)
    if is_new or updated != member:
        change.write(ShareMemberKey(group.id, member.id), updated.metadata_value())
    _maybe_raise_epoch(
        change, metadata, must_raise=is_new or updated.subscribed_topic_names != member.subscribed_topic_names
    )
    is_outdated = group.epoch > group.assignment_epoch
    if is_outdated and may_assign(group.assigned_ms, config.assignment_interval_ms, now.loop_ms):
        compute_targets(change, metadata)
        group.assigned_ms = now.loop_ms
    after = _follow_target(change, group.members[member.id])
    group.deadlines[member.id] = now.loop_ms + config.session_timeout_ms
    group.lower_next_deadline(group.deadlines[member.id])
    includes_assignment = (
        request.member_epoch == JOINING_EPOCH
        or request.subscribed_topic_names is not None
        or after.assigned != member.assigned
    )
    return ShareHeartbeatResult(
        after.id, after.epoch, config.heartbeat_interval_ms, after.assigned if includes_assignment else None
    )


def _find_or_create_member(group: ShareGroup, request: ShareHeartbeat, config: ShareGroupConfig) -> ShareMember:
    known = group.members.get(request.member_id)
    if known is None:
        if request.member_epoch != JOINING_EPOCH:
            return group.find_member(request.member_id)
        if len(group.members) >= config.max_size:
            raise group_full_error(SHARE, config.max_size)
        return ShareMember(request.member_id)
    epoch = request.member_epoch
    if epoch not in (JOINING_EPOCH, known.epoch, known.previous_epoch):
        raise member_fenced_error(SHARE, epoch, known.epoch)
    return known


def _maybe_raise_epoch(change: ShareChange, metadata: CoordinatorMetadata, *, must_raise: bool) -> None:
    group = change.group
    if must_raise or group.epoch == 0:
        share_change.raise_epoch(change, metadata)
    elif group.metadata_version != metadata.version:
        if metadata.hash_topics(group.subscribed_topics()) != group.metadata_hash:
            share_change.raise_epoch(change, metadata)
        group.metadata_version = metadata.version


def compute_targets(change: ShareChange, metadata: CoordinatorMetadata) -> None:
    """Writes the target assignments that change, then the assignment epoch."""
    group = change.group
    members = {
        member.id: AssignableMember(
            metadata.topic_ids(member.subscribed_topic_names), group.targets.get(member.id, NO_PARTITIONS)
        )
        for member in group.members.values()
    }
    topics = frozenset().union(*(member.topics for member in members.values()))
    partitions = {topic: group.initialized_partitions(topic) for topic in topics}
    for member_id, target in assign_shares(members, partitions).items():
        if member_id not in group.targets or group.targets[member_id] != target:
            change.write(ShareTargetKey(group.id, member_id), ShareTargetValue(to_topic_partitions(target)))
    change.write(ShareTargetEpochKey(group.id), ShareTargetEpochValue(group.epoch))


def _follow_target(change: ShareChange, member: ShareMember) -> ShareMember:
    group = change.group
    target = group.targets.get(member.id, NO_PARTITIONS)
    if member.epoch == group.assignment_epoch and member.assigned == target:
        return member
    after = replace(member, epoch=group.assignment_epoch, previous_epoch=member.epoch, assigned=target)
    change.write(ShareAssignmentKey(group.id, member.id), after.assignment_value())
    return group.members[member.id]


def find_uninitialized(group: ShareGroup, metadata: CoordinatorMetadata) -> dict[UUID, StateTopic]:
    """Partitions of subscribed topics whose share state has not been initialized, by topic."""
    found = {}
    for name in sorted(group.subscribed_topics()):
        if (topic_id := metadata.topic_id(name)) is None:
            continue
        missing = frozenset(range(metadata.partition_count(topic_id))) - group.initialized_partitions(topic_id)
        if missing:
            found[topic_id] = StateTopic(name, missing)
    return found


def add_initialized(change: ShareChange, added: Iterable[tuple[UUID, int]], metadata: CoordinatorMetadata) -> None:
    """Writes that these partitions are initialized, and begins a group epoch in which they can be
    assigned. Its assignment does not wait for the assignment interval, because members wait for
    these partitions."""
    group = change.group
    initialized = dict(group.initialized)
    for topic_id, partition in added:
        if (name := metadata.topic_name(topic_id)) is not None:
            before: frozenset[int] = initialized[topic_id].partitions if topic_id in initialized else frozenset()
            initialized[topic_id] = StateTopic(name, before | {partition})
    share_change.write_initialized(change, initialized)
    group.assigned_ms = None
    share_change.raise_epoch(change, metadata)


def take_expired_members(group: ShareGroup, now: Timestamps) -> list[str]:
    """Members whose sessions have ended. Also sets the group's next deadline to the earliest of the
    others."""
    for member_id in list(group.deadlines):
        if member_id not in group.members:
            del group.deadlines[member_id]
    expired = [member_id for member_id, deadline in group.deadlines.items() if deadline <= now.loop_ms]
    remaining = (deadline for member_id, deadline in group.deadlines.items() if member_id not in expired)
    group.next_deadline_ms = min(remaining, default=None)
    return expired
