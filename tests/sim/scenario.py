"""One seed, one run: a cluster and its clients, faults for a while, peace, and then the checks."""

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.sim.admin import Admin, Mover
from tests.sim.checks import broken_promises
from tests.sim.client import World
from tests.sim.cluster import SimulatedCluster
from tests.sim.history import History, Place
from tests.sim.member import Member
from tests.sim.nemesis import Nemesis
from tests.sim.network import SimulatedNetwork
from tests.sim.onlooker import ONLOOKER, Onlooker
from tests.sim.plan import Plan
from tests.sim.processes import SimulatedLoop, SimulatedProcess
from tests.sim.producer import ALL, NONE, ONE, Manner, Producer, Wanderer
from tests.sim.reader import Reader
from tests.sim.replicas import Watch, at_rest, broken_at_rest, images_apart
from tests.sim.simulation import Director, Outcome, simulated
from tests.sim.standing import newest_image, unwell
from tests.sim.trace import Trace
from tests.sim.trusted import Trusted
from tests.sim.virtual_loop import Deadlock

TOPIC = "events"
GROUPS = ("readers", "others")
CONVERGES_WITHIN_S = 120.0
RESTS_WITHIN_S = 30.0


def run(
    seed: int, brokers: int | None = None, *, tell: Callable[[str], None] | None = None, level: int = logging.WARNING
) -> Outcome:
    """Runs one seed. `brokers` None: as many as the seed wants. `tell`, `level`: see `simulated`."""
    plan = Plan.of(seed, brokers)
    return simulated(seed, lambda loop, trace: Simulation(loop, plan, trace), tell=tell, level=level)


class Simulation:
    def __init__(self, loop: SimulatedLoop, plan: Plan, trace: Trace) -> None:
        self.plan = plan
        self.loop = loop
        self.trace = trace
        self.random = Random(plan.seed ^ 0x0771A)
        self.cluster = SimulatedCluster(loop, Random(self.random.getrandbits(64)), plan.brokers, plan.settings, trace)
        self.history = History(tell=trace.add_line)
        self.world = World(self.cluster.addresses, self.history, trace)
        self.faults: dict[str, int] = {}
        self._trusted = Trusted(self.cluster, trace)
        self._director = Director(loop, trace, self.random)

    @property
    def network(self) -> SimulatedNetwork:
        return self.cluster.network

    @property
    def brokers(self) -> int:
        return self.plan.brokers

    @property
    def histories(self) -> Sequence[History]:
        return (self.history,)

    @property
    def done(self) -> dict[str, int]:
        return self.world.done

    def run(self) -> list[str]:
        watch = Watch(self.cluster, self.trace)
        main = self.loop.create_task(self._main(watch))
        try:
            with watch.appends(), self._trusted.advances():
                return self.loop.run_until_complete(main)
        except Deadlock as reason:
            return [f"deadlock: {reason}"]

    async def _main(self, watch: Watch) -> list[str]:
        plan, trace = self.plan, self.trace
        trace.add_line(f"seed {plan.seed}: {plan}")
        for broker in self.cluster:
            broker.disk.set_sync_s(0.0002, plan.sync_s)
            self.loop.call_later(self.random.choice((0.0, 0.0, self.random.uniform(0, 3))), broker.start)
        watching = [self.loop.create_task(watch.run()), self.loop.create_task(self._trusted.run())]
        setting_up = self._client(Admin, "admin-0", replicas=plan.replicas)
        if not await self._director.within(60, setting_up.process.run(self._set_up(setting_up)), "set up"):
            return ["the cluster did not come up", *self.history.problems]
        clients = self._clients()
        tasks = [client.process.run(client.run()) for client in clients]
        hosts = [client.name for client in clients]
        nemesis = Nemesis(self.cluster, hosts, Random(self.random.getrandbits(64)), plan)
        await nemesis.run(self.loop.time() + plan.faults_for_s)
        self.faults = nemesis.happened
        trace.add_line("faults are over")
        broken = await self._converged()
        self.world.stop.set()
        broken += await self._director.ended(tasks, 30)
        broken += await self._checked()
        for task in watching:
            task.cancel()
        return broken + [problem for problem in self.history.problems if problem not in broken]

    async def _set_up(self, admin: Admin) -> None:
        """Until the topic can be made: brokers may come one after the other, and it wants so many of them."""
        await admin.create(TOPIC, self.plan.partitions)

    def _clients(self) -> list[Any]:
        random, plan = self.random, self.plan
        places: list[Place] = [(TOPIC, partition) for partition in range(plan.partitions)]
        made: list[Any] = []
        for number, manner in enumerate(self._manners()):
            mine = random.sample(places, random.randrange(1, len(places) + 1))
            made.append(self._client(Producer, f"producer-{number}", places=mine, manner=manner))
        for group in GROUPS[: random.randrange(1, 3)]:
            made += [
                self._client(
                    Member, f"{group}-{number}", group=group, topic=TOPIC, rack=random.choice(("", f"rack-{number}"))
                )
                for number in range(random.randrange(1, 4))
            ]
        made.append(self._client(Onlooker, f"{ONLOOKER}-1", groups=GROUPS, places=places))
        made.append(self._client(Admin, "admin-1", replicas=plan.replicas))
        wanderers = Manner(idempotent=bool(random.randrange(2)), in_flight=3, by_id=True)
        made.append(self._client(Wanderer, "wanderer-1", manner=wanderers, but=TOPIC))
        if plan.brokers > 1:
            all_places = [*places, *(("__consumer_offsets", 0),)]
            made.append(self._client(Mover, "mover-1", places=all_places, brokers=plan.brokers, replicas=plan.replicas))
        return made

    def _manners(self) -> list[Manner]:
        random = self.random

        def of(acks: int, *, idempotent: bool) -> Manner:
            in_flight = random.choice((1, 3, 5))
            return Manner(acks, idempotent, in_flight, bool(random.randrange(2)), random.choice((0.05, 0.15, 0.4)))

        manners = [of(ALL, idempotent=True), of(ALL, idempotent=False), of(ALL, idempotent=True)]
        if random.randrange(2):
            manners.append(of(random.choice((ONE, NONE)), idempotent=False))
        return manners

    def _client(self, kind: Callable[..., Any], name: str, **named: Any) -> Any:
        return self._director.client(kind, self.world, name, **named)

    # --- afterwards

    async def _converged(self) -> list[str]:
        """Everybody gets on again: each producer's acks and each group's commits move past where they are now, and every partition has a
        leader and all its replicas in its ISR."""
        history = self.history
        acks = {name: history.acks_of[name] for name in self._producers()}
        ends = {place: history.told_end(place) for place in history.high_watermarks if place[0] == TOPIC}

        def missing() -> list[str]:
            image = newest_image(self.cluster)
            return [
                *(f"{name} is silent" for name, count in acks.items() if history.acks_of[name] <= count),
                *(
                    f"{group} is behind at {place}"
                    for group in history.seen
                    for place, end in ends.items()
                    if history.committed.get((group, place), 0) < end
                ),
                *(f"{broker.host} is down" for broker in self.cluster if not broker.is_serving),
                *(["no broker runs"] if image is None else unwell(image)),
            ]

        return await self._until_nothing(missing, CONVERGES_WITHIN_S, "no convergence")

    async def _until_nothing(self, missing: Callable[[], list[str]], within_s: float, otherwise: str) -> list[str]:
        return await self._director.until_nothing(
            missing,
            within_s,
            otherwise,
            lost=lambda: bool(self.history.problems or self.trace.problems),  # it is lost already
            clusters=(self.cluster,),
        )

    def _producers(self) -> list[str]:
        return [name for name in dict.fromkeys(self.history.sent.values()) if name.startswith("producer")]

    async def _checked(self) -> list[str]:
        if apart := await self._until_nothing(lambda: list(images_apart(self.cluster)), RESTS_WITHIN_S, "no rest"):
            return apart
        reader = Reader(self.world, SimulatedProcess(self.loop, "reader"), self.random)
        if not await self._director.within(60, reader.process.run(reader.run()), "read everything"):
            return ["the contents cannot be read"]
        broken = broken_promises(self.history, reader.contents, reader.topics)
        if not broken:
            broken = await self._until_nothing(lambda: list(at_rest(self.cluster)), RESTS_WITHIN_S, "no rest")
        return broken + list(broken_at_rest(self.cluster, self.history))
