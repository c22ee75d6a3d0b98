"""Whether others can be reached, before a broker tries to lead them."""

import asyncio

from ottla_broker.metadata.log_fetcher import connect_to_peer
from ottla_broker.metadata.quorum_rules import election_quorum_size
from ottla_broker.metadata.register import RegisterValue, Voter
from ottla_broker.wire.errors import KafkaError


async def can_reach_election_quorum(value: RegisterValue, me: Voter, client_id: str) -> bool:
    """Whether so many members can be connected to that a take-over could succeed: one that cannot would only be in the way."""
    missing = election_quorum_size(len(value.isr)) - 1
    others = [member.address for member in value.isr if member.key != me.key and member.address]
    attempts = [asyncio.ensure_future(_can_connect(address, client_id)) for address in others if missing > 0]
    try:
        for attempt in asyncio.as_completed(attempts):
            missing -= await attempt
            if missing <= 0:
                break
        return missing <= 0
    finally:
        for task in attempts:
            task.cancel()


async def _can_connect(address: str, client_id: str) -> bool:
    try:
        (await connect_to_peer(address, client_id)).close()
    except (OSError, TimeoutError, KafkaError):
        return False
    return True
