"""Whether others can be reached, before a broker tries to lead them."""

import asyncio

from ottla_broker.metadata.following import connect
from ottla_broker.metadata.quorum_rules import needed_to_lead
from ottla_broker.metadata.register import Member, RegisterValue
from ottla_broker.wire.errors import KafkaError


async def reaches_enough(value: RegisterValue, me: Member, client_id: str) -> bool:
    """Whether so many members can be connected to that a take-over could succeed: one that cannot would only be in the way."""
    missing = needed_to_lead(len(value.isr)) - 1
    others = [member.address for member in value.isr if member.key != me.key and member.address]
    attempts = [asyncio.ensure_future(_reaches(address, client_id)) for address in others if missing > 0]
    try:
        for attempt in asyncio.as_completed(attempts):
            missing -= await attempt
            if missing <= 0:
                break
        return missing <= 0
    finally:
        for task in attempts:
            task.cancel()


async def _reaches(address: str, client_id: str) -> bool:
    try:
        (await connect(address, client_id)).close()
    except (OSError, TimeoutError, KafkaError):
        return False
    return True
