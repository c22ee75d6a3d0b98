"""One seed, two clusters: one copies the other while both are struck, takes over in the middle of it, and the old source comes home."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from math import inf
from random import Random
from typing import Any

from ottla_broker.broker import Broker
from ottla_broker.replication.partition import Partition
from tests.sim.admin import Admin, Mover
from tests.sim.client import World
from tests.sim.cluster import SimulatedCluster
from tests.sim.copies import led, may_fall_to
from tests.sim.copy_reader import CopyReader
from tests.sim.history import History, Place, TopicFate
from tests.sim.link_faults import LinkFaults
from tests.sim.member import Member
from tests.sim.mirror_admin import MirrorAdmin, Trimmer
from tests.sim.mirror_ending import Ending
from tests.sim.mirror_plan import MirrorPlan
from tests.sim.mirror_stage import BACK, THERE, Stage
from tests.sim.nemesis import Fault, Nemesis
from tests.sim.network import SimulatedNetwork
from tests.sim.processes import SimulatedLoop
from tests.sim.producer import ALL, Manner, Producer, Wanderer
from tests.sim.replicas import Watch
from tests.sim.scenario import TOPIC
from tests.sim.simulation import Director, Outcome, simulated
from tests.sim.strikes import Strikes
from tests.sim.trace import Trace
from tests.sim.virtual_loop import Deadlock

GROUP = "readers"
OWN_GROUP = "keepers"  # of the target's own
CHOSEN = f"{TOPIC},passing-*"
SETS_UP_WITHIN_S = 60.0
JOINS_WITHIN_S = 10.0
COPIES_WITHIN_S = 5.0
FEW, SOME, MANY = 5, 20, 1 << 30  # offsets
LOOK_S = 0.01


def run_mirrors(seed: int, *, tell: Callable[[str], None] | None = None, level: int = logging.WARNING) -> Outcome:
    """Runs one seed. `tell`, `level`: see `simulated`."""
    plan = MirrorPlan.of(seed)
    return simulated(seed, lambda loop, trace: MirrorSimulation(loop, plan, trace), tell=tell, level=level)


class MirrorSimulation:
    def __init__(self, loop: SimulatedLoop, plan: MirrorPlan, trace: Trace) -> None:
        self.random = Random(plan.seed ^ 0x0771A)
        self.faults: dict[str, int] = {}
        self._stage = Stage.of(plan, loop, trace, self.random)
        self._director = Director(loop, trace, self.random)
        self._forgetting = False
        self._hosts: list[str] = []
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def network(self) -> SimulatedNetwork:
        return self._stage.network

    @property
    def done(self) -> Mapping[str, int]:
        return self._stage.done

    @property
    def brokers(self) -> int:
        return self._stage.plan.source.brokers + self._stage.plan.target.brokers

    @property
    def histories(self) -> Sequence[History]:
        return self._stage.at_source.history, self._stage.at_target.history

    def run(self) -> list[str]:
        watches = [
            Watch(cluster, self._stage.trace, may_fall)
            for cluster, may_fall in ((self._stage.source, self._may_fall_to), (self._stage.target, may_fall_to))
        ]
        main = self._stage.loop.create_task(self._main(watches))
        try:
            with watches[0].appends(), self._stage.ancestry.appends():
                return self._stage.loop.run_until_complete(main)
        except Deadlock as reason:
            return [f"deadlock: {reason}"]

    async def _main(self, watches: Sequence[Watch]) -> list[str]:
        plan, trace = self._stage.plan, self._stage.trace
        trace.add_line(f"seed {plan.seed}: {plan}")
        for cluster, its in ((self._stage.source, plan.source), (self._stage.target, plan.target)):
            for broker in cluster:
                broker.disk.set_sync_s(0.0002, its.sync_s)
                broker.start()
        watching = [self._stage.loop.create_task(watch.run()) for watch in watches]
        if not await self._director.within(SETS_UP_WITHIN_S, self._stage.loop.create_task(self._set_up()), "set up"):
            return ["the clusters did not come up", *self._stage.problems()]
        self._start_at_source()
        if plan.set_at_once:
            await self._until(lambda: self._is_there(FEW), COPIES_WITHIN_S)
        await self._struck()
        trace.add_line("faults are over")
        ending = Ending(self._stage, self._director)
        broken = await ending.converged()
        for world in (self._stage.at_source, self._stage.admins_at_source, self._stage.at_target):
            world.stop.set()
        broken += await self._director.ended(self._tasks, 30)
        broken += await ending.checked()
        for task in watching:
            task.cancel()
        return broken + [problem for problem in self._stage.problems() if problem not in broken]

    def _may_fall_to(self, broker: Broker, partition: Partition) -> int | None:
        return 0 if self._stage.plan.forgets else may_fall_to(broker, partition)

    # --- who works on them

    def _client(self, kind: Callable[..., Any], world: World, name: str, **named: Any) -> Any:
        return self._director.client(kind, world, name, **named)

    def _start(self, kind: Callable[..., Any], world: World, name: str, **named: Any) -> None:
        client = self._client(kind, world, name, **named)
        self._hosts.append(name)
        self._tasks.append(client.process.run(client.run()))

    async def _set_up(self) -> None:
        admin = self._client(Admin, self._stage.at_source, "admin-0", replicas=self._stage.plan.source.replicas)
        await admin.process.run(admin.create(TOPIC, self._stage.plan.source.partitions))
        if self._stage.plan.set_at_once:
            await self._set_mirror_there()

    async def _set(self, world: World, name: str, settings: Mapping[str, str]) -> None:
        number = sum(self._stage.done.values())
        admin = self._client(MirrorAdmin, world, f"mirrorer-{number}")
        await admin.process.run(admin.set(name, settings))

    async def _set_mirror_there(self) -> None:
        settings = self._link(self._stage.source) | {"on.source.truncation": self._stage.plan.on_source_truncation}
        await self._set(self._stage.at_target, THERE, settings)

    def _link(self, source: SimulatedCluster) -> dict[str, str]:
        return {
            "bootstrap.servers": ",".join(source.addresses),
            "topics": CHOSEN,
            "groups": GROUP,
            "metadata.max.age.ms": str(self.random.choice((300, 1_000))),
            "fetch.max.wait.ms": str(self.random.choice((100, 500))),
        } | ({"offsets": "Appended"} if self._stage.plan.appended else {})

    def _start_at_source(self) -> None:
        plan, random, places = self._stage.plan, self.random, self._stage.places
        for number in range(2):
            self._start(
                Producer, self._stage.at_source, f"producer-{number}", places=places, manner=self._manner(plan.forgets)
            )
        self._start(Member, self._stage.admins_at_source, f"{GROUP}-0", group=GROUP, topic=TOPIC, rack="")
        if plan.passing:
            self._start(Admin, self._stage.admins_at_source, "admin-1", replicas=plan.source.replicas)
            self._start(
                Wanderer, self._stage.admins_at_source, "wanderer-1", manner=self._manner(plan.forgets), but=TOPIC
            )
        if plan.trims:
            self._start(
                Trimmer,
                self._stage.admins_at_source,
                "trimmer-1",
                places=places,
                groups=[GROUP],
                inside=plan.trims_inside,
            )
        if random.randrange(2):
            self._move(self._stage.admins_at_source, "mover-1", plan.source.brokers, plan.source.replicas)
        if random.randrange(2):
            self._move(self._stage.at_target, "mover-2", plan.target.brokers, plan.target.replicas)
        if plan.appended:
            self._start_takers()
            self._start(Member, self._stage.at_target, f"{OWN_GROUP}-0", group=OWN_GROUP, topic=TOPIC, rack="")
            if random.randrange(2):
                self._start(
                    Trimmer,
                    self._stage.at_target,
                    "trimmer-2",
                    places=places,
                    groups=[OWN_GROUP],
                    inside=plan.trims_inside,
                )
        # Where a copy begins inside of a batch, its high watermark may fall to that once.
        elif not (plan.remakes or plan.trims_inside):
            self._start(CopyReader, self._stage.at_target, "looker-1", places=places, group=GROUP)

    def _move(self, world: World, name: str, brokers: int, replicas: int) -> None:
        if brokers > 1:
            self._start(Mover, world, name, places=self._stage.places, brokers=brokers, replicas=replicas)

    def _manner(self, plain: bool) -> Manner:
        random = self.random
        idempotent = not plain and bool(random.randrange(2))
        return Manner(ALL, idempotent, random.choice((1, 3)), bool(random.randrange(2)), random.choice((0.1, 0.3)))

    # --- what happens to them

    async def _struck(self) -> None:
        plan, random = self._stage.plan, self.random
        until_s = self._stage.loop.time() + plan.faults_for_s
        hosts = [*self._hosts, *(one.host for one in self._stage.target)]
        at_source = ("wiped disk",) if plan.comes_home else ()  # it may take the files of what is cut off
        link = LinkFaults(self._stage.source, self._stage.target, Random(random.getrandbits(64)))
        forgets: list[tuple[int, str, Fault]] = (
            [(15, "forgets unseen", lambda _: self._forget(link))] if plan.forgets else []
        )
        nemeses = [
            Nemesis(self._stage.source, hosts, Random(random.getrandbits(64)), plan.source, at_source, forgets),
            Nemesis(self._stage.target, self._hosts, Random(random.getrandbits(64)), plan.target),
        ]
        strikes = [
            Strikes(cluster, Random(random.getrandbits(64))) for cluster in (self._stage.source, self._stage.target)
        ]
        working: list[Nemesis | LinkFaults] = [*nemeses, link]
        async with asyncio.TaskGroup() as tasks:
            for one in working:
                tasks.create_task(one.run(until_s))
            tasks.create_task(self._course(*strikes))
        for happened in (*(one.happened for one in working), *(one.happened for one in strikes)):
            for name, count in happened.items():
                self.faults[name] = self.faults.get(name, 0) + count

    async def _forget(self, link: LinkFaults) -> None:
        """What was copied; or nothing of it, if nothing comes to be copied."""
        if self._forgetting:
            return
        self._forgetting = True
        await self._until(lambda: self._ahead() <= FEW, COPIES_WITHIN_S)
        await link.forget_unseen()
        self._forgetting = False

    def _ahead(self) -> int:
        """By how many offsets the source is ahead where it is most of all."""
        ends, there = self._copied_to(), led(self._stage.source)
        known = [place for place in self._stage.places if place in ends and place in there]
        return max((there[place].log.high_watermark - ends[place] for place in known), default=MANY)

    async def _course(self, at_source: Strikes, at_target: Strikes) -> None:
        plan = self._stage.plan
        if not plan.set_at_once:
            await asyncio.sleep(self.random.uniform(0.1, 2))
            await self._set_mirror_there()
        if not plan.fails_over:
            return
        await asyncio.sleep(plan.fails_over_s)
        await self._until(lambda: self._is_there(SOME), COPIES_WITHIN_S)
        await self._until(self._is_there, inf)
        place = self.random.choice(self._stage.places)
        await self._prepare_failover()
        await (at_target.leader(place, self._fail_over) if plan.strikes else self._fail_over())
        if plan.comes_home:
            await asyncio.sleep(plan.comes_home_s)
            self._stage.trace.add_line("the old source becomes a mirror")
            await self._set(self._stage.at_source, BACK, self._link(self._stage.target) | {"on.divergence": "Truncate"})
            if plan.strikes:
                await at_source.leader(place, lambda: self._until_joined(place))

    async def _until(self, true: Callable[[], bool], within_s: float) -> None:
        """Or until the time is over."""
        deadline = self._stage.loop.time() + within_s
        while self._stage.loop.time() < deadline:
            if true():
                return
            await asyncio.sleep(LOOK_S)

    def _is_there(self, least: int = 0) -> bool:
        """Whether there is something to fail over: so many offsets in each partition."""
        ends = self._copied_to()
        return all(ends.get(place, -1) >= least for place in self._stage.places)

    def _copied_to(self) -> dict[Place, int]:
        """Up to which offset of the source everything is at the target."""
        ends = {copy.place: copy.led.log.end for copy in self._stage.copies() if copy.led is not None}
        return ends | {one.place: one.status.end for one in self._stage.fed() if one.status is not None}

    async def _prepare_failover(self) -> None:
        if not self._stage.plan.appended:
            self._start_takers()  # first in vain
        await asyncio.sleep(self.random.uniform(0, 1))
        if self._stage.plan.comes_home:
            self._stage.admins_at_source.stop.set()

    def _start_takers(self) -> None:
        self._stage.at_target.history.topics[TOPIC] = TopicFate(
            there=True, partitions=self._stage.plan.source.partitions
        )
        for number in range(2):
            self._start(
                Producer,
                self._stage.at_target,
                f"taker-{number}",
                places=self._stage.places,
                manner=self._manner(plain=False),
            )

    async def _fail_over(self) -> None:
        self._stage.trace.add_line("fails over")
        await self._set(self._stage.at_target, THERE, {"role": "FailedOver"})
        if not (self._stage.plan.trims or self._stage.plan.forgets or self._stage.plan.appended):
            self._start(Member, self._stage.at_target, f"{GROUP}-moved", group=GROUP, topic=TOPIC, rack="")

    async def _until_joined(self, place: Place) -> None:
        """Until it is known where a log of the old source is to be cut; not for ever."""
        await self._until(
            lambda: any(one.place == place and one.known.joined >= 0 for one in self._stage.homes()), JOINS_WITHIN_S
        )
