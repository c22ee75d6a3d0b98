"""One seed, one run: a cluster and its clients, faults for a while, peace, and then the checks."""

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kio.schema.metadata.v12.response import MetadataResponse

from ottla_broker.wire.batch import batches
from ottla_broker.wire.client import Client
from ottla_broker.wire.records import decode_all
from tests.sim.checks import Contents, Kept, broken_promises, replicas_are_equal
from tests.sim.clients import FAILURES, Admin, Member, Producer, SimulatedClient, World, committed
from tests.sim.cluster import Cluster
from tests.sim.history import History, Place
from tests.sim.nemesis import Allowed, Nemesis
from tests.sim.processes import Process, SimulatedLoop
from tests.sim.trace import Trace
from tests.sim.virtual_loop import Deadlock

TOPIC = "events"
GROUPS = ("readers", "others")
CONVERGES_WITHIN_S = 120.0
FAULTS_FOR_S = (15.0, 45.0)
SYNC_S = (0.004, 0.02, 0.1)


@dataclass
class Outcome:
    """`broken`: promises that were broken; empty: the run passed. `digest`: equal for two runs of one seed."""

    seed: int
    broken: list[str]
    digest: int
    lines: list[str]
    faults: dict[str, int]
    acks: int
    reads: int
    virtual_s: float
    cpu_s: float
    packets: int


@dataclass
class Plan:
    """What a seed makes of a run."""

    seed: int
    brokers: int = 1
    settings: dict[str, str] = field(default_factory=dict)
    synced: bool = False
    partitions: int = 1
    faults_for_s: float = 20.0
    sync_s: float = 0.004  # the longest that one fsync takes

    @classmethod
    def of(cls, seed: int, brokers: int) -> "Plan":
        random = Random(seed)
        synced = bool(random.randrange(2))
        settings = {
            "log.segment.bytes": str(random.choice((4 << 10, 32 << 10, 1 << 20))),
            "log.index.interval.bytes": str(random.choice((256, 4096))),
            "offsets.topic.num.partitions": str(random.choice((1, 3))),
            "offsets.topic.segment.bytes": str(random.choice((4 << 10, 1 << 20))),
            "log.cleaner.backoff.ms": str(random.choice((1_000, 15_000))),
            "log.flush.offset.checkpoint.interval.ms": str(random.choice((2_000, 60_000))),
            "replica.high.watermark.checkpoint.interval.ms": str(random.choice((1_000, 5_000))),
            "group.initial.rebalance.delay.ms": str(random.choice((0, 500))),
            "group.min.session.timeout.ms": "1000",
            "offsets.topic.replication.factor": str(min(3, brokers)),
            "auto.create.topics.enable": "false",
        }
        if synced:
            settings["log.flush.interval.messages"] = "1"
        return cls(
            seed,
            brokers,
            settings,
            synced,
            random.choice((1, 2, 3)),
            random.uniform(*FAULTS_FOR_S),
            random.choice(SYNC_S),
        )


def run(
    seed: int, brokers: int = 1, *, tell: Callable[[str], None] | None = None, level: int = logging.WARNING
) -> Outcome:
    """Runs one seed. `tell`: where to put each line of the trace as it comes; `level`: what of the brokers' own logs is in it."""
    started = time.process_time()
    plan = Plan.of(seed, brokers)
    loop = SimulatedLoop()
    trace = Trace(loop.time, tell)
    trace.follow(level)
    loop.set_exception_handler(trace.loop_failed)
    gc.disable()  # a run is short, and what is collected when must not depend on what ran before
    try:
        simulation = Simulation(loop, plan, trace)
        broken = simulation.run()
        loop.set_exception_handler(lambda *_: None)
        return Outcome(
            seed,
            broken + trace.problems,
            simulation.cluster.network.digest,
            trace.lines,
            simulation.faults,
            len(simulation.history.acks),
            sum(len(records) for places in simulation.history.seen.values() for records in places.values()),
            loop.time(),
            time.process_time() - started,
            simulation.cluster.network.packets,
        )
    finally:
        trace.unfollow()
        _forget(loop)
        gc.enable()


def _forget(loop: SimulatedLoop) -> None:
    """Coroutines of dead processes are closed here, in silence: what their `finally`s say concerns nobody."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        loop.close()
        gc.collect()
    finally:
        sys.unraisablehook = hook
        logging.disable(level)


class Simulation:
    def __init__(self, loop: SimulatedLoop, plan: Plan, trace: Trace) -> None:
        self.plan = plan
        self.loop = loop
        self.trace = trace
        self.random = Random(plan.seed ^ 0x0771A)
        self.cluster = Cluster(loop, Random(self.random.getrandbits(64)), plan.brokers, plan.settings, trace)
        self.history = History()
        self.faults: dict[str, int] = {}
        self.world: World

    def run(self) -> list[str]:
        main = self.loop.create_task(self._main())
        try:
            return self.loop.run_until_complete(main)
        except Deadlock as reason:
            return [f"deadlock: {reason}"]

    async def _main(self) -> list[str]:
        plan, trace = self.plan, self.trace
        trace.say(f"seed {plan.seed}: {plan}")
        self.world = World(self.cluster.bootstrap, self.history, trace)
        for broker in self.cluster:
            broker.disk.set_sync_s(0.0002, plan.sync_s)
            broker.start()
        setting_up = self._client(Admin, "admin-0", replicas=min(3, plan.brokers))
        if not await self._within(60, setting_up.process.run(setting_up.create(TOPIC, plan.partitions)), "set up"):
            return ["the cluster did not come up", *self.history.problems]
        clients = self._clients()
        tasks = [client.process.run(client.run()) for client in clients]
        nemesis = Nemesis(
            self.cluster, [client.name for client in clients], Random(self.random.getrandbits(64)), Allowed(plan.synced)
        )
        await nemesis.run(self.loop.time() + plan.faults_for_s)
        self.faults = nemesis.happened
        trace.say("faults are over")
        broken = await self._converged()
        self.world.stop.set()
        _, late = await asyncio.wait(tasks, timeout=30)
        for task in tasks:
            if task.done() and (error := task.exception()) is not None:
                broken.append(f"a client failed: {error!r}")
        broken += [f"a client does not end: {task}" for task in late]
        broken += await self._checked()
        return broken + [problem for problem in self.history.problems if problem not in broken]

    def _clients(self) -> list[Any]:
        random, plan = self.random, self.plan
        places = [(TOPIC, partition) for partition in range(plan.partitions)]
        made: list[Any] = [
            self._client(
                Producer,
                f"producer-{number}",
                places=random.sample(places, random.randrange(1, len(places) + 1)),
                pause_s=random.choice((0.05, 0.1, 0.4)),
                idempotent=number % 2 == 0,
            )
            for number in range(3)
        ]
        for group in GROUPS[: random.randrange(1, 3)]:
            made += [
                self._client(Member, f"{group}-{number}", group=group, topic=TOPIC, partitions=plan.partitions)
                for number in range(random.randrange(1, 4))
            ]
        made.append(self._client(Admin, "admin-1", replicas=min(3, plan.brokers)))
        return made

    def _client(self, kind: Callable[..., Any], name: str, **named: Any) -> Any:
        return kind(self.world, Process(self.loop, name), Random(self.random.getrandbits(64)), **named)

    async def _within(self, seconds: float, task: "asyncio.Task[Any]", what: str) -> bool:
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            self.trace.say(f"not within {seconds} s: {what}")
            return False
        task.result()
        return True

    # --- afterwards

    async def _converged(self) -> list[str]:
        """Everybody gets on again: each producer's acks and each group's commits move past where they are now."""
        deadline = self.loop.time() + CONVERGES_WITHIN_S
        acks = {name: self._count(name) for name in self._producers()}
        ends = dict(self.history.high_watermarks)
        while self.loop.time() < deadline:
            await asyncio.sleep(0.5)
            silent = [name for name, count in acks.items() if self._count(name) <= count]
            behind = [
                (group, place)
                for group in self.history.seen
                for place, end in ends.items()
                if self.history.committed.get((group, place), 0) < end
            ]
            if not silent and not behind and all(broker.up for broker in self.cluster):
                self.trace.say("everybody gets on again")
                return []
        down = [broker.host for broker in self.cluster if not broker.up]
        return [f"no convergence in {CONVERGES_WITHIN_S} s: silent {silent}, behind {behind}, down {down}"]

    def _producers(self) -> set[str]:
        return set(self.history.sent.values())

    def _count(self, producer: str) -> int:
        return sum(1 for ack in self.history.acks if self.history.sent[ack.values[0]] == producer)

    async def _checked(self) -> list[str]:
        reader = SimulatedClient(
            World(self.cluster.bootstrap, self.history, self.trace), Process(self.loop, "reader"), self.random
        )
        task = reader.process.run(self._read_everything(reader))
        if not await self._within(60, task, "read everything"):
            return ["the contents cannot be read"]
        contents, topics = task.result()
        return broken_promises(self.history, contents, topics) + list(replicas_are_equal(self._replicas()))

    async def _read_everything(self, reader: SimulatedClient) -> tuple[Contents, dict[str, int]]:
        contents: dict[Place, dict[int, Kept]] = {}
        while True:
            try:
                async with reader.connected() as client:
                    answer: MetadataResponse = await client.metadata()
                    topics = {topic.name or "": len(topic.partitions) for topic in answer.topics}
                    for partition in range(self.plan.partitions):
                        place = (TOPIC, partition)
                        contents[place] = await self._read(client, place)
                    for group in self.history.seen:
                        for place, offset in (await committed(client, group, list(contents))).items():
                            known = self.history.committed.get((group, place), -1)
                            self.history.told_committed(group, place, offset, known)
                    return contents, topics
            except FAILURES as reason:
                reader.failed("read everything", reason)
                await reader.pause()

    async def _read(self, client: Client, place: Place) -> dict[int, Kept]:
        found: dict[int, Kept] = {}
        known = self.history.high_watermarks.get(place, 0)
        offset = 0
        while True:
            fetched = await client.fetch(*place, offset, max_wait_s=0.0)
            if not fetched.records:
                self.history.told_high_watermark(place, fetched.high_watermark, known)
                return found
            for header, record in decode_all(fetched.records):
                found[record.offset] = Kept(record.value or b"", header.leader_epoch)
                offset = header.next_offset

    def _replicas(self) -> dict[Place, dict[int, dict[int, bytes]]]:
        """Straight from the brokers' logs."""
        found: dict[Place, dict[int, dict[int, bytes]]] = {}
        for node in self.cluster:
            if node.broker is None:
                continue
            for partition in range(self.plan.partitions):
                hosted = node.broker.partitions.get(TOPIC, partition)
                if hosted is None:
                    continue
                log, kept = hosted.log, dict[int, bytes]()
                offset = log.start
                while offset < log.high_watermark:
                    data = log.read(offset, 1 << 20, up_to=log.high_watermark)
                    if not data:
                        break
                    for at, header in batches(data):
                        kept[header.base_offset] = bytes(data[at : at + header.size])
                        offset = header.next_offset
                found.setdefault((TOPIC, partition), {})[node.node_id] = kept
        return found
