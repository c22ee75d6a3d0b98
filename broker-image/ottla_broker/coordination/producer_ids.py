"""Producer ids for idempotent producers: blocks from the controller, handed out one by one.

Ids of a block that a stopped broker did not hand out are lost, which is meant: there are 2⁶³ of them, and none may
come twice.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i64

from ottla_broker.metadata.controller_channel import ControllerChannel
from ottla_broker.wire.errors import ErrorCode, KafkaError


class ProducerIdAllocator:
    """`allocate` asks the controller for a block; KafkaError when it cannot be had, and then the next request tries
    again."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = iter(range(0))
        self._turn = asyncio.Lock()

    async def generate_id(self) -> int:
        if (found := next(self._block, None)) is not None:
            return found
        async with self._turn:
            while (found := next(self._block, None)) is None:  # somebody else may have fetched a block, and used it up
                self._block = iter(await self._allocate())
        return found


async def request_producer_id_block(link: ControllerChannel, broker: int, epoch: int) -> range:
    """A block of the controller's for this broker."""
    request = AllocateProducerIdsRequest(broker_id=BrokerId(broker), broker_epoch=i64(epoch))
    response: AllocateProducerIdsResponse = await link.send_request(request)
    if response.error_code is not ErrorCode.none:
        raise KafkaError(response.error_code, "the controller gives no producer ids")
    return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)
