"""Runs tests with a cluster on a simulated loop."""

import asyncio
import gc
import logging
import sys
from collections.abc import Awaitable, Callable

from tests.sim.processes import SimulatedLoop
from tests.unit.replication.small_cluster import SmallCluster


def run_scenario(
    scenario: Callable[[SmallCluster], Awaitable[None]],
    count: int = 3,
    topic_config: dict[str, str] | None = None,
    **settings: str,
) -> None:
    """Runs a scenario with a started cluster, for at most 600 s of virtual time."""

    async def main() -> None:
        cluster = SmallCluster(loop, count, topic_config, **settings)
        await cluster.start()
        async with asyncio.timeout(600):
            await scenario(cluster)

    gc.freeze()  # so that the collection at the end of the run visits only objects of the run
    loop = SimulatedLoop()
    try:
        loop.run_until_complete(loop.create_task(main()))
    finally:
        _close(loop)


def _close(loop: SimulatedLoop) -> None:
    """Closes the loop, and discards what coroutines of killed processes log when they are
    collected.
    """
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # some are collected after this
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        loop.close()
        gc.collect()
    finally:
        gc.unfreeze()
        sys.unraisablehook = hook
        logging.disable(level)
