"""A journal in memory, whose appends can be slow or fail."""

import asyncio
import random
from collections.abc import Awaitable, Iterator

from ottla_broker.runtime import Runtime
from ottla_broker.wire.batch import Buffer, parse_batch_header, stamp_offset_and_epoch
from ottla_broker.wire.errors import KafkaError


class MemoryJournal:
    """`delay_s`: duration of replication. `failure`: error of each append. `batch_count`: how many
    batches were appended.
    """

    def __init__(self, partition: int = 0, topic: str = "__consumer_offsets") -> None:
        self.topic = topic
        self.partition = partition
        self.epoch = 0
        self.log = bytearray()
        self.end = 0
        self.high_watermark = 0
        self.batch_count = 0
        self.delay_s = 0.0
        self.failure: KafkaError | None = None

    async def wait_until_recovered(self) -> None:
        return None

    def append(self, batch: bytes) -> Awaitable[int]:
        """The result is the base offset of the batch, once it is replicated."""
        if self.failure is not None:
            raise self.failure
        first, copy = self.end, bytearray(batch)
        stamp_offset_and_epoch(copy, 0, first, 0)
        self.log += copy
        self.end += parse_batch_header(copy).count
        self.batch_count += 1
        asyncio.get_running_loop().call_later(self.delay_s, self._advance, self.end)
        return asyncio.sleep(self.delay_s, first)

    def _advance(self, end: int) -> None:
        self.high_watermark = max(self.high_watermark, end)

    def read(self) -> Iterator[Buffer]:
        if self.log:
            yield bytes(self.log)


def virtual_runtime(seed: int = 1) -> Runtime:
    """A runtime whose wall clock follows the loop's time, with random numbers from a seed."""
    loop = asyncio.get_running_loop()
    return Runtime(now_ms=lambda: 1_700_000_000_000 + round(loop.time() * 1000), random=random.Random(seed))
