"""Faults of the links between brokers and clients. Each fault returns when it is repaired."""

from collections.abc import Sequence
from random import Random

from tests.sim.broker_faults import sleep_random
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.network import Direction

SLOW_LATENCY_S = (0.02, 0.4)


class NetworkFaults:
    """`clients` are hosts that connect to the brokers."""

    def __init__(self, cluster: SimulatedCluster, random: Random, clients: Sequence[str]) -> None:
        self._cluster = cluster
        self._random = random
        self._clients = list(clients)

    async def _cut_for_a_while(self, directions: Sequence[Direction], least_s: float, most_s: float) -> None:
        links = " and ".join(f"{a} → {b}" for a, b in directions)
        self._cluster.trace.add_line(f"cuts {links}")
        with self._cluster.network.links_cut(directions):
            await sleep_random(self._random, least_s, most_s)
            self._cluster.trace.add_line(f"restores {links}")

    def _random_directions(self, a: str, b: str) -> list[Direction]:
        return self._random.choice([[(a, b), (b, a)], [(a, b)], [(b, a)]])

    def _other_brokers(self, broker: SimulatedBroker) -> list[str]:
        return [one.host for one in self._cluster if one is not broker]

    async def cut_client(self, broker: SimulatedBroker) -> None:
        await self._cut_for_a_while(self._random_directions(self._random.choice(self._clients), broker.host), 0.2, 12)

    async def cut_between_two(self, broker: SimulatedBroker) -> None:
        await self._cut_for_a_while(
            self._random_directions(broker.host, self._random.choice(self._other_brokers(broker))), 0.2, 10
        )

    async def isolate(self, broker: SimulatedBroker) -> None:
        """Isolates a broker from all others; clients still reach it."""
        others = self._other_brokers(broker)
        await self._cut_for_a_while([(broker.host, b) for b in others] + [(b, broker.host) for b in others], 0.5, 10)

    async def isolate_one_way(self, broker: SimulatedBroker) -> None:
        """The broker receives nothing from the others, or they receive nothing from it."""
        others = self._other_brokers(broker)
        receives = self._random.randrange(2)
        await self._cut_for_a_while([(b, broker.host) if receives else (broker.host, b) for b in others], 0.5, 10)

    async def split(self, _: SimulatedBroker) -> None:
        """Splits the brokers into two groups. Neither receives anything from the other, or only one
        of them does.
        """
        hosts = [one.host for one in self._cluster]
        one_side = self._random.sample(hosts, self._random.randrange(1, len(hosts)))
        other_side = [host for host in hosts if host not in one_side]
        forth, back = [(a, b) for a in one_side for b in other_side], [(b, a) for a in one_side for b in other_side]
        await self._cut_for_a_while(self._random.choice((forth + back, forth, back)), 0.5, 10)

    async def cut_ring(self, _: SimulatedBroker) -> None:
        """In a ring of all brokers, each receives nothing from its predecessor."""
        hosts = [one.host for one in self._cluster]
        self._random.shuffle(hosts)
        ring = [(a, b) for a, b in zip(hosts, [*hosts[1:], hosts[0]], strict=True)]
        await self._cut_for_a_while(ring, 0.5, 10)

    async def slow_network(self, broker: SimulatedBroker) -> None:
        """Slows the links between this broker and the others, so that they act on outdated
        state."""
        latency_s = self._random.uniform(*SLOW_LATENCY_S)
        directions = [
            direction for b in self._other_brokers(broker) for direction in ((broker.host, b), (b, broker.host))
        ]
        self._cluster.trace.add_line(f"slows the links of {broker.host} to {latency_s * 1000:.0f} ms")
        with self._cluster.network.links_slowed(directions, latency_s):
            await sleep_random(self._random, 0.5, 8)
            self._cluster.trace.add_line(f"restores the links of {broker.host}")
