"""Producer ids for idempotent producers: blocks from the controller, handed out one by one.

Ids of a block that a stopped broker did not hand out are lost, which is meant: there are 2⁶³ of them, and none may
come twice.
"""

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    """`allocate` asks the controller for a block; KafkaError when it cannot be had, and then the next request tries
    again."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = iter(range(0))
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        if (found := next(self._block, None)) is not None:
            return found
        async with self._turn:
            while (found := next(self._block, None)) is None:  # somebody else may have fetched a block, and used it up
                self._block = iter(await self._allocate())
        return found
