"""Producer ids for idempotent producers, which the broker requests from the controller in blocks.

A broker that stops leaves the rest of its block unused: there are 2⁶³ ids, and none may be used
twice.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ottla_broker.metadata.controller_channel import ControllerChannel
from ottla_broker.wire.errors import ErrorCode, KafkaError


class ProducerIdAllocator:
    """`allocate` requests a block from the controller. After a KafkaError the next call requests it
    again.
    """

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._request_block = allocate
        self._block = iter(range(0))
        self._lock = asyncio.Lock()

    async def generate_id(self) -> int:
        if (found := next(self._block, None)) is not None:
            return found
        async with self._lock:
            while (found := next(self._block, None)) is None:  # another caller may have requested and used up a block
                self._block = iter(await self._request_block())
        return found


async def request_producer_id_block(channel: ControllerChannel, broker: int, epoch: int) -> range:
    """Sends AllocateProducerIds to the controller. Raises KafkaError with its error code."""
    # Imported here: these classes would take 2 ms of a broker's start.
    from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
    from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse
    from kio.schema.types import BrokerId
    from kio.static.primitive import i64

    request = AllocateProducerIdsRequest(broker_id=BrokerId(broker), broker_epoch=i64(epoch))
    response: AllocateProducerIdsResponse = await channel.send_request(request)
    if response.error_code is not ErrorCode.none:
        raise KafkaError(response.error_code, "the controller allocated no producer ids")
    return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)
