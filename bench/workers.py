"""`python -m bench.workers`: requests per second of one worker on one core, and of two on two.

Worker i and the load program that sends to it are pinned to core i, so both cases pay for their
clients alike: the ratio shows what the second worker adds to the machine, and not what the load
program takes from it. Connections have one record of 100 B in flight each, acks=all, to partitions
that their worker leads. Cases take turns, so that other work on the machine affects both.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka.admin import NewTopic

from bench import machine, plain_requests, programs
from bench.programs import ManyClientsResult
from tests.brokers import BrokerProcess, ottla_command
from tests.clients import librdkafka as rd
from tests.ports import first_of_free_ports

CONNECTIONS = (50, 500)
PARTITIONS = 12
RECORD = 100
GOAL = 1.8
TIMEOUT_S = 120


@dataclass(frozen=True)
class WorkersResult:
    """Rates of one worker and of two, by turn, in requests/s. `results`: of every load program, by
    the number of workers.
    """

    connections: int
    one: list[float]
    two: list[float]
    results: dict[int, list[ManyClientsResult]]

    @property
    def ratio(self) -> float:
        return statistics.median(self.two) / statistics.median(self.one)

    def cpu_us(self, workers: int) -> float:
        """Processor time of a worker for each request, the median."""
        return statistics.median(it.broker_cpu_us for it in self.results[workers])

    def client_cpu_us(self, workers: int) -> float:
        """Processor time of a load program for each request, the median."""
        return statistics.median(it.client_cpu_s / (it.per_s * it.seconds) * 1e6 for it in self.results[workers])


@dataclass(frozen=True)
class Target:
    """What one load program sends to: a port, the process that serves it, and a topic. `core`: the
    core to which the load program and that process are pinned; None if they are not.
    """

    port: int
    pid: int
    topic: str
    core: int | None = None


@contextmanager
def run_workers(count: int) -> Iterator[BrokerProcess]:
    """`count` workers, with a topic for each: `many-0`, …"""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-workers-") as folder:
        port = first_of_free_ports(count)
        home = Path(folder)
        ready_line = f"{count} workers ready on "
        command = BrokerProcess("ottla", port, home / "data", home, {}, lambda it: _command(it, count), ready_line)
        command.start()
        try:
            _create_topics(command.bootstrap, count)
            yield command
        finally:
            command.stop()


def _create_topics(bootstrap: str, count: int) -> None:
    topics = [
        NewTopic(f"many-{index}", PARTITIONS, replica_assignment=[[index + 1]] * PARTITIONS) for index in range(count)
    ]
    client = rd.admin_client(bootstrap)
    for made in client.create_topics(topics).values():
        made.result(TIMEOUT_S)


def _command(broker: BrokerProcess, workers: int) -> list[str]:
    return [*ottla_command(broker), "--workers", str(workers)]


def worker_pids(command: BrokerProcess) -> list[int]:
    """Process ids of the workers, in the order of their node.id."""
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()
    pids = {}
    for child in children:
        arguments = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        pids[next(int(it[8:]) for it in arguments if it.startswith("node.id="))] = int(child)
    return [pids[node_id] for node_id in sorted(pids)]


def pin(pid: int, core: int) -> None:
    """Pins all threads of a process to a core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def targets_of(command: BrokerProcess) -> list[Target]:
    """A target for each worker, not pinned."""
    return [Target(command.port + index, pid, f"many-{index}") for index, pid in enumerate(worker_pids(command))]


def measure(workers: int, connections: int, warm_s: float, seconds: float) -> list[ManyClientsResult]:
    """One load program for each worker, on the worker's core."""
    with run_workers(workers) as command:
        targets = [replace(target, core=index) for index, target in enumerate(targets_of(command))]
        for index, target in enumerate(targets):
            pin(target.pid, index)
        return send_to(targets, connections, warm_s, seconds)


def send_to(targets: Sequence[Target], connections: int, warm_s: float, seconds: float) -> list[ManyClientsResult]:
    """Runs a load program for each target at the same time, each with `connections` connections."""
    program = programs.compile_program("many")
    running = []
    for target in targets:
        batch = plain_requests.encode_batch(os.urandom(RECORD))
        requests = [plain_requests.produce_request(target.topic, batch, partition) for partition in range(PARTITIONS)]
        offset = plain_requests.error_code_offset(target.topic)
        numbers = (target.port, target.pid, connections, warm_s, seconds, offset)
        pinned = [] if target.core is None else ["taskset", "-c", str(target.core)]
        words = [*pinned, program, *map(str, numbers)]
        programs.command_log.append(shlex.join(words))
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(b"".join(requests))
        process.stdin.close()
        process.stdin = None
        running.append(process)
    outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in running]
    return [ManyClientsResult(**json.loads(output)) for output in outputs]


def measure_line(connections: int, turns: int, warm_s: float, seconds: float) -> WorkersResult:
    rates: dict[int, list[float]] = {1: [], 2: []}
    results: dict[int, list[ManyClientsResult]] = {1: [], 2: []}
    for _ in range(turns):
        for workers in (1, 2):
            of_turn = measure(workers, connections, warm_s, seconds)
            rates[workers].append(sum(it.per_s for it in of_turn))
            results[workers] += of_turn
    return WorkersResult(connections, rates[1], rates[2], results)


def print_line(line: WorkersResult) -> None:
    print(f"{line.connections} connections to each worker")
    for workers, rates in ((1, line.one), (2, line.two)):
        spread = " ".join(f"{rate:,.0f}" for rate in (min(rates), statistics.median(rates), max(rates)))
        print(
            f"  {workers} on cores 0 to {workers - 1}: {spread} requests/s (min, median, max); for each request "
            f"{line.cpu_us(workers):.1f} µs of the worker's processor time and {line.client_cpu_us(workers):.1f} µs of "
            "the load program's"
        )
    print(f"  ratio {line.ratio:.2f}, goal {GOAL}: {'reached' if line.ratio >= GOAL else 'missed'}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a ratio is below the goal, 2 if it may not run on cores 0 and 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description="Compare one worker with two.")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="turns of each case (default: 5)")
    parser.add_argument("--warm", type=float, default=3.0, metavar="S", help="unmeasured seconds (default: 3)")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="measured seconds (default: 4)")
    options = parser.parse_args(arguments)
    if not {0, 1} <= os.sched_getaffinity(0):
        print("bench.workers needs cores 0 and 1", file=sys.stderr)
        return 2
    for what, fact in machine.describe().items():
        print(f"{what}: {fact}")
    lines = [measure_line(connections, options.turns, options.warm, options.seconds) for connections in CONNECTIONS]
    for line in lines:
        print_line(line)
    print(f"load after: {os.getloadavg()[0]:.2f}")
    return 0 if all(line.ratio >= GOAL for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
