"""Groups that change their protocol while they have members (KIP-848,
`group.consumer.migration.policy`). No I/O.

A classic group becomes a consumer group when the first member of the consumer protocol joins. Its
members stay, keep their assignments, and continue with the classic protocol (`migrating_members`)
until each is restarted. A consumer group becomes a classic group when its last member of the
consumer protocol is gone.
"""

import logging
from collections.abc import Collection
from uuid import UUID

from ottla_broker.coordination import consumer_change
from ottla_broker.coordination.assignors import NO_PARTITIONS, Assignment
from ottla_broker.coordination.classic_group import CONSUMER_PROTOCOL, ClassicGroup, GroupMember, GroupState
from ottla_broker.coordination.consumer_change import ConsumerChange
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    TargetAssignmentValue,
)
from ottla_broker.coordination.consumer_member import ConsumerMember, to_topic_partitions
from ottla_broker.coordination.consumer_protocol import (
    encode_assignment,
    read_assignment,
    read_subscription,
    read_version,
)
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import ConsumerGroupConfig, GroupCoordinatorConfig
from ottla_broker.coordination.migrating_members import assignment_by_name
from ottla_broker.coordination.records import encode_group_metadata_key
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.records import Record

logger = logging.getLogger(__name__)


def check_upgrade(group: ClassicGroup, config: ConsumerGroupConfig) -> None:
    """Raises GROUP_ID_NOT_FOUND, as Kafka does, unless the group may become a consumer group."""
    if not config.may_upgrade:
        raise _upgrade_error(group, "because online upgrade is disabled")
    if not group.uses_consumer_protocol:
        raise _upgrade_error(group, "because the group does not use the consumer embedded protocol")
    if len(group.members) > config.max_size:
        raise _upgrade_error(group, "because the group size exceeds the consumer group maximum size")


def _upgrade_error(group: ClassicGroup, why: str) -> KafkaError:
    logger.info("group %s stays a classic group, %s", group.id, why)
    return KafkaError(ErrorCode.group_id_not_found, f"Cannot upgrade classic group {group.id} to consumer group {why}.")


def classic_tombstone(group: ClassicGroup, now: Timestamps) -> list[Record]:
    """The tombstone to write before a group of another protocol takes the place of a classic group;
    empty if the classic group has no record.
    """
    return [Record(now.wall_ms, encode_group_metadata_key(group.id), None)] if group.has_records else []


def upgrade_group(group: ClassicGroup, metadata: CoordinatorMetadata) -> ConsumerChange:
    """The consumer group that takes a classic group's place, and the records that make it. All its
    members are stable in the classic group's generation. Raises GROUP_ID_NOT_FOUND when their
    subscriptions or assignments cannot be read, when an assignment has a custom assignor's user
    data, or when two members have the same partition."""
    change = ConsumerChange(ConsumerGroup(group.id))
    try:
        members = [_to_consumer_member(group, member, metadata) for member in group.members.values()]
    except MalformedMessage as reason:
        raise _upgrade_error(group, f"because the embedded consumer protocol is malformed: {reason}") from reason
    for member in members:
        consumer_change.write_member(change, member)
    consumer_change.write_epoch(change, group.generation, metadata.hash_topics(change.group.subscribed_topics()))
    for member in members:
        consumer_change.write_target(change, member.id, TargetAssignmentValue(to_topic_partitions(member.assigned)))
    consumer_change.write_assignment_epoch(change, group.generation)
    taken: set[object] = set()
    for member in members:
        owned = set(member.owned_partitions())
        if taken & owned:
            raise _upgrade_error(group, f"because member {member.id} shares partitions with another one")
        taken |= owned
        consumer_change.write_assignment(change, member)
    logger.info("group %s: the classic group becomes a consumer group of %d members", group.id, len(members))
    return change


def _to_consumer_member(group: ClassicGroup, member: GroupMember, metadata: CoordinatorMetadata) -> ConsumerMember:
    subscription = read_subscription(member.metadata(group.protocol_name) or member.protocols[0][1])
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise _upgrade_error(group, "because an unsupported custom assignor is in use")
    assigned: dict[UUID, frozenset[int]] = {}
    for one in assignment.assigned:
        if (topic := metadata.topic_id(one.topic)) is not None and one.partitions:
            assigned[topic] = assigned.get(topic, frozenset()) | frozenset(one.partitions)
    return ConsumerMember(
        member.id,
        group_instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        classic=ClassicMemberMetadata(
            member.session_timeout_ms,
            tuple(ClassicProtocol(*protocol) for protocol in member.protocols),
        ),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=assigned,
    )


def can_downgrade(
    group: ConsumerGroup, without: Collection[str], config: ConsumerGroupConfig, classic_max_size: int
) -> bool:
    """True if the group, without these members, has only members of the classic protocol, and may
    become a classic group."""
    remaining = [member for member in group.members.values() if member.id not in without]
    if not remaining or any(member.classic is None for member in remaining):
        return False
    return config.may_downgrade and len(remaining) <= classic_max_size


def downgrade_group(
    group: ConsumerGroup,
    without: Collection[str],
    config: GroupCoordinatorConfig,
    metadata: CoordinatorMetadata,
    now: Timestamps,
) -> ClassicGroup:
    """The classic group that takes the place of a consumer group without the members `without`:
    Stable, with the group epoch as its generation. The caller writes its record, and begins a
    rebalance if members left or are not at the group epoch."""
    classic = ClassicGroup(
        group.id,
        config,
        state=GroupState.stable,
        state_since_ms=now.wall_ms,
        generation=group.epoch,
        protocol_type=group.protocol_type,
        has_records=True,
    )
    for member in group.members.values():
        if member.id not in without and member.classic is not None:
            classic.add_member(_to_classic_member(member, member.classic, group.targets, metadata))
    classic.protocol_name = classic.select_protocol()
    classic.subscribed_topics = classic.compute_subscribed_topics()
    logger.info("group %s: the consumer group becomes a classic group of %d members", group.id, len(classic.members))
    return classic


def _to_classic_member(
    member: ConsumerMember,
    classic: ClassicMemberMetadata,
    targets: dict[str, Assignment],
    metadata: CoordinatorMetadata,
) -> GroupMember:
    target = assignment_by_name(targets.get(member.id, NO_PARTITIONS), metadata)
    protocols = tuple((protocol.name, protocol.metadata) for protocol in classic.supported_protocols)
    return GroupMember(
        member.id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        CONSUMER_PROTOCOL,
        protocols,
        encode_assignment(target, read_version(protocols[0][1])),
    )
