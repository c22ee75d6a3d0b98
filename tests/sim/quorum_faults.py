"""Faults of the metadata log's voters and their leader. Each fault returns when it is repaired."""

from collections.abc import Awaitable, Callable, Sequence
from random import Random

from ottla_broker.metadata.voter_set import ReplicaKey
from tests.sim import triggers
from tests.sim.broker_faults import BrokerFaults, sleep_random
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.cluster_state import committed_voters, controller_broker, newest_image, unhealthy_partitions
from tests.sim.fault_budget import FaultBudget
from tests.sim.network import Direction

CALM_WITHIN_S = 8.0
REPLACED_WITHIN_S = 40.0

RunOnBrokers = Callable[[Sequence[SimulatedBroker], Awaitable[None]], Awaitable[None]]


class QuorumFaults:
    """Each method gets a broker that is reserved for it and may choose another.

    `busy` is True for a broker with a fault in progress, `on` runs an action and keeps brokers busy
    meanwhile, `alone` is True if only one fault is in progress.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        random: Random,
        faults: BrokerFaults,
        budget: FaultBudget,
        busy: Callable[[SimulatedBroker], bool],
        on: RunOnBrokers,
        alone: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._faults = faults
        self._budget = budget
        self._busy = busy
        self._on = on
        self._alone = alone

    # --- links

    async def follower_hears_no_leader(self, mine: SimulatedBroker) -> None:
        """In a healthy cluster, drop what the leader sends to one follower.

        The follower's requests arrive and the others hear the leader, so pre-votes must fail: no
        broker may be elected meanwhile.
        """

        async def cut(leader: SimulatedBroker) -> None:
            follower = self._random.choice(self._others(leader))
            before = self._epoch(leader)
            self._trace(f"drops what {leader.host}, the controller, sends to {follower.host}")
            with self._cluster.network.links_cut([(leader.host, follower.host)]):
                await sleep_random(self._random, 2, 10)
                if (after := self._epoch(leader)) != before:
                    self._cluster.trace.record_problem(
                        f"disturbed: the metadata log's epoch went from {before} to {after}, because {follower.host} "
                        "alone did not hear the leader"
                    )
            self._trace(f"restores {leader.host} → {follower.host}")

        await self._when_calm(mine, cut)

    async def leader_without_majority(self, mine: SimulatedBroker) -> None:
        """Cut the leader from all voters but a minority, in one or both directions; often longer
        than check-quorum allows.
        """

        async def cut(leader: SimulatedBroker) -> None:
            others = self._others(leader)
            lost = self._random.sample(others, self._random.randrange(len(others) // 2 + 1, len(others) + 1))
            forth: list[Direction] = [(leader.host, one.host) for one in lost]
            back = [(b, a) for a, b in forth]
            directions = self._random.choice((forth + back, forth, back))
            self._trace(f"cuts {' and '.join(f'{a} → {b}' for a, b in directions)}; {leader.host} is the controller")
            with self._cluster.network.links_cut(directions):
                await sleep_random(self._random, 0.5, 12)
            self._trace(f"restores the links of {leader.host}")

        await self._on_leader(mine, cut)

    # --- elections

    async def candidates_slowed(self, mine: SimulatedBroker) -> None:
        """Kill the leader while the links among the others are slow: votes are split and come
        late.
        """

        async def strike(leader: SimulatedBroker) -> None:
            others = [one.host for one in self._others(leader)]
            latency_s = self._random.uniform(0.05, 1.2)
            self._trace(f"delays everything among {others} by {latency_s:.2f} s; kills {leader.host}, the controller")
            directions = [(a, b) for a in others for b in others if a != b]
            with self._cluster.network.links_slowed(directions, latency_s):
                await self._faults.crash(leader)
                await sleep_random(self._random, 0.2, 4)

        await self._on_leader(mine, strike)

    async def leaders_killed_in_turn(self, mine: SimulatedBroker) -> None:
        """Kill or cut the power of each new leader as soon as it leads, several times."""
        for _ in range(self._random.randrange(2, 5)):
            found = await triggers.wait_for_broker(self._cluster, self._random, self._free_leader(mine), within_s=6.0)
            if found is None:
                return
            fault = self._random.choice((self._faults.crash, self._faults.power_loss))
            await sleep_random(self._random, 0.001, 0.3)
            await (fault(found) if found is mine else self._on([found], fault(found)))

    # --- disks and voters

    async def voter_lost(self, mine: SimulatedBroker) -> None:
        """Stop a voter of a healthy cluster for long, with its disk or without it.

        With a spare broker it is replaced meanwhile.
        """

        async def lose(leader: SimulatedBroker) -> None:
            voters = {broker for broker, _ in committed_voters(self._cluster)}
            node = self._random.choice([one for one in self._cluster if one.node_id in voters])
            if self._random.randrange(2) and self._budget.allows_wipe(node, calm=True):
                self._budget.record_wipe(node)
                node.kill()
                node.wipe()
            else:
                node.kill()
            spare = len(self._cluster.brokers) > len(voters)
            self._trace(f"{node.host}, a voter, stays away" + (" until it is replaced" if spare else ""))
            if spare:
                await triggers.wait_until(
                    lambda: node.node_id not in {broker for broker, _ in committed_voters(self._cluster)},
                    within_s=self._random.uniform(1, REPLACED_WITHIN_S),
                )
            else:
                await sleep_random(self._random, 0.5, 10)
            if not node.is_running:
                node.start()

        await self._when_calm(mine, lose)

    async def founder_wiped(self, mine: SimulatedBroker) -> None:
        """Restart a broker with an empty disk and cluster.found=true beside the others.

        It must join them. The operator never configures this; people do.
        """

        async def strike(leader: SimulatedBroker) -> None:
            node = self._random.choice(self._others(leader))
            if not self._budget.allows_wipe(node, calm=True):
                return
            self._budget.record_wipe(node)
            node.kill()
            node.wipe()
            node.founds = True
            await sleep_random(self._random, 0.05, 2)
            node.start()
            await triggers.wait_until(lambda: node.is_serving, within_s=20)
            node.founds = False

        await self._when_calm(mine, strike)

    async def all_moved(self, mine: SimulatedBroker) -> None:
        """Stop all brokers and start them at other addresses, with their disks."""

        async def move(_: SimulatedBroker) -> None:
            self._trace("moves all brokers to other addresses")
            for node in self._cluster:
                node.kill()
            await sleep_random(self._random, 0.1, 2)
            nodes = list(self._cluster)
            for node in nodes:
                node.move()
            self._random.shuffle(nodes)
            for node in nodes:
                node.start()
                await sleep_random(self._random, 0.01, 1)

        await self._when_calm(mine, move)

    # --- when

    def _trace(self, what: str) -> None:
        self._cluster.trace.add_line(what)

    def _others(self, node: SimulatedBroker) -> list[SimulatedBroker]:
        return [one for one in self._cluster if one is not node]

    def _epoch(self, node: SimulatedBroker) -> int:
        return max(one.broker.quorum.epoch for one in self._cluster if one.broker is not None and one.is_serving)

    def _free_leader(self, mine: SimulatedBroker) -> Callable[[], list[SimulatedBroker]]:
        def found() -> list[SimulatedBroker]:
            leader = controller_broker(self._cluster)
            return [] if leader is None or (leader is not mine and self._busy(leader)) else [leader]

        return found

    async def _on_leader(self, mine: SimulatedBroker, strike: Callable[[SimulatedBroker], Awaitable[None]]) -> None:
        for leader in self._free_leader(mine)():
            await (strike(leader) if leader is mine else self._on([leader], strike(leader)))

    async def _when_calm(self, mine: SimulatedBroker, strike: Callable[[SimulatedBroker], Awaitable[None]]) -> None:
        """Run an action when the cluster is healthy, its voters complete and no other fault in
        progress; block new faults meanwhile.
        """

        def calm() -> bool:
            image = newest_image(self._cluster)
            return (
                self._alone()
                and image is not None
                and all(one.is_serving for one in self._cluster)
                and not unhealthy_partitions(image)
                and voters_are_complete(self._cluster)
            )

        async def when_calm() -> None:
            if await triggers.wait_until(calm, within_s=CALM_WITHIN_S):
                leader = controller_broker(self._cluster)
                assert leader is not None
                await strike(leader)

        await self._on([one for one in self._cluster if one is not mine], when_calm())


def voters_are_complete(cluster: SimulatedCluster) -> bool:
    """True if as many brokers vote as should, each with the disk that it has now."""
    return not missing_voters(cluster)


def missing_voters(cluster: SimulatedCluster) -> list[str]:
    """What is wrong with the committed voters of the metadata log."""
    voters = committed_voters(cluster)
    if not voters:
        return ["the metadata log has no leader, or uncommitted records"]
    current: dict[int, ReplicaKey] = {
        node.node_id: (node.node_id, node.broker.log_dirs[0].directory_id)
        for node in cluster
        if node.broker is not None and node.broker.log_dirs
    }
    wrong = [
        f"broker {broker} is a voter with directory {directory}, which it does not run with"
        for broker, directory in sorted(voters)
        if current.get(broker) != (broker, directory)
    ]
    if len(voters) != cluster.voter_count:
        wrong.append(f"{len(voters)} brokers are voters; {cluster.voter_count} should be")
    return wrong
