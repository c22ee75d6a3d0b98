"""Changes of share groups, each as the records that it appends. A write of a record also applies it
to the group in memory.
"""

import logging
from collections.abc import Mapping
from typing import Final, TypeAlias
from uuid import UUID

from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.group_change import GroupChange
from ottla_broker.coordination.share_group import ShareGroup, StateTopic, state_partitions_value
from ottla_broker.coordination.share_group_records import (
    ShareAssignmentKey,
    ShareGroupEpochValue,
    ShareGroupKey,
    ShareGroupRecordKey,
    ShareGroupRecordValue,
    ShareMemberKey,
    ShareTargetEpochKey,
    ShareTargetKey,
    StatePartitionsKey,
)

logger = logging.getLogger(__name__)

ShareChange: TypeAlias = GroupChange[ShareGroup, ShareGroupRecordKey, ShareGroupRecordValue]


INITIAL_EPOCH: Final = 1
"""Epoch of a group before its first change, as in Apache Kafka 4.3."""


def raise_epoch(change: ShareChange, metadata: CoordinatorMetadata) -> None:
    group = change.group
    value = ShareGroupEpochValue(max(group.epoch, INITIAL_EPOCH) + 1, metadata.hash_topics(group.subscribed_topics()))
    change.write(ShareGroupKey(group.id), value)
    group.metadata_version = metadata.version
    logger.info("share group %s: epoch %d begins", group.id, group.epoch)


def write_initialized(change: ShareChange, initialized: Mapping[UUID, StateTopic]) -> None:
    """Writes that the share state of these partitions, and of no others, is initialized."""
    change.write(StatePartitionsKey(change.group.id), state_partitions_value(initialized, {}))


def write_initializing(change: ShareChange, initializing: Mapping[UUID, StateTopic]) -> None:
    """Writes that the share state of these partitions is about to be initialized."""
    change.write(StatePartitionsKey(change.group.id), state_partitions_value(change.group.initialized, initializing))


def remove_member(change: ShareChange, member_id: str) -> None:
    """Removes a member's records in Kafka's order: the member last."""
    change.write(ShareAssignmentKey(change.group.id, member_id), None)
    change.write(ShareTargetKey(change.group.id, member_id), None)
    change.write(ShareMemberKey(change.group.id, member_id), None)
    change.group.deadlines.pop(member_id, None)


def remove_group(change: ShareChange) -> None:
    """Writes tombstones for every record of a group without members."""
    change.write(StatePartitionsKey(change.group.id), None)
    change.write(ShareTargetEpochKey(change.group.id), None)
    change.write(ShareGroupKey(change.group.id), None)
