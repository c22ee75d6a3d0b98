"""A search: reads partitions to the end that they had at its beginning, or follows them, and
reports what a filter finds.

No record is skipped silently: the last progress before a failure has the positions at which the
search can be resumed.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Final

from ottla_broker.console.partition_reader import Chunk, OffsetRange, format_positions, read_chunk, read_ranges
from ottla_broker.console.search_messages import ScanRecords, SearchResponse
from ottla_broker.console.search_process import SearchProcess
from ottla_broker.wire.client import Client

FOLLOW_PAUSE_S: Final = 0.5
"""Pause between fetches of new records. Several partitions of one leader share a connection, on
which a fetch that waits would hold up the others."""
NO_END: Final = -1
"""The end of a range, and the number of offsets left, while following."""


@dataclass(slots=True)
class SearchProgress:
    """`began_s`: by time.monotonic. `left`: number of offsets that are still to be read, an upper
    bound of records; −1 while following. `deleted`: number of offsets that retention removed before
    they were read. `failed`: number of records for which the filter has no result; `failure`: why,
    for the first of them. `positions`: next offsets by partition.
    """

    began_s: float
    left: int
    scanned: int = 0
    found: int = 0
    deleted: int = 0
    failed: int = 0
    failure: str = ""
    positions: dict[int, int] = field(default_factory=dict)

    def add(self, chunk: Chunk, range_: OffsetRange, response: SearchResponse) -> None:
        self.deleted += chunk.deleted
        self.positions[range_.partition] = chunk.next
        self.scanned += response.scanned
        self.found += response.found_count
        self.failed += response.failed
        self.failure = self.failure or response.failure

    def to_json(self, now_s: float, *, is_done: bool) -> dict[str, object]:
        took_s = max(now_s - self.began_s, 0.001)
        return {
            "scanned": self.scanned,
            "found": self.found,
            "left": self.left,
            "rate": round(self.scanned / took_s),
            "deleted": self.deleted,
            "failed": self.failed,
            "failure": self.failure,
            "positions": format_positions(self.positions),
            "done": is_done,
        }


@dataclass(frozen=True, slots=True)
class SearchUpdate:
    """What the search has found in one chunk, and its progress so far."""

    response: SearchResponse
    progress: SearchProgress
    is_done: bool


class Search:
    """`limit`: number of records to find; while following, at most in one update. `count_searches`:
    returns the number of searches on this broker.
    """

    def __init__(
        self, client: Client, topic: str, ranges: list[OffsetRange], limit: int, count_searches: Callable[[], int]
    ) -> None:
        self._count_searches = count_searches
        self._client = client
        self._topic = topic
        self._ranges = ranges
        self._limit = limit
        self.progress = SearchProgress(time.monotonic(), sum(one.left for one in ranges))
        self.progress.positions = {one.partition: one.next for one in ranges}

    async def run(self, process: SearchProcess) -> AsyncIterator[SearchUpdate]:
        """Scans the ranges until the limit is reached. Raises PageError, KafkaError, OSError."""
        async for range_, chunk in read_ranges(self._client, self._topic, self._ranges):
            response = await self._scan(process, range_, chunk, range_.end)
            self.progress.left = sum(self._left(one) for one in self._ranges)
            is_done = self.progress.found >= self._limit
            yield SearchUpdate(response, self.progress, is_done)
            if is_done:
                return
        yield SearchUpdate(SearchResponse(), self.progress, True)

    async def follow(self, process: SearchProcess) -> AsyncIterator[SearchUpdate]:
        """Scans records as they are committed, from each range's next offset on, without end. Each
        update has at most `limit` found records. Raises PageError, KafkaError, OSError.
        """
        self.progress.left = NO_END
        while True:
            is_idle = True
            for range_ in self._ranges:
                chunk = await read_chunk(self._client, self._topic, range_)
                if chunk.next > range_.next:
                    is_idle = False
                    range_.end = chunk.next
                    while range_.next < chunk.next:  # a scan stops at the limit
                        response = await self._scan(process, range_, chunk, NO_END)
                        range_.next = self.progress.positions[range_.partition]
                        chunk = replace(chunk, first=range_.next, deleted=0)
                        yield SearchUpdate(response, self.progress, False)
            if is_idle:
                yield SearchUpdate(SearchResponse(), self.progress, False)
                await asyncio.sleep(FOLLOW_PAUSE_S)

    def _left(self, range_: OffsetRange) -> int:
        return max(0, range_.end - self.progress.positions[range_.partition])

    async def _scan(self, process: SearchProcess, range_: OffsetRange, chunk: Chunk, end: int) -> SearchResponse:
        limit = max(1, self._limit - self.progress.found) if end != NO_END else self._limit
        response = SearchResponse()
        if chunk.records:
            request = ScanRecords(range_.partition, chunk.records, chunk.first, end, limit, self._count_searches())
            response = await process.scan(request)
        self.progress.add(chunk, range_, response)
        if response.found_count >= limit:
            self.progress.positions[range_.partition] = response.next_offset
        return response
