"""Whether a client may commit, fetch or delete offsets of a group. No I/O."""

from collections.abc import Collection, Mapping

from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_requests import Group
from ottla_broker.coordination.consumer_member import MEMBER_EPOCHS_SINCE
from ottla_broker.coordination.share_group import ShareGroup
from ottla_broker.coordination.streams_group import StreamsGroup
from ottla_broker.wire.errors import ErrorCode, KafkaError

GroupWithOffsets = ClassicGroup | ConsumerGroup | StreamsGroup


def find_group_with_offsets(groups: Mapping[str, Group], group_id: str) -> GroupWithOffsets | None:
    """None for a group that does not exist. Raises GROUP_ID_NOT_FOUND for a share group, which
    commits no offsets."""
    group = groups.get(group_id)
    if isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} is a share group, which has no offsets.")
    return group


def check_commit(
    group: GroupWithOffsets | None,
    group_id: str,
    member_id: str,
    group_instance_id: str | None,
    generation: int,
    version: int,
    partitions: Collection[tuple[str, int]],
) -> None:
    """`version`: of OffsetCommit. `partitions`: topics and indexes. Raises GROUP_ID_NOT_FOUND when
    a generation is given and the group does not exist, and what the group's own `check_commit`
    raises."""
    if isinstance(group, StreamsGroup):
        group.check_commit(member_id, generation, version, partitions)
    elif isinstance(group, ConsumerGroup):
        group.check_commit(member_id, generation, version)
    elif group is not None:
        group.check_commit(member_id, group_instance_id, generation)
    elif generation >= 0:
        raise KafkaError(ErrorCode.group_id_not_found, f"no group {group_id!r}")


def check_transactional_commit(
    group: GroupWithOffsets | None,
    group_id: str,
    member_id: str,
    group_instance_id: str | None,
    generation: int,
    partitions: Collection[tuple[str, int]],
) -> None:
    """Producers that do not know the group's membership send generation −1 and no member (KIP-447).
    Raises ILLEGAL_GENERATION when a generation is given and is not the one of the group or member,
    or the group does not exist; UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID; COORDINATOR_NOT_AVAILABLE
    for a group that was just deleted.
    """
    if group is None:
        if generation >= 0:
            raise KafkaError(ErrorCode.illegal_generation, f"no group {group_id!r}")
    elif isinstance(group, ConsumerGroup | StreamsGroup):
        if generation >= 0 or member_id or group_instance_id is not None:
            _check_member_epoch(group, group_id, member_id, generation, partitions)
    elif group.state is GroupState.dead:
        raise KafkaError(ErrorCode.coordinator_not_available)
    elif generation >= 0 or (group.state is not GroupState.empty and (member_id or group_instance_id is not None)):
        group.check_member(member_id, group_instance_id)
        group.check_generation(generation)


def _check_member_epoch(
    group: ConsumerGroup | StreamsGroup,
    group_id: str,
    member_id: str,
    epoch: int,
    partitions: Collection[tuple[str, int]],
) -> None:
    """Raises what `check_commit` raises, but ILLEGAL_GENERATION for a stale epoch."""
    try:
        check_commit(group, group_id, member_id, None, epoch, MEMBER_EPOCHS_SINCE, partitions)
    except KafkaError as reason:
        if reason.code is ErrorCode.stale_member_epoch:
            raise KafkaError(ErrorCode.illegal_generation, reason.message) from reason
        raise
