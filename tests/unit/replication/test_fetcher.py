"""Timers of a fetcher on uvloop."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import uvloop

from ottla_broker.replication.fetcher import Fetcher, FetcherTiming


def test_retry_time_in_the_past_can_be_scheduled_twice() -> None:
    """uvloop returns no timer for a time in the past."""

    async def test() -> None:
        owner = SimpleNamespace(name="test", timing=FetcherTiming(1, 1, 1, 1))
        fetcher: Fetcher[Any] = Fetcher(cast(Any, owner), pipelined=True)
        for _ in range(2):
            fetcher._retry_at(asyncio.get_running_loop().time() - 1.0)
        await asyncio.sleep(0)
        assert fetcher._retry is None
        await fetcher.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())
