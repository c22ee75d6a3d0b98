"""Faults of the metadata log's voters and their leader. Each fault returns when it is repaired."""

from collections.abc import Callable
from random import Random

from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.metadata.voter_set import ReplicaKey
from tests.sim import triggers
from tests.sim.broker_faults import BrokerFaults, sleep_random
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.cluster_state import (
    committed_voter_set,
    committed_voters,
    controller_broker,
)
from tests.sim.fault_budget import FaultBudget
from tests.sim.faults_in_progress import Fault, FaultsInProgress
from tests.sim.network import Direction

REPLACED_WITHIN_S = 40.0


class QuorumFaults:
    """Each fault gets a broker that is reserved for it, and may act on others. It does nothing if
    there is no leader, if the leader has another fault, or if it needs a healthy cluster and the
    cluster is not healthy in time.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        random: Random,
        faults: BrokerFaults,
        budget: FaultBudget,
        in_progress: FaultsInProgress,
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._faults = faults
        self._budget = budget
        self._in_progress = in_progress

    # --- links

    async def follower_hears_no_leader(self, reserved: SimulatedBroker) -> None:
        """In a healthy cluster, drops what the leader sends to one follower.

        The follower's requests arrive and the others hear the leader, so pre-votes must fail: no
        broker may be elected meanwhile.
        """

        async def cut(leader: SimulatedBroker) -> None:
            follower = self._random.choice(self._others(leader))
            before = self._newest_epoch()
            self._trace(f"drops what {leader.host}, the controller, sends to {follower.host}")
            with self._cluster.network.links_cut([(leader.host, follower.host)]):
                await sleep_random(self._random, 2, 10)
                if (after := self._newest_epoch()) != before:
                    self._cluster.trace.record_problem(
                        f"disturbed: the metadata log's epoch went from {before} to {after}, because {follower.host} "
                        "alone did not hear the leader"
                    )
            self._trace(f"restores {leader.host} → {follower.host}")

        await self._when_calm(reserved, cut)

    async def leader_without_majority(self, reserved: SimulatedBroker) -> None:
        """Cuts the leader off from more than half of the other brokers, in one or both directions,
        often for longer than check-quorum allows. Where some brokers are observers, the leader may
        keep its majority.
        """

        async def cut(leader: SimulatedBroker) -> None:
            others = self._others(leader)
            lost = self._random.sample(others, self._random.randrange(len(others) // 2 + 1, len(others) + 1))
            outgoing: list[Direction] = [(leader.host, one.host) for one in lost]
            incoming = [(b, a) for a, b in outgoing]
            directions = self._random.choice((outgoing + incoming, outgoing, incoming))
            self._trace(f"cuts {' and '.join(f'{a} → {b}' for a, b in directions)}; {leader.host} is the controller")
            with self._cluster.network.links_cut(directions):
                await sleep_random(self._random, 0.5, 12)
            self._trace(f"restores the links of {leader.host}")

        await self._on_leader(reserved, cut)

    # --- elections

    async def candidates_slowed(self, reserved: SimulatedBroker) -> None:
        """Kills the leader while the links among the others are slow, so that votes are split and
        late.
        """

        async def action(leader: SimulatedBroker) -> None:
            others = [one.host for one in self._others(leader)]
            latency_s = self._random.uniform(0.05, 1.2)
            self._trace(f"delays everything among {others} by {latency_s:.2f} s; kills {leader.host}, the controller")
            directions = [(a, b) for a in others for b in others if a != b]
            with self._cluster.network.links_slowed(directions, latency_s):
                await self._faults.crash(leader)
                await sleep_random(self._random, 0.2, 4)

        await self._on_leader(reserved, action)

    async def leaders_killed_in_turn(self, reserved: SimulatedBroker) -> None:
        """Kills the leader or cuts its power, two to four times in turn.

        The next leader is chosen when the former one runs again. Ends early if for 6 s there is no
        leader without another fault.
        """
        for _ in range(self._random.randrange(2, 5)):
            found = await triggers.wait_for_broker(
                self._cluster, self._random, self._free_leader(reserved), within_s=6.0
            )
            if found is None:
                return
            fault = self._random.choice((self._faults.crash, self._faults.power_loss))
            await sleep_random(self._random, 0.001, 0.3)
            await (fault(found) if found is reserved else self._in_progress.run_on([found], fault(found)))

    # --- disks and voters

    async def voter_lost(self, reserved: SimulatedBroker) -> None:
        """Kills a voter of a healthy cluster, and sometimes wipes its disk if the budget allows it.

        If there is a spare broker, the voter stays stopped until the spare is a voter in its place,
        but no longer than a random time up to REPLACED_WITHIN_S. Otherwise it stays stopped for up
        to 10 s.
        """

        async def stop_voter(leader: SimulatedBroker) -> None:
            voters = {broker for broker, _ in committed_voters(self._cluster)}
            node = self._random.choice([one for one in self._cluster if one.node_id in voters])
            if self._random.randrange(2) and self._budget.allows_wipe(node, calm=True):
                self._budget.record_wipe(node)
                node.kill()
                node.wipe()
            else:
                node.kill()
            has_spare = len(self._cluster.brokers) > len(voters)
            self._trace(
                f"{node.host}, a voter, stays stopped" + (", at most until it is replaced" if has_spare else "")
            )
            if has_spare:
                await triggers.wait_until(
                    lambda: node.node_id not in {broker for broker, _ in committed_voters(self._cluster)},
                    within_s=self._random.uniform(1, REPLACED_WITHIN_S),
                )
            else:
                await sleep_random(self._random, 0.5, 10)
            if not node.is_running:
                node.start()

        await self._when_calm(reserved, stop_voter)

    async def founder_wiped(self, reserved: SimulatedBroker) -> None:
        """Restarts a broker with an empty disk and cluster.found=true beside the others.

        It must join their cluster. The operator never configures this, but administrators may. Does
        nothing if the budget does not allow a wipe.
        """

        async def action(leader: SimulatedBroker) -> None:
            node = self._random.choice(self._others(leader))
            if not self._budget.allows_wipe(node, calm=True):
                return
            self._budget.record_wipe(node)
            node.kill()
            node.wipe()
            node.may_found = True
            await sleep_random(self._random, 0.05, 2)
            node.start()
            await triggers.wait_until(lambda: node.is_serving, within_s=20)
            node.may_found = False

        await self._when_calm(reserved, action)

    async def all_moved(self, reserved: SimulatedBroker) -> None:
        """Stops all brokers and starts them at other addresses, with their disks."""

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

        await self._when_calm(reserved, move)

    # --- conditions of a fault

    def _trace(self, what: str) -> None:
        self._cluster.trace.add_line(what)

    def _others(self, node: SimulatedBroker) -> list[SimulatedBroker]:
        return [one for one in self._cluster if one is not node]

    def _newest_epoch(self) -> int:
        return max(one.broker.quorum.epoch for one in self._cluster if one.broker is not None and one.is_serving)

    def _free_leader(self, reserved: SimulatedBroker) -> Callable[[], list[SimulatedBroker]]:
        def candidates() -> list[SimulatedBroker]:
            leader = controller_broker(self._cluster)
            return [] if leader is None or (leader is not reserved and self._in_progress.is_busy(leader)) else [leader]

        return candidates

    async def _on_leader(self, reserved: SimulatedBroker, action: Fault) -> None:
        for leader in self._free_leader(reserved)():
            await (action(leader) if leader is reserved else self._in_progress.run_on([leader], action(leader)))

    async def _when_calm(self, reserved: SimulatedBroker, action: Fault) -> None:
        """Runs an action on the leader when the cluster is healthy, its voters are complete and no
        other fault is in progress. No fault begins meanwhile.
        """

        async def act_on_leader() -> None:
            leader = controller_broker(self._cluster)
            assert leader is not None
            await action(leader)

        await self._in_progress.run_when_calm(
            reserved,
            act_on_leader,
            is_ready=lambda: voters_are_complete(self._cluster) and all_follow_leader(self._cluster),
        )


def all_follow_leader(cluster: SimulatedCluster) -> bool:
    """True if every broker runs and knows the same leader of the metadata log.

    A broker that still stores an earlier vote on a slow disk does not know the leader, which may
    need it for its majority. Nor do brokers that gave up a leader while it was paused: they may
    elect another although it has resumed.
    """
    leaders = {None if one.broker is None else one.broker.quorum.describe_replica().leader_id for one in cluster}
    return len(leaders) == 1 and not leaders & {None, NO_LEADER}


def voters_are_complete(cluster: SimulatedCluster) -> bool:
    """True if as many brokers are voters as there should be, each with its current disk and
    address.
    """
    return not voter_problems(cluster)


def voter_problems(cluster: SimulatedCluster) -> list[str]:
    """Describes what is wrong with the committed voters of the metadata log; empty if nothing is.
    A stopped voter is a problem too.
    """
    voter_set = committed_voter_set(cluster)
    voters = {voter.key for voter in voter_set}
    if not voters:
        return ["the metadata log has no leader, or uncommitted records"]
    current: dict[int, ReplicaKey] = {
        node.node_id: ReplicaKey(node.node_id, node.broker.log_dirs[0].directory_id)
        for node in cluster
        if node.broker is not None and node.broker.log_dirs
    }
    wrong = [
        f"broker {broker} is a voter with directory {directory}, which it does not run with"
        for broker, directory in sorted(voters)
        if current.get(broker) != (broker, directory)
    ]
    if len(voters) != cluster.voter_count:
        wrong.append(f"{len(voters)} brokers are voters instead of {cluster.voter_count}")
    hosts = {node.node_id: node.host for node in cluster}
    wrong += [
        f"the voter set has broker {voter.broker} at {voter.address}, and the broker is at {hosts[voter.broker]}"
        for voter in voter_set
        if voter.endpoint is None or voter.endpoint[0] != hosts.get(voter.broker)
    ]
    return wrong
