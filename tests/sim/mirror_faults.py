"""Faults of a mirror: of the links between its two clusters, and of a partition's leader at a
critical moment.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from tests.sim.broker_faults import sleep_random
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.history import TopicPartition
from tests.sim.mirror_checks import leader_replicas
from tests.sim.network import Direction

BETWEEN_FAULTS_S = 2.5  # on average
SLOW_LATENCY_S = (0.05, 0.6)
SLOW_LEADER_LATENCY_S = (0.05, 0.5)


class LinkFaults:
    """Cuts and slows the links between all or some brokers of the two clusters. Each fault returns
    when repaired.
    """

    def __init__(self, source: SimulatedCluster, target: SimulatedCluster, random: Random) -> None:
        self.fault_counts: dict[str, int] = {}
        self._source = source
        self._target = target
        self._random = random

    async def run(self, until_s: float) -> None:
        """Injects faults until the loop's time is `until_s`; returns when all are repaired."""
        loop = asyncio.get_running_loop()
        faults = (
            (3, "link cut", self._cut_briefly),
            (2, "long link cut", self._cut_for_long),
            (2, "slow link", self._slow),
        )
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self._random.expovariate(1 / BETWEEN_FAULTS_S))
                if loop.time() >= until_s:
                    return
                (_, name, fault) = self._random.choices(faults, [weight for weight, _, _ in faults])[0]
                self.fault_counts[name] = self.fault_counts.get(name, 0) + 1
                tasks.create_task(fault())

    async def lose_records_unobserved(self) -> None:
        """Isolates the source, cuts its power, and reconnects it after some seconds, in which
        producers may write other records at the offsets of the lost ones.
        """
        directions, brokers, random = self._all_directions(), list(self._source), self._random
        self._source.trace.add_line("isolates the source")
        for direction in directions:
            self._source.network.cut_link(*direction)
        await sleep_random(random, 0.05, 0.5)
        for broker in brokers:
            broker.lose_power()
        await sleep_random(random, 0.05, 1)
        for broker in brokers:
            broker.power_on()
            if not broker.is_running:
                broker.start()
        await sleep_random(random, 1, 8)
        self._source.trace.add_line("reconnects the source")
        for direction in directions:
            self._source.network.restore_link(*direction)

    def _all_directions(self) -> list[Direction]:
        source_hosts, target_hosts = [one.host for one in self._source], [one.host for one in self._target]
        return [(a, b) for a in source_hosts for b in target_hosts] + [
            (b, a) for a in source_hosts for b in target_hosts
        ]

    def _random_directions(self) -> list[Direction]:
        """All directions, those from one cluster to the other, or those of one broker."""
        source_hosts, target_hosts = [one.host for one in self._source], [one.host for one in self._target]
        back = [(b, a) for a in source_hosts for b in target_hosts]
        forth = [(a, b) for a in source_hosts for b in target_hosts]
        one = self._random.choice(source_hosts + target_hosts)
        return self._random.choice(
            (forth + back, forth + back, forth, back, [direction for direction in forth + back if one in direction])
        )

    async def _cut_briefly(self) -> None:
        await self._cut_for(0.3, 4)

    async def _cut_for_long(self) -> None:
        await self._cut_for(5, 20)

    async def _cut_for(self, least_s: float, most_s: float) -> None:
        directions = self._random_directions()
        self._source.trace.add_line(f"cuts {len(directions)} directions between the clusters, {_describe(directions)}")
        with self._source.network.links_cut(directions):
            await sleep_random(self._random, least_s, most_s)
            self._source.trace.add_line(f"restores {_describe(directions)}")

    async def _slow(self) -> None:
        directions, latency_s = self._random_directions(), self._random.uniform(*SLOW_LATENCY_S)
        self._source.trace.add_line(f"slows {_describe(directions)} to {latency_s * 1000:.0f} ms")
        with self._source.network.links_slowed(directions, latency_s):
            await sleep_random(self._random, 1, 8)
            self._source.trace.add_line(f"restores {_describe(directions)}")


def _describe(directions: list[Direction]) -> str:
    hosts = list(dict.fromkeys(a for a, _ in directions))
    return f"{', '.join(hosts)} → {', '.join(dict.fromkeys(b for _, b in directions))}"


class LeaderFaults:
    """Kills leaders of one cluster."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self.fault_counts: dict[str, int] = {}
        self._cluster = cluster
        self._random = random

    async def kill_leader_during(self, tp: TopicPartition, action: Callable[[], Awaitable[None]]) -> None:
        """Slows the leader's links so that followers lag, awaits `action`, then kills and restarts
        the leader. Without a leader it only awaits `action`.
        """
        if (node := self._leader(tp)) is None:
            await action()
            return
        name = "leader killed"
        self.fault_counts[name] = self.fault_counts.get(name, 0) + 1
        latency_s = self._random.uniform(*SLOW_LEADER_LATENCY_S)
        directions = [
            direction
            for one in self._cluster
            if one is not node
            for direction in ((one.host, node.host), (node.host, one.host))
        ]
        self._cluster.trace.add_line(
            f"slows the links of {node.host}, the leader of {tp}, to {latency_s * 1000:.0f} ms; will kill it"
        )
        with self._cluster.network.links_slowed(directions, latency_s):
            await sleep_random(self._random, 0.1, 1)
            await action()
            await sleep_random(self._random, 0.005, 1)
            if node.is_running:
                node.kill()
        await sleep_random(self._random, 0.1, 4)
        if not node.is_running:
            node.start()

    def _leader(self, tp: TopicPartition) -> SimulatedBroker | None:
        found = leader_replicas(self._cluster).get(tp)
        return next((one for one in self._cluster if found is not None and one.broker is found.broker), None)
