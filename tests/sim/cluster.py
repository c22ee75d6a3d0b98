"""Whole brokers in one event loop, each with its own host, disk, wall clock and random numbers, and
one process at a time.
"""

import asyncio
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, cast

from ottla_broker.broker import Broker
from ottla_broker.config import Config
from ottla_broker.dispatcher import answer_locally
from ottla_broker.listener_certificates import ListenError
from ottla_broker.log.meta_properties import LogDirError
from ottla_broker.metadata.records import Endpoint
from ottla_broker.runtime import Runtime
from ottla_broker.server import Server
from ottla_broker.wire.errors import KafkaError
from tests.sim.disk import SimulatedDisk, SimulatedExecutor
from tests.sim.network import SimulatedNetwork
from tests.sim.processes import NO_PROCESS, SimulatedLoop, SimulatedProcess
from tests.sim.trace import Trace

PORT = 9092
DEFAULT_VOTERS = 3
FETCH_TIMEOUT_MS = 2_000
START_MS = 1_750_000_000_000  # the wall clock at the start of a run
FOLDER = "/data"
START_FAILURES = (KafkaError, LogDirError, ListenError)
RESTART_DELAY_S = 1.0
STOPS_WITHIN_S = 20.0


class SimulatedBroker:
    """A host with a broker, which runs or is stopped. Controlled by the driver of a run, not by
    processes.
    """

    def __init__(self, cluster: "SimulatedCluster", node_id: int, settings: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.host = f"{cluster.host_prefix}-{node_id}"
        self.clock_offset_ms = 0
        self.settings = dict(settings)
        self.process: SimulatedProcess | None = None
        self.broker: Broker | None = None
        self.server: Server | None = None
        self._restart: asyncio.TimerHandle | None = None
        self.may_found = node_id == 1  # cluster.found, as the operator sets it until the disk is lost
        self.is_serving = False
        self.starts = 0
        self.boots = 0
        self._moves = 0
        self._cluster = cluster
        self._loop = cluster.loop
        self._trace = cluster.trace
        self._random = Random(cluster.random.getrandbits(64))
        self._serving: asyncio.Task[None] | None = None
        self.disk = SimulatedDisk(Random(cluster.random.getrandbits(64)), self._loop.time, self.now_ms)
        self.disk.mount(FOLDER)

    def now_ms(self) -> int:
        return START_MS + int(self._loop.time() * 1000) + self.clock_offset_ms

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.alive

    # --- starting and stopping

    def start(self) -> None:
        """Starts the process; `is_serving` becomes True when it serves clients. A failed start is
        retried, as by a supervisor.
        """
        assert not self.is_running, f"{self.host} is already running"
        self.starts += 1
        self.process = SimulatedProcess(self._loop, self.host, self.starts)
        self.process.on_exit.append(self.disk.release_locks)
        self._trace.add_line(f"starts, process {self.starts}", self.host)
        self._serving = self.process.run(self._serve(self.process))

    async def _serve(self, process: SimulatedProcess) -> None:
        try:
            config = Config.of(
                {
                    "node.id": str(self.node_id),
                    "listeners": f"PLAINTEXT://{self.host}:{PORT}",
                    "log.dirs": FOLDER,
                    "broker.rack": f"rack-{self.node_id % 3}",
                    "controller.quorum.bootstrap.servers": ",".join(self._cluster.peer_addresses),
                    "cluster.found": str(self.may_found).lower(),
                    **{name: text.replace("{host}", self.host) for name, text in self.settings.items()},
                }
            )
            runtime = Runtime(
                now_ms=self.now_ms,
                random=Random(self._random.getrandbits(64)),
                executor=SimulatedExecutor(self.disk),
                boot_id=lambda: f"{self.host}, boot {self.boots}",
            )
            broker = Broker(
                config,
                answer_locally,
                runtime=runtime,
                disk=self.disk,
            )
            self.broker = broker
            self.server = server = Server(
                broker,
                # The simulated socket stands in for a real one.
                listen_on=lambda at, _: cast(Any, self._cluster.network.listen(at.host or "", at.port)),
            )
            endpoints = server.bind()
            await server.serve()
            await broker.start(
                {name: Endpoint(at.host, at.port, config.security_protocol(name)) for name, at in endpoints.items()}
            )
        except START_FAILURES as reason:
            self._trace.add_line(f"cannot start: {reason}")
            self._loop.call_soon(self._on_start_failure, process, context=NO_PROCESS)
        except Exception as error:
            self._trace.record_problem(f"{self.host} failed to start: {error!r}")
            raise
        else:
            self.is_serving = True
            self._trace.add_line("is ready")

    def _on_start_failure(self, process: SimulatedProcess) -> None:
        """Removes a process whose start failed, and restarts it after a delay."""
        process.kill()
        if self.process is process:
            self._clear()
            self._restart = self._loop.call_later(RESTART_DELAY_S, self._start_again, context=NO_PROCESS)

    def _start_again(self) -> None:
        if not self.is_running and self._cluster.network.host(self.host).powered:
            self.start()

    def _clear(self) -> None:
        self.is_serving = False
        self.process = self.broker = self.server = self._serving = None

    def kill(self) -> None:
        """SIGKILL: the page cache survives."""
        self._trace.add_line("is killed", self.host)
        self._kill()

    def _kill(self) -> None:
        if self._restart is not None:  # the caller decides when the broker starts again
            self._restart.cancel()
            self._restart = None
        if self.process is not None:
            self.process.kill()
        self._clear()

    def lose_power(self) -> None:
        self._cluster.network.lose_power(self.host)  # first, so that the dying process sends nothing
        self._kill()
        self.boots += 1
        lost = self.disk.lose_power()
        self._trace.add_line("loses power" + "".join(f"; lost {what}" for what in lost), self.host)

    def power_on(self) -> None:
        self._cluster.network.power_on(self.host)

    async def stop(self, within_s: float = STOPS_WITHIN_S) -> bool:
        """Stops the broker as SIGTERM does, and kills it after `within_s`. Returns True if the stop
        ended in time. An exception that it raises is a problem of the run.
        """
        process, broker, server = self.process, self.broker, self.server
        assert process is not None
        assert broker is not None
        assert server is not None
        self._trace.add_line("is asked to stop", self.host)

        async def stopping() -> None:
            await broker.controlled_shutdown()
            await server.close()
            await broker.stop()

        done, _ = await asyncio.wait([process.run(stopping())], timeout=within_s)
        for task in done:
            if (error := task.exception()) is not None:
                self._trace.record_problem(f"{self.host} failed to stop: {error!r}")
        self._trace.add_line("has stopped" if done else "did not stop in time and is killed", self.host)
        if self.process is process:
            self._kill()
        return bool(done)

    def wipe(self) -> None:
        assert not self.is_running
        self._trace.add_line("loses its disk", self.host)
        self.disk.wipe()
        self.disk.mount(FOLDER)
        self.may_found = False

    def move(self) -> None:
        """Gives the disk to a machine with another address."""
        assert not self.is_running
        self._moves += 1
        self.host = f"{self._cluster.host_prefix}-{self.node_id}-{self._moves}"
        self._trace.add_line("moved to another address", self.host)


class SimulatedCluster:
    """Brokers 1 to `count` and their network.

    `network` None creates one. `host_prefix` begins the names of the brokers' hosts.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        count: int,
        settings: Mapping[str, str],
        trace: Trace,
        *,
        network: SimulatedNetwork | None = None,
        host_prefix: str = "broker",
    ) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.host_prefix = host_prefix
        self.network = SimulatedNetwork(loop, Random(random.getrandbits(64))) if network is None else network
        self.settings = settings
        self.brokers = {node_id: SimulatedBroker(self, node_id, settings) for node_id in range(1, count + 1)}

    def list_addresses(self) -> list[str]:
        return [f"{broker.host}:{PORT}" for broker in self]

    @property
    def peer_addresses(self) -> list[str]:
        """Addresses at which brokers look for an existing cluster; none for a single broker."""
        return self.list_addresses() if len(self.brokers) > 1 else []

    @property
    def check_quorum_timeout_s(self) -> float:
        """Time after which a leader without a majority of the voters resigns."""
        return 1.5 * float(self.settings.get("controller.quorum.fetch.timeout.ms", FETCH_TIMEOUT_MS)) / 1000

    @property
    def voter_count(self) -> int:
        """Number of voters once all brokers have joined."""
        wanted = int(self.settings.get("controller.quorum.voter.count", DEFAULT_VOTERS))
        return max(count for count in (1, 3, 5) if count == 1 or count <= min(wanted, len(self.brokers)))

    def __iter__(self) -> Iterator[SimulatedBroker]:
        return iter(self.brokers.values())
