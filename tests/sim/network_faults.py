"""What can be done to the links between brokers, their clients and their register. Each fault returns when it is mended."""

from collections.abc import Sequence
from random import Random

from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.faults import some_time
from tests.sim.network import Way
from tests.sim.register import SLOW_S, USUAL_S

SLOW_LATENCY_S = (0.02, 0.4)


class NetworkFaults:
    """`clients`: hosts that talk to the brokers."""

    def __init__(self, cluster: SimulatedCluster, random: Random, clients: Sequence[str]) -> None:
        self._cluster = cluster
        self._random = random
        self._clients = list(clients)

    async def _cut(self, ways: Sequence[Way], least_s: float, most_s: float) -> None:
        told = " and ".join(f"{a} → {b}" for a, b in ways)
        self._cluster.trace.add_line(f"cuts {told}")
        with self._cluster.network.apart(ways):
            await some_time(self._random, least_s, most_s)
            self._cluster.trace.add_line(f"mends {told}")

    def _some_ways(self, a: str, b: str) -> list[Way]:
        return self._random.choice([[(a, b), (b, a)], [(a, b)], [(b, a)]])

    def _other_brokers(self, broker: SimulatedBroker) -> list[str]:
        return [one.host for one in self._cluster if one is not broker]

    async def cut_client(self, broker: SimulatedBroker) -> None:
        await self._cut(self._some_ways(self._random.choice(self._clients), broker.host), 0.2, 12)

    async def cut_between_two(self, broker: SimulatedBroker) -> None:
        await self._cut(self._some_ways(broker.host, self._random.choice(self._other_brokers(broker))), 0.2, 10)

    async def isolate(self, broker: SimulatedBroker) -> None:
        """From all other brokers, and sometimes from the register; clients still reach it, so that it may tell them what is not true any more."""
        store, too = self._cluster.register, self._random.randrange(2)
        if too:
            store.cut(broker.host)
        others = self._other_brokers(broker)
        await self._cut([(broker.host, b) for b in others] + [(b, broker.host) for b in others], 0.5, 10)
        if too:
            store.mend(broker.host)

    async def isolate_one_way(self, broker: SimulatedBroker) -> None:
        """It hears nobody, or nobody hears it."""
        others = self._other_brokers(broker)
        hears = self._random.randrange(2)
        await self._cut([(b, broker.host) if hears else (broker.host, b) for b in others], 0.5, 10)

    async def slow_network(self, broker: SimulatedBroker) -> None:
        """Between this broker and the others every packet takes long: they act on what was true a while ago."""
        latency_s = self._random.uniform(*SLOW_LATENCY_S)
        ways = [way for b in self._other_brokers(broker) for way in ((broker.host, b), (b, broker.host))]
        self._cluster.trace.add_line(f"makes the network of {broker.host} slow, {latency_s * 1000:.0f} ms a way")
        with self._cluster.network.late(ways, latency_s):
            await some_time(self._random, 0.5, 8)
            self._cluster.trace.add_line(f"the network of {broker.host} is as it was")

    async def cut_from_register(self, broker: SimulatedBroker) -> None:
        store = self._cluster.register
        self._cluster.trace.add_line(f"cuts {broker.host} from the register")
        store.cut(broker.host)
        await some_time(self._random, 0.5, 12)
        self._cluster.trace.add_line(f"{broker.host} reaches the register again")
        store.mend(broker.host)

    async def register_away(self, _: SimulatedBroker) -> None:
        store = self._cluster.register
        self._cluster.trace.add_line("the register is away")
        store.leave()
        await some_time(self._random, 0.5, 12)
        self._cluster.trace.add_line("the register is back")
        store.come_back()

    async def slow_register(self, _: SimulatedBroker) -> None:
        store = self._cluster.register
        self._cluster.trace.add_line("the register is slow")
        store.latency_s = SLOW_S
        await some_time(self._random, 1, 12)
        self._cluster.trace.add_line("the register is as usual")
        store.latency_s = USUAL_S
