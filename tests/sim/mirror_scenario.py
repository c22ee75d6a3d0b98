"""One seed, two clusters: one copies the other while both are struck, takes over in the middle of it, and the old source comes home."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

from ottla_broker.broker import Broker
from ottla_broker.replication.partition import Partition
from tests.sim.admin import Admin, Mover
from tests.sim.ancestry import Ancestry
from tests.sim.appended import Fed, appended_are_there_once_and_in_order, fed_by, not_appended
from tests.sim.checks import broken_promises
from tests.sim.client import World
from tests.sim.cluster import Cluster
from tests.sim.copies import (
    CopyOf,
    acknowledged_are_there_or_saved,
    contents_of,
    copies_are_logs_of_their_source,
    copies_of,
    led,
    logs_are_one,
    may_fall_to,
    out_of_step,
    own_records_begin_behind,
    saved_in,
    without_what_went,
)
from tests.sim.copy_reader import CopyReader
from tests.sim.history import History, Place, TopicFate
from tests.sim.link_faults import LinkFaults
from tests.sim.member import Member
from tests.sim.mirror_admin import MirrorAdmin, Trimmer
from tests.sim.mirror_plan import MirrorPlan
from tests.sim.nemesis import Fault, Nemesis
from tests.sim.network import Network
from tests.sim.processes import SimulatedLoop
from tests.sim.producer import ALL, Manner, Producer, Wanderer
from tests.sim.replicas import Watch, at_rest, metadata_are_equal, replicas_are_equal
from tests.sim.runs import Director, Outcome, simulated
from tests.sim.scenario import TOPIC
from tests.sim.standing import newest_image, unwell
from tests.sim.strikes import Strikes
from tests.sim.trace import Trace
from tests.sim.virtual_loop import Deadlock

GROUP = "readers"
OWN_GROUP = "keepers"  # of the target's own
THERE, BACK = "west", "back"  # the mirror on the target, and the one on the old source
CHOSEN = f"{TOPIC},passing-*"
CONVERGES_WITHIN_S = 120.0
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
        self.plan = plan
        self.loop = loop
        self.trace = trace
        random = self.random = Random(plan.seed ^ 0x0771A)
        self.network = Network(loop, Random(random.getrandbits(64)))
        self.source, self.target = (
            Cluster(
                loop, Random(random.getrandbits(64)), one.brokers, one.settings, trace, network=self.network, hosts=name
            )
            for name, one in (("source", plan.source), ("target", plan.target))
        )
        self.done: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        self.ancestry = Ancestry()
        self.at_source, self.at_target = (self._world(cluster) for cluster in (self.source, self.target))
        self.at_target.history.sent = self.at_source.history.sent  # copies are sent to one, and found in the other
        self.at_target.history.once = self.at_source.history.once
        self.admins_at_source = replace(self.at_source, stop=asyncio.Event())  # stop before the others
        self._director = Director(loop, trace, random)
        self._forgetting = False
        self._hosts: list[str] = []
        self._tasks: list[asyncio.Task[Any]] = []

    def _world(self, cluster: Cluster) -> World:
        return World(cluster.addresses, History(tell=self.trace.say), self.trace, done=self.done)

    @property
    def brokers(self) -> int:
        return self.plan.source.brokers + self.plan.target.brokers

    @property
    def histories(self) -> Sequence[History]:
        return self.at_source.history, self.at_target.history

    def run(self) -> list[str]:
        watches = [
            Watch(cluster, self.trace, may_fall)
            for cluster, may_fall in ((self.source, self._may_fall_to), (self.target, may_fall_to))
        ]
        main = self.loop.create_task(self._main(watches))
        try:
            with watches[0].appends(), self.ancestry.appends():
                return self.loop.run_until_complete(main)
        except Deadlock as reason:
            return [f"deadlock: {reason}"]

    async def _main(self, watches: Sequence[Watch]) -> list[str]:
        plan, trace = self.plan, self.trace
        trace.say(f"seed {plan.seed}: {plan}")
        for cluster, its in ((self.source, plan.source), (self.target, plan.target)):
            for broker in cluster:
                broker.disk.set_sync_s(0.0002, its.sync_s)
                broker.start()
        watching = [self.loop.create_task(watch.run()) for watch in watches]
        if not await self._director.within(SETS_UP_WITHIN_S, self.loop.create_task(self._set_up()), "set up"):
            return ["the clusters did not come up", *self._problems()]
        self._start_at_source()
        if plan.set_at_once:
            await self._until(lambda: self._is_there(FEW), COPIES_WITHIN_S)
        await self._struck()
        trace.say("faults are over")
        broken = await self._converged()
        for world in (self.at_source, self.admins_at_source, self.at_target):
            world.stop.set()
        broken += await self._director.ended(self._tasks, 30)
        broken += await self._checked()
        for task in watching:
            task.cancel()
        return broken + [problem for problem in self._problems() if problem not in broken]

    def _may_fall_to(self, broker: Broker, partition: Partition) -> int | None:
        return 0 if self.plan.forgets else may_fall_to(broker, partition)

    def _problems(self) -> list[str]:
        """A source that forgets breaks its promises to its clients: nobody counts that."""
        kept = [self.at_target] if self.plan.forgets else [self.at_source, self.at_target]
        return [problem for world in kept for problem in world.history.problems]

    # --- who works on them

    @property
    def _places(self) -> list[Place]:
        return [(TOPIC, partition) for partition in range(self.plan.source.partitions)]

    def _client(self, kind: Callable[..., Any], world: World, name: str, **named: Any) -> Any:
        return self._director.client(kind, world, name, **named)

    def _start(self, kind: Callable[..., Any], world: World, name: str, **named: Any) -> None:
        client = self._client(kind, world, name, **named)
        self._hosts.append(name)
        self._tasks.append(client.process.run(client.run()))

    async def _set_up(self) -> None:
        admin = self._client(Admin, self.at_source, "admin-0", replicas=self.plan.source.replicas)
        await admin.process.run(admin.create(TOPIC, self.plan.source.partitions))
        if self.plan.set_at_once:
            await self._set_mirror_there()

    async def _set(self, world: World, name: str, settings: Mapping[str, str]) -> None:
        number = sum(self.done.values())
        admin = self._client(MirrorAdmin, world, f"mirrorer-{number}")
        await admin.process.run(admin.set(name, settings))

    async def _set_mirror_there(self) -> None:
        settings = self._link(self.source) | {"on.source.truncation": self.plan.on_source_truncation}
        await self._set(self.at_target, THERE, settings)

    def _link(self, source: Cluster) -> dict[str, str]:
        return {
            "bootstrap.servers": ",".join(source.addresses),
            "topics": CHOSEN,
            "groups": GROUP,
            "metadata.max.age.ms": str(self.random.choice((300, 1_000))),
            "fetch.max.wait.ms": str(self.random.choice((100, 500))),
        } | ({"offsets": "Appended"} if self.plan.appended else {})

    def _start_at_source(self) -> None:
        plan, random, places = self.plan, self.random, self._places
        for number in range(2):
            self._start(
                Producer, self.at_source, f"producer-{number}", places=places, manner=self._manner(plan.forgets)
            )
        self._start(Member, self.admins_at_source, f"{GROUP}-0", group=GROUP, topic=TOPIC, rack="")
        if plan.passing:
            self._start(Admin, self.admins_at_source, "admin-1", replicas=plan.source.replicas)
            self._start(Wanderer, self.admins_at_source, "wanderer-1", manner=self._manner(plan.forgets), but=TOPIC)
        if plan.trims:
            self._start(
                Trimmer, self.admins_at_source, "trimmer-1", places=places, groups=[GROUP], inside=plan.trims_inside
            )
        if random.randrange(2):
            self._move(self.admins_at_source, "mover-1", plan.source.brokers, plan.source.replicas)
        if random.randrange(2):
            self._move(self.at_target, "mover-2", plan.target.brokers, plan.target.replicas)
        if plan.appended:
            self._start_takers()
            self._start(Member, self.at_target, f"{OWN_GROUP}-0", group=OWN_GROUP, topic=TOPIC, rack="")
            if random.randrange(2):
                self._start(
                    Trimmer, self.at_target, "trimmer-2", places=places, groups=[OWN_GROUP], inside=plan.trims_inside
                )
        # Where a copy begins inside of a batch, its high watermark may fall to that once.
        elif not (plan.remakes or plan.trims_inside):
            self._start(CopyReader, self.at_target, "looker-1", places=places, group=GROUP)

    def _move(self, world: World, name: str, brokers: int, replicas: int) -> None:
        if brokers > 1:
            self._start(Mover, world, name, places=self._places, brokers=brokers, replicas=replicas)

    def _manner(self, plain: bool) -> Manner:
        random = self.random
        idempotent = not plain and bool(random.randrange(2))
        return Manner(ALL, idempotent, random.choice((1, 3)), bool(random.randrange(2)), random.choice((0.1, 0.3)))

    # --- what happens to them

    async def _struck(self) -> None:
        plan, random = self.plan, self.random
        until_s = self.loop.time() + plan.faults_for_s
        hosts = [*self._hosts, *(one.host for one in self.target)]
        # A wipe may take the files of what is cut off; or it leaves a topic that was made just then, of which nobody else had a replica yet, to nobody.
        at_source, at_target = (("wiped disk",) if spared else () for spared in (plan.comes_home, plan.passing))
        link = LinkFaults(self.source, self.target, Random(random.getrandbits(64)))
        forgets: list[tuple[int, str, Fault]] = (
            [(15, "forgets unseen", lambda _: self._forget(link))] if plan.forgets else []
        )
        nemeses = [
            Nemesis(self.source, hosts, Random(random.getrandbits(64)), plan.source, at_source, forgets),
            Nemesis(self.target, self._hosts, Random(random.getrandbits(64)), plan.target, at_target),
        ]
        strikes = [Strikes(cluster, Random(random.getrandbits(64))) for cluster in (self.source, self.target)]
        async with asyncio.TaskGroup() as tasks:
            for one in (*nemeses, link):
                tasks.create_task(one.run(until_s))
            tasks.create_task(self._course(*strikes))
        for one in (*nemeses, link, *strikes):
            for name, count in one.happened.items():
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
        ends, there = self._copied_to(), led(self.source)
        known = [place for place in self._places if place in ends and place in there]
        return max((there[place].log.high_watermark - ends[place] for place in known), default=MANY)

    async def _course(self, at_source: Strikes, at_target: Strikes) -> None:
        plan = self.plan
        if not plan.set_at_once:
            await asyncio.sleep(self.random.uniform(0.1, 2))
            await self._set_mirror_there()
        if not plan.fails_over:
            return
        await asyncio.sleep(plan.fails_over_s)
        await self._until(lambda: self._is_there(SOME), COPIES_WITHIN_S)
        await self._until(self._is_there, inf)
        place = self.random.choice(self._places)
        await self._prepare_failover()
        await (at_target.leader(place, self._fail_over) if plan.strikes else self._fail_over())
        if plan.comes_home:
            await asyncio.sleep(plan.comes_home_s)
            self.trace.say("the old source becomes a mirror")
            await self._set(self.at_source, BACK, self._link(self.target) | {"on.divergence": "Truncate"})
            if plan.strikes:
                await at_source.leader(place, lambda: self._until_joined(place))

    async def _until(self, true: Callable[[], bool], within_s: float) -> None:
        """Or until the time is over."""
        deadline = self.loop.time() + within_s
        while self.loop.time() < deadline:
            if true():
                return
            await asyncio.sleep(LOOK_S)

    def _is_there(self, least: int = 0) -> bool:
        """Whether there is something to fail over: so many offsets in each partition."""
        ends = self._copied_to()
        return all(ends.get(place, -1) >= least for place in self._places)

    def _copied_to(self) -> dict[Place, int]:
        """Up to which offset of the source everything is at the target."""
        ends = {copy.place: copy.led.log.end for copy in self._copies() if copy.led is not None}
        return ends | {one.place: one.status.end for one in self._fed() if one.status is not None}

    def _fed(self) -> list[Fed]:
        return fed_by(self.target, THERE, self.loop.time())

    def _copies(self) -> list[CopyOf]:
        return copies_of(self.target, THERE, self.loop.time())

    async def _prepare_failover(self) -> None:
        if not self.plan.appended:
            self._start_takers()  # first in vain
        await asyncio.sleep(self.random.uniform(0, 1))
        if self.plan.comes_home:
            self.admins_at_source.stop.set()

    def _start_takers(self) -> None:
        self.at_target.history.topics[TOPIC] = TopicFate(there=True, partitions=self.plan.source.partitions)
        for number in range(2):
            self._start(
                Producer, self.at_target, f"taker-{number}", places=self._places, manner=self._manner(plain=False)
            )

    async def _fail_over(self) -> None:
        self.trace.say("fails over")
        await self._set(self.at_target, THERE, {"role": "FailedOver"})
        if not (self.plan.trims or self.plan.forgets or self.plan.appended):
            self._start(Member, self.at_target, f"{GROUP}-moved", group=GROUP, topic=TOPIC, rack="")

    async def _until_joined(self, place: Place) -> None:
        """Until it is known where a log of the old source is to be cut; not for ever."""
        await self._until(
            lambda: any(one.place == place and one.known.joined >= 0 for one in self._homes()), JOINS_WITHIN_S
        )

    def _homes(self) -> list[CopyOf]:
        return copies_of(self.source, BACK, self.loop.time())

    # --- afterwards

    async def _converged(self) -> list[str]:
        """Both clusters are well, everybody who may write gets on, and the copies are what they should be or say why not."""
        acks = [
            (world.history, name, world.history.acks_of[name])
            for world in self._worlds()
            for name in dict.fromkeys(world.history.sent.values())
            if name.startswith("producer" if world is self.at_source else "taker")
        ]
        reached = {place: one.log.high_watermark for place, one in led(self.source).items()}

        def missing() -> list[str]:
            return [
                *(f"{name} is silent" for history, name, count in acks if history.acks_of[name] <= count),
                *self._ill(),
                *self._behind(reached),
            ]

        return await self._until_nothing(missing, "no convergence")

    def _worlds(self) -> list[World]:
        """Where producers may write in the end."""
        found = [] if self.plan.comes_home else [self.at_source]
        return found + ([self.at_target] if self.plan.fails_over or self.plan.appended else [])

    def _ill(self) -> list[str]:
        found: list[str] = []
        for cluster in (self.source, self.target):
            image = newest_image(cluster)
            found += [f"{broker.host} is down" for broker in cluster if not broker.up]
            found += [f"no {cluster.hosts} runs"] if image is None else unwell(image)
        return found

    def _behind(self, reached: Mapping[Place, int]) -> list[str]:
        """Copies that have not come as far as their source was when the faults were over, and do not say why."""
        if self.plan.fails_over or self.plan.appended:
            return []
        found = {copy.place: copy for copy in self._copies()}
        return [
            f"the copy of {place} has not come to {end}"
            for place, end in reached.items()
            if place[0] == TOPIC
            and ((copy := found.get(place)) is None or (copy.led is not None and copy.led.log.end < end))
            and not (copy is not None and copy.known.stopped and not self.plan.resyncs)
        ]

    async def _until_nothing(self, missing: Callable[[], list[str]], otherwise: str) -> list[str]:
        return await self._director.until_nothing(
            missing,
            CONVERGES_WITHIN_S,
            otherwise,
            lost=lambda: bool(self._problems() or self.trace.problems),
            clusters=(self.source, self.target),
        )

    def _unfinished(self) -> list[str]:
        """What moves still, and what is not as it should be when nothing does."""
        now_s, resyncs = self.loop.time(), self.plan.resyncs
        found = [*at_rest(self.source), *at_rest(self.target), *self._ill()]
        if self.plan.appended:
            if not self.plan.fails_over:
                found += not_appended(self.source, self._fed(), may_stop=self.plan.forgets and not resyncs)
            else:
                found += [
                    f"{one.place} is {one.status}"
                    for one in self._fed()
                    if one.status is None or one.status.state != "FailedOver"
                ]
        elif not self.plan.fails_over:
            found += out_of_step(self.source, self.target, THERE, now_s, resyncs=resyncs)
        else:
            found += [
                f"{copy.place} is {copy.status}"
                for copy in copies_of(self.target, THERE, now_s)
                if copy.status is None or copy.status.state != "FailedOver"
            ]
        if self.plan.comes_home:
            found += out_of_step(self.target, self.source, BACK, now_s, resyncs=False)
            home = {copy.place for copy in self._homes()}
            found += [f"{place} has not come home" for place in self._places if place not in home]
        return found

    def _count(self) -> None:
        """What this run was about, for whoever counts."""
        found = [
            *("partition appended to" for _ in self._fed()),
            *("partition copied" for copy in self._copies() if not copy.topic.failed_over),
            *("partition failed over" for copy in self._copies() if copy.topic.failed_over),
            *("partition stopped" for copy in self._copies() if copy.known.stopped),
            *("partition come home" for _ in self._homes()),
            *(["run with a file of what was cut off"] if saved_in(self.source) else []),
        ]
        for what in found:
            self.done[what] = self.done.get(what, 0) + 1

    async def _checked(self) -> list[str]:
        broken = await self._until_nothing(self._unfinished, "no rest")
        self._count()
        now_s, plan = self.loop.time(), self.plan
        for cluster in (self.source, self.target):
            broken += [*replicas_are_equal(cluster, trimmed=self.plan.trims), *metadata_are_equal(cluster)]
        broken += copies_are_logs_of_their_source(self.target, THERE, self.ancestry, now_s)
        still = not (plan.forgets or plan.comes_home)
        broken += logs_are_one(self.source, self.target, THERE, now_s, from_source=still)
        broken += logs_are_one(self.target, self.source, BACK, now_s)
        broken += own_records_begin_behind(self.at_target.history, self.target, THERE, now_s)
        contents, topics, starts = contents_of(self.target)
        broken += broken_promises(self._of_both(starts), contents, topics)
        contents, topics, starts = contents_of(self.source)
        broken += appended_are_there_once_and_in_order(contents, starts, self._fed(), keeps=not plan.forgets)
        if plan.comes_home:
            kept = replace(
                self.at_source.history, acks=[ack for ack in self.at_source.history.acks if ack.place[0] == TOPIC]
            )
            if not plan.forgets:
                kept = without_what_went(kept, starts)
                broken += acknowledged_are_there_or_saved(kept, contents, saved_in(self.source))
        elif not plan.forgets:
            broken += broken_promises(without_what_went(self.at_source.history, starts), contents, topics)
        return broken

    def _of_both(self, starts: Mapping[Place, int]) -> History:
        """The target's history; its groups had seen at the source what they had when they moved."""
        history = without_what_went(self.at_target.history, starts)
        for group in history.seen:
            for place, records in self.at_source.history.seen.get(group, {}).items():
                own = history.seen[group].get(place, {})
                ends = [copy.known.end for copy in self._copies() if copy.place == place]
                history.seen[group][place] = {at: value for at, value in records.items() if at < ends[0]} | own
        return history
