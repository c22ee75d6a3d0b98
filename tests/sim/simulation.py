"""One run: a loop, a trace and a director for a seed, and what has come of them."""

import asyncio
import gc
import logging
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from tests.sim.client import World
from tests.sim.cluster import SimulatedCluster
from tests.sim.history import History
from tests.sim.network import SimulatedNetwork
from tests.sim.processes import SimulatedLoop, SimulatedProcess
from tests.sim.standing import views
from tests.sim.trace import Trace

LOOK_S = 0.5


@dataclass
class Outcome:
    """`broken`: promises that were broken; empty: the run passed. `digest`: equal for two runs of one seed. `done`: what admins got done."""

    seed: int
    brokers: int
    broken: list[str]
    digest: int
    lines: list[str]
    faults: dict[str, int]
    done: dict[str, int]
    acks: int
    reads: int
    virtual_s: float
    cpu_s: float
    packets: int


class Simulation(Protocol):
    """What happens in a run."""

    @property
    def network(self) -> SimulatedNetwork: ...
    @property
    def brokers(self) -> int: ...
    @property
    def histories(self) -> Sequence[History]: ...
    @property
    def faults(self) -> Mapping[str, int]:
        """What went wrong, and how often."""
        ...

    @property
    def done(self) -> Mapping[str, int]: ...
    def run(self) -> list[str]:
        """The promises that were broken."""
        ...


def simulated(
    seed: int,
    make: Callable[[SimulatedLoop, Trace], Simulation],
    *,
    tell: Callable[[str], None] | None = None,
    level: int = logging.WARNING,
) -> Outcome:
    """Makes a simulation and runs it. `tell`: where to put each line of the trace as it comes; `level`: what of the brokers' own logs is in it."""
    started = time.process_time()
    loop = SimulatedLoop()
    trace = Trace(loop.time, tell)
    trace.start_capturing_logs(level)
    loop.set_exception_handler(trace.handle_loop_exception)
    gc.disable()  # a run is short, and what is collected when must not depend on what ran before
    try:
        simulation = make(loop, trace)
        broken = simulation.run()
        loop.set_exception_handler(lambda *_: None)
        histories, network = simulation.histories, simulation.network
        return Outcome(
            seed,
            simulation.brokers,
            broken + trace.problems,
            network.digest,
            trace.lines,
            dict(simulation.faults),
            dict(simulation.done),
            sum(len(history.acks) for history in histories),
            sum(len(records) for one in histories for places in one.seen.values() for records in places.values()),
            loop.time(),
            time.process_time() - started,
            network.packets,
        )
    finally:
        trace.stop_capturing_logs()
        close_loop(loop)
        gc.enable()


def close_loop(loop: SimulatedLoop) -> None:
    """Coroutines of dead processes are closed here, in silence: what their `finally`s say concerns nobody."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):  # of coroutines whose process died before their first step
            loop.close()
            for process in loop.processes:
                process.forget()
            gc.collect()
    finally:
        sys.unraisablehook = hook
        logging.disable(level)


class Director:
    """Whoever directs a run: starts clients, and waits."""

    def __init__(self, loop: SimulatedLoop, trace: Trace, random: Random) -> None:
        self._loop = loop
        self._trace = trace
        self._random = random

    def client(self, kind: Callable[..., Any], world: World, name: str, **named: Any) -> Any:
        return kind(world, SimulatedProcess(self._loop, name), Random(self._random.getrandbits(64)), **named)

    async def within(self, seconds: float, task: "asyncio.Task[Any]", what: str) -> bool:
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            self._trace.add_line(f"not within {seconds} s: {what}")
            return False
        task.result()
        return True

    async def until_nothing(
        self,
        missing: Callable[[], list[str]],
        within_s: float,
        otherwise: str,
        *,
        lost: Callable[[], bool],
        clusters: Sequence[SimulatedCluster],
    ) -> list[str]:
        """What is missing when the time is over. `lost`: whether waiting has no use any more."""
        deadline = self._loop.time() + within_s
        while self._loop.time() < deadline:
            await asyncio.sleep(LOOK_S)
            if lost():
                return []
            if not missing():
                return []
        for cluster in clusters:
            for view in views(cluster):
                self._trace.add_line(view)
        return [f"{otherwise} in {within_s:.0f} s: {what}" for what in missing()]

    async def ended(self, tasks: "Sequence[asyncio.Task[Any]]", within_s: float) -> list[str]:
        """Waits until clients have ended; what is wrong with those that failed, or do not end."""
        _, late = await asyncio.wait(tasks, timeout=within_s)
        broken = [
            f"a client failed: {error!r}" for task in tasks if task.done() and (error := task.exception()) is not None
        ]
        return broken + [f"a client does not end: {task}" for task in late]
