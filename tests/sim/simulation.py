"""One run of a seed: event loop, trace, driver and result."""

import asyncio
import gc
import logging
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeVar

from tests.sim.client import Workload
from tests.sim.cluster import SimulatedCluster
from tests.sim.cluster_state import describe_unhealthy_replicas
from tests.sim.history import History
from tests.sim.network import SimulatedNetwork
from tests.sim.processes import SimulatedLoop, SimulatedProcess
from tests.sim.trace import Trace

POLL_S = 0.5
CLIENTS_END_WITHIN_S = 30.0

Client = TypeVar("Client")
CreateClient = Callable[[Workload, SimulatedProcess, Random], Client]
NewClient = Callable[[Callable[[Workload, SimulatedProcess, Random], Any], str], Any]
"""Creates a client in a process of its own, of the given name."""


@dataclass
class Outcome:
    """The result of a run; it passed if there are no `violations`.

    `digest` is equal for two runs of one seed. `counts`: what happened, such as topics created and
    controllers elected, by name.
    """

    seed: int
    brokers: int
    violations: list[str]
    digest: int
    trace: list[str]
    faults: dict[str, int]
    counts: dict[str, int]
    acks: int
    reads: int
    virtual_s: float
    cpu_s: float
    packets: int


@dataclass(frozen=True, slots=True)
class SimulatorError:
    """An exception of the simulator itself ended the run of a seed."""

    seed: int
    traceback: str


def run_or_report(run: Callable[[int], Outcome], seed: int) -> Outcome | SimulatorError:
    """Runs a seed. An exception of the simulator is returned, so that the other seeds still run."""
    try:
        return run(seed)
    except Exception:  # noqa: BLE001 - it fails the command
        return SimulatorError(seed, traceback.format_exc())


class Simulation(Protocol):
    """A scenario that runs on a simulated loop."""

    @property
    def network(self) -> SimulatedNetwork: ...
    @property
    def brokers(self) -> int: ...
    @property
    def histories(self) -> Sequence[History]: ...
    @property
    def faults(self) -> Mapping[str, int]:
        """Faults by name with their number."""
        ...

    @property
    def counts(self) -> Mapping[str, int]: ...
    def run(self) -> list[str]:
        """Runs and returns the violations."""
        ...


def run_simulation(
    seed: int,
    create: Callable[[SimulatedLoop, Trace], Simulation],
    *,
    on_line: Callable[[str], None] | None = None,
    level: int = logging.WARNING,
) -> Outcome:
    """Creates a simulation and runs it.

    `on_line` receives each line of the trace. `level` is the lowest level of the brokers' log
    records in the trace.
    """
    started = time.process_time()
    loop = SimulatedLoop()
    trace = Trace(loop.time, on_line)
    trace.start_capturing_logs(level)
    loop.set_exception_handler(trace.handle_loop_exception)
    with own_garbage():
        try:
            simulation = create(loop, trace)
            violations = simulation.run()
            loop.set_exception_handler(lambda *_: None)
            histories, network = simulation.histories, simulation.network
            return Outcome(
                seed,
                simulation.brokers,
                violations + trace.problems,
                network.digest,
                trace.lines,
                dict(simulation.faults),
                dict(simulation.counts),
                sum(len(history.acks) for history in histories),
                sum(
                    len(records)
                    for one in histories
                    for topic_partitions in one.consumed.values()
                    for records in topic_partitions.values()
                ),
                loop.time(),
                time.process_time() - started,
                network.packets,
            )
        finally:
            trace.stop_capturing_logs()
            close_loop(loop)


@contextmanager
def own_garbage() -> Iterator[None]:
    """Inside the block no garbage is collected automatically: a run is short, and must not depend
    on garbage of earlier runs. The collection of `close_loop` visits only objects of the block:
    visiting those of all tests takes ten times as long as a short run.
    """
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def close_loop(loop: SimulatedLoop) -> None:
    """Closes the loop and the coroutines of its processes, without printing what their `finally`
    blocks raise."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):  # about coroutines that never started
            loop.close()
            for process in loop.processes:
                process.close_tasks()
            gc.collect()
    finally:
        sys.unraisablehook = hook
        logging.disable(level)


class SimulationDriver:
    """Starts clients and waits for conditions, outside of all processes."""

    def __init__(self, loop: SimulatedLoop, trace: Trace, random: Random) -> None:
        self._loop = loop
        self._trace = trace
        self._random = random

    def create_client(self, create: CreateClient[Client], workload: Workload, name: str) -> Client:
        """Creates a client in a process of its own on the host `name`."""
        return create(workload, SimulatedProcess(self._loop, name), Random(self._random.getrandbits(64)))

    async def finishes_within(self, seconds: float, task: "asyncio.Task[Any]", what: str) -> bool:
        """Returns False if the task does not end in time; raises what the task raised."""
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            self._trace.add_line(f"timed out after {seconds} s: {what}")
            return False
        task.result()
        return True

    async def wait_until_empty(
        self,
        missing: Callable[[], list[str]],
        within_s: float,
        failure: str,
        *,
        give_up: Callable[[], bool],
        clusters: Sequence[SimulatedCluster],
    ) -> list[str]:
        """Waits until `missing` returns nothing. Returns what it still returns after `within_s`,
        each with `failure` in front. Gives up early, and returns nothing, if `give_up` is True.
        """
        deadline = self._loop.time() + within_s
        while self._loop.time() < deadline:
            await asyncio.sleep(POLL_S)
            if give_up():
                return []
            if not missing():
                return []
        for cluster in clusters:
            for view in describe_unhealthy_replicas(cluster):
                self._trace.add_line(view)
        return [f"{failure} in {within_s:.0f} s: {what}" for what in missing()]

    async def wait_for_clients(self, tasks: "Sequence[asyncio.Task[Any]]") -> list[str]:
        """Waits until all clients have ended; describes those that failed or did not end."""
        _, late = await asyncio.wait(tasks, timeout=CLIENTS_END_WITHIN_S)
        violations = [
            f"a client failed: {error!r}" for task in tasks if task.done() and (error := task.exception()) is not None
        ]
        return violations + [f"a client does not end: {task}" for task in late]
