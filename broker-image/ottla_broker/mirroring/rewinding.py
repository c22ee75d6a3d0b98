"""Committed offsets of this cluster's groups, taken back to where records are about to be cut off.

What comes in their place has the same offsets: a group that went on behind it would never see it. A group with members is left: its consumers
notice themselves that the log was cut (KIP-320).
"""

import logging
from collections.abc import Mapping

from ottla_broker.mirroring.group_offsets import IN_USE, Committed, Place, commit, committed, group_names
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)


def beyond(here: Mapping[Place, Committed], ends: Mapping[Place, int]) -> dict[Place, Committed]:
    """What a group is to be set to. Pure."""
    return {
        place: Committed(ends[place], one.metadata)
        for place, one in here.items()
        if place in ends and one.offset > ends[place]
    }


async def rewind(own: Client, ends: Mapping[Place, int]) -> None:
    """`ends`: of partitions, the offset above which nothing is to stay committed. OSError, TimeoutError, KafkaError."""
    if not ends:
        return
    for group in await group_names(own, passed_over=frozenset()):
        wanted = beyond(await committed(own, group), ends)
        if not wanted:
            continue
        try:
            await commit(own, group, wanted)
        except KafkaError as reason:
            if reason.code not in IN_USE:
                raise
            logger.warning("group %s has members: it is not taken back to %s", group, wanted)
