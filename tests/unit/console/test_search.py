"""A search of a topic's records, and records that are followed."""

from types import SimpleNamespace
from typing import Any

from ottla_broker.console.partition_reader import OffsetRange
from ottla_broker.console.record_scanner import Scanner
from ottla_broker.console.search import Search
from ottla_broker.console.search_messages import StartSearch
from ottla_broker.wire.records import Record, encode_batch
from tests.unit.async_tests import async_test

RECORDS = 23


class FakeClient:
    """A partition whose records arrive in one batch."""

    async def fetch(self, _topic: str, _partition: int, offset: int, **_: Any) -> Any:
        records = [Record(0, None, b"%d" % at) for at in range(RECORDS)]
        data = encode_batch(records, base_offset=0) if offset < RECORDS else b""
        return SimpleNamespace(records=bytes(data), next_offset=RECORDS, high_watermark=RECORDS)


class LocalProcess:
    """Does the work of a search's process in the test's process."""

    def __init__(self, expression: str) -> None:
        self._scanner = Scanner(StartSearch(expression, None, "text"))

    async def scan(self, request: Any) -> Any:
        return self._scanner.scan(request)


def new_search(first: int, limit: int) -> Search:
    client: Any = FakeClient()
    return Search(client, "t", [OffsetRange(0, first, RECORDS)], limit, lambda: 1)


async def follow(search: Search, expression: str = "") -> list[list[int]]:
    """The offsets that each update has found, until an update has scanned no record."""
    process: Any = LocalProcess(expression)
    found: list[list[int]] = []
    async for update in search.follow(process):
        if not update.response.found and update.response.scanned == 0:
            break
        found.append([one.offset for one in update.response.found])
    return found


@async_test
async def test_every_record_is_followed_also_beyond_the_limit_of_an_update() -> None:
    search = new_search(first=3, limit=10)
    assert await follow(search) == [list(range(3, 13)), list(range(13, 23))]
    progress = search.progress
    assert (progress.scanned, progress.found, progress.positions) == (20, 20, {0: RECORDS})


@async_test
async def test_a_filter_is_applied_to_every_record_that_is_followed() -> None:
    search = new_search(first=0, limit=2)
    assert await follow(search, "offset % 5 == 0") == [[0, 5], [10, 15], [20]]
    assert search.progress.scanned == RECORDS


@async_test
async def test_a_search_ends_at_its_limit_where_it_can_be_resumed() -> None:
    search = new_search(first=3, limit=10)
    process: Any = LocalProcess("")
    updates = [update async for update in search.run(process)]
    assert [one.offset for update in updates for one in update.response.found] == list(range(3, 13))
    assert updates[-1].is_done and search.progress.positions == {0: 13}
