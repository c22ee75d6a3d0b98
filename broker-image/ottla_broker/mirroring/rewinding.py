"""Committed offsets of this cluster's groups, taken back to where records are about to be cut off.

What comes in their place has the same offsets: a group that went on behind it would never see it. A group with members is left: its consumers
notice themselves that the log was cut (KIP-320).
"""

import logging
from collections.abc import Mapping

from ottla_broker.mirroring.group_offsets import (
    GROUP_IN_USE_ERRORS,
    CommittedOffset,
    TopicPartition,
    commit_offsets,
    fetch_committed_offsets,
    list_groups,
)
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)


def offsets_to_reset(
    here: Mapping[TopicPartition, CommittedOffset], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, CommittedOffset]:
    """What a group is to be set to. Pure."""
    return {
        place: CommittedOffset(ends[place], one.metadata)
        for place, one in here.items()
        if place in ends and one.offset > ends[place]
    }


async def reset_offsets(own: Client, ends: Mapping[TopicPartition, int]) -> None:
    """`ends`: of partitions, the offset above which nothing is to stay committed. OSError, TimeoutError, KafkaError."""
    if not ends:
        return
    for group in await list_groups(own, passed_over=frozenset()):
        wanted = offsets_to_reset(await fetch_committed_offsets(own, group), ends)
        if not wanted:
            continue
        try:
            await commit_offsets(own, group, wanted)
        except KafkaError as reason:
            if reason.code not in GROUP_IN_USE_ERRORS:
                raise
            logger.warning("group %s has members: it is not taken back to %s", group, wanted)
