"""A voter keeps its own entry in the voter set current: its address and the levels of
`kraft.version` that it supports (KIP-853).

The leader cannot learn them in another way: a voter with a new address may not have registered yet.
"""

import asyncio
import logging
from typing import Final

from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.metadata.quorum_peers import QuorumPeers
from ottla_broker.metadata.voter_history import VoterHistory
from ottla_broker.metadata.voter_set import QuorumEndpoint
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 0.5


async def maintain_own_entry(voters: VoterHistory, peers: QuorumPeers, leader: QuorumEndpoint, epoch: int) -> None:
    """Sends UpdateRaftVoter to the leader of `epoch` whenever this broker's entry in the voter set
    is out of date. Runs until cancelled.
    """
    me = peers.me
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        entry = next((voter for voter in voters.latest if voter.key == me.key), me)
        if entry == me:
            continue
        try:
            await peers.update_own_entry(leader, epoch)
            logger.info("the voter set names broker %d at %s now, not %s", me.broker, me.address, entry.address)
        except (OSError, KafkaError) as reason:
            logger.debug("the leader at %s does not update this voter: %s", format_host_and_port(*leader), reason)
