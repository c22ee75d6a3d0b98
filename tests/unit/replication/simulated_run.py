"""Runs a test on a simulated loop."""

import asyncio
import gc
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from tests.sim.processes import SimulatedLoop

T = TypeVar("T")


def run_simulation(main: Callable[[SimulatedLoop], Awaitable[T]]) -> T:
    gc.freeze()  # so that the collection at the end of the run visits only objects of the run
    loop = SimulatedLoop()
    try:
        return cast(T, loop.run_until_complete(loop.create_task(cast(Any, main(loop)))))
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
