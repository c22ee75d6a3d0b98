"""What goes wrong in a run, and when: chosen by the seed, one fault after the other and some at once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from tests.sim.aimed import Aimed
from tests.sim.allowed import Allowed
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.faults import Faults, some_time
from tests.sim.network_faults import NetworkFaults
from tests.sim.plan import Plan
from tests.sim.standing import metadata_leader

BETWEEN_FAULTS_S = {1: 2.5, 3: 1.0, 5: 0.7}  # on average
LOOK_S = 0.1  # how often it looks who is at risk no more

Fault = Callable[[SimulatedBroker], Awaitable[None]]


class Nemesis:
    """One for each cluster. `clients`: hosts that talk to the brokers; `without`: faults that do not come; `more`: others that do, with their weights. Everything
    it breaks it mends."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        clients: Sequence[str],
        random: Random,
        plan: Plan,
        without: Sequence[str] = (),
        more: Sequence[tuple[int, str, Fault]] = (),
    ) -> None:
        self.cluster = cluster
        self.random = random
        self.happened: dict[str, int] = {}
        self._between_s = BETWEEN_FAULTS_S[plan.brokers]
        self._busy: Counter[int] = Counter()  # brokers that something is being done to, or about to be
        self._strikes = 0  # that are under way
        self._under_way = 0  # the same, and what they do to others
        self._allowed = Allowed(cluster, plan)
        one = self._one = Faults(cluster, random, self._allowed)
        net = self._net = NetworkFaults(cluster, random, clients)
        aimed = Aimed(cluster, random, clients, one, self._is_busy, self._on, lambda: self._strikes == 1)
        self._faults: list[tuple[int, str, Fault]] = [
            (4, "crash", one.crash),
            (3, "clean restart", one.clean_restart),
            (2, "pause", one.pause),
            (2, "slow disk", one.slow_disk),
            (2, "clock jump", one.clock_jump),
            (3, "cut client", net.cut_client),
            (2, "full disk", one.full_disk),
            (4, "power loss", one.power_loss),
            (2, "cut from register", net.cut_from_register),
            (1, "register away", net.register_away),
            (2, "answers lost", aimed.answers_lost),
            (2, "dark while syncing", aimed.while_syncing),
            (2, "dark while new", aimed.while_new),
        ]
        if plan.brokers > 1:
            self._faults += [
                (4, "wiped disk", one.wipe),
                (4, "isolation", net.isolate),
                (2, "one-way isolation", net.isolate_one_way),
                (3, "cut between two", net.cut_between_two),
                (4, "controller loss", self._controller_loss),
                (2, "several crash", self._several_crash),
                (2, "several lose power", self._several_lose_power),
                (3, "one after the other", self._one_after_the_other),
                (1, "slow register", net.slow_register),
                (3, "slow network", net.slow_network),
                (3, "struck while letting in", aimed.while_letting_in),
                (4, "struck while let in", aimed.while_let_in),
                (5, "led by others meanwhile", aimed.led_by_others_meanwhile),
                (3, "struck while followers lack", aimed.while_followers_lack),
                (3, "heard after its session", aimed.heard_after_its_session),
                (5, "coordinator apart", aimed.coordinator_apart),
            ]
        self._faults = [*(fault for fault in self._faults if fault[1] not in without), *more]

    async def run(self, until_s: float) -> None:
        """Breaks things until the loop's time is `until_s`, and returns when all of it is mended."""
        loop = asyncio.get_running_loop()
        looking = loop.create_task(self._look())
        pause_s = self.random.choice((0.3, self._between_s))  # sometimes while everything is still new
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self.random.expovariate(1 / pause_s))
                pause_s = self._between_s
                if loop.time() >= until_s:
                    break
                tasks.create_task(self._strike())
        looking.cancel()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._allowed.look()

    async def _strike(self) -> None:
        (_, name, fault) = self.random.choices(self._faults, [weight for weight, _, _ in self._faults])[0]
        free = [broker for broker in self.cluster if broker.is_serving and not self._is_busy(broker)]
        if not free or not self._may(name, broker := self.random.choice(free)):
            return
        self.happened[name] = self.happened.get(name, 0) + 1
        self._strikes += 1
        try:
            await self._on([broker], fault(broker))
        finally:
            self._strikes -= 1

    def _may(self, name: str, broker: SimulatedBroker) -> bool:
        if name == "power loss":
            return self._allowed.power_loss(broker)
        if name == "wiped disk":
            return self._allowed.wipe(broker, calm=not self._under_way)
        return True

    async def _on(self, brokers: Sequence[SimulatedBroker], fault: Awaitable[None]) -> None:
        self._busy.update(broker.node_id for broker in brokers)
        self._under_way += 1
        try:
            await fault
        finally:
            self._under_way -= 1
            self._busy.subtract(broker.node_id for broker in brokers)

    def _is_busy(self, broker: SimulatedBroker) -> bool:
        return self._busy[broker.node_id] > 0

    def _others(self, broker: SimulatedBroker) -> list[SimulatedBroker]:
        """Some of the brokers that nothing is being done to."""
        free = [one for one in self.cluster if one is not broker and not self._is_busy(one) and one.is_serving]
        return self.random.sample(free, self.random.randint(0, len(free)))

    # --- faults that are made of others

    async def _controller_loss(self, _: SimulatedBroker) -> None:
        """Something happens to whoever leads the metadata."""
        broker = metadata_leader(self.cluster)
        if broker is None or not broker.is_serving or self._is_busy(broker):
            return
        one, net = self._one, self._net
        fault = self.random.choice((one.crash, one.pause, one.clean_restart, net.isolate, net.isolate_one_way))
        await self._on([broker], fault(broker))

    async def _several_crash(self, broker: SimulatedBroker) -> None:
        others = self._others(broker)
        self.cluster.trace.add_line(f"kills {[one.node_id for one in (broker, *others)]} together")
        await self._on(others, self._one.together([broker, *others], self._one.crash))

    async def _several_lose_power(self, broker: SimulatedBroker) -> None:
        """As many of some as may; the others are killed."""
        struck = [broker, *self._others(broker)]
        self.cluster.trace.add_line(f"the power of {[one.node_id for one in struck]} fails")
        await self._on(struck[1:], self._one.together(struck, self._one.power_loss))

    async def _one_after_the_other(self, broker: SimulatedBroker) -> None:
        """Who falls first knows least, and comes back first."""
        struck = [broker, *self._others(broker)]
        self.cluster.trace.add_line(f"kills {[one.node_id for one in struck]} one after the other")
        await self._on(struck[1:], self._in_turn(struck))

    async def _in_turn(self, struck: Sequence[SimulatedBroker]) -> None:
        for broker in struck:
            if broker.is_running:
                broker.kill()
            await some_time(self.random, 0.1, 3)
        for broker in struck:
            if not broker.is_running:
                broker.start()
            await some_time(self.random, 0.1, 3)
