"""The effect on a consumer group of several members' heartbeats that arrive in one turn of the
event loop: the same as if they ran one after another (`consumer_heartbeat`), except that the target
assignment is computed once. No I/O.
"""

from collections.abc import Sequence

from ottla_broker.coordination.consumer_change import ConsumerChange
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_heartbeat import (
    AdmittedMember,
    ConsumerHeartbeat,
    HeartbeatResult,
    admit,
    advance,
)
from ottla_broker.coordination.consumer_member import JOINING_EPOCH, ConsumerMember, MemberState
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import ConsumerGroupConfig
from ottla_broker.coordination.target_assignment import update_target_assignment
from ottla_broker.wire.errors import KafkaError


def heartbeat_together(
    group: ConsumerGroup,
    requests: Sequence[ConsumerHeartbeat],
    metadata: CoordinatorMetadata,
    config: ConsumerGroupConfig,
    now: Timestamps,
) -> tuple[list[ConsumerChange], list[HeartbeatResult | KafkaError]]:
    """The changes of the group, in their order, and the result or error of each member's heartbeat.
    A heartbeat that `admit` rejects changes nothing; one that `advance` rejects has updated its
    member. The target assignment is computed once, after all heartbeats have updated their members
    and begun new group epochs."""
    changes: list[ConsumerChange] = []
    admitted: list[AdmittedMember | KafkaError] = []
    for request in requests:
        if (member := _find_unchanged_member(group, request, metadata)) is not None:
            admitted.append(AdmittedMember(member.id, member.assigned, has_subscription_changed=False))
            continue
        change = ConsumerChange(group)
        try:
            admitted.append(admit(change, request, metadata, config, now))
        except KafkaError as error:
            change.undo()
            admitted.append(error)
        changes.append(change)
    if any(isinstance(one, AdmittedMember) for one in admitted):
        assignment = ConsumerChange(group)
        update_target_assignment(assignment, metadata, config, now)
        changes.append(assignment)
    advances = ConsumerChange(group)
    changes.append(advances)
    results: dict[int, HeartbeatResult | KafkaError] = {}
    for at in _in_order_of_release(group, admitted):
        one = admitted[at]
        try:
            results[at] = (
                one if isinstance(one, KafkaError) else advance(advances, requests[at], one, metadata, config, now)
            )
        except KafkaError as error:  # before it has written anything
            results[at] = error
    return changes, [results[at] for at in range(len(requests))]


def _find_unchanged_member(
    group: ConsumerGroup, request: ConsumerHeartbeat, metadata: CoordinatorMetadata
) -> ConsumerMember | None:
    """The member of a heartbeat for which `admit` has nothing to do: it says no more than the epoch
    that the member is in. Nearly all are such while a group rebalances.
    """
    member = group.members.get(request.member_id)
    if (
        member is not None
        and request.member_epoch == member.epoch > JOINING_EPOCH
        and group.metadata_version == metadata.version
        and request.is_epoch_only
        and request.group_instance_id is None
        and member.group_instance_id is None
        and member.classic is None
        and not member.subscribed_topic_regex
        and not group.regular_expressions
        and request.client_id == member.client_id
        and request.client_host == member.client_host
    ):
        return member
    return None


def _in_order_of_release(group: ConsumerGroup, admitted: Sequence[AdmittedMember | KafkaError]) -> list[int]:
    """Positions of the members. Those that may give up partitions are first, so that others are
    assigned these in the same turn."""
    first: list[int] = []
    last: list[int] = []
    for at, one in enumerate(admitted):
        gives_up = (
            isinstance(one, AdmittedMember) and group.members[one.member_id].state is MemberState.unrevoked_partitions
        )
        (first if gives_up else last).append(at)
    return first + last
