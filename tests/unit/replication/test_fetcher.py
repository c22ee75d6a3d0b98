"""A fetcher's own clockwork, on the loop that a broker runs on."""

import asyncio
from types import SimpleNamespace
from typing import cast

import uvloop

from ottla_broker.replication.fetcher import Fetcher, Home, Pace


def test_a_rest_that_is_over_already_can_be_looked_at_twice() -> None:
    """uvloop gives no timer for a time that has passed."""

    async def test() -> None:
        home = SimpleNamespace(me=1, pace=Pace(), broker_epoch=lambda: -1)
        fetcher = Fetcher(2, synced=False, home=cast(Home, home))
        for _ in range(2):
            fetcher.session.rests_until_s = asyncio.get_running_loop().time() - 1.0
            fetcher._look_later()
        await asyncio.sleep(0)
        assert fetcher._later is None
        await fetcher.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())
