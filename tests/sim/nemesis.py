"""Injects random faults into a cluster, one after another and overlapping."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from tests.sim.broker_faults import BrokerFaults, sleep_random
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.cluster_state import controller_broker
from tests.sim.fault_budget import FaultBudget
from tests.sim.faults_in_progress import Fault, FaultsInProgress
from tests.sim.network_faults import NetworkFaults
from tests.sim.plan import Plan
from tests.sim.quorum_faults import QuorumFaults
from tests.sim.triggered_faults import TriggeredFaults

BETWEEN_FAULTS_S = {1: 2.5, 2: 1.5, 3: 1.0, 4: 0.8, 5: 0.7}  # on average, by number of brokers
BUDGET_UPDATE_S = 0.1
MOVED = "brokers moved"
WIPES = "wiped disk", "wiped founder", "voter lost"
# Faults that matter only to partitions and clients.
DATA_FAULTS = (
    "client link cut",
    "responses lost",
    "power loss of new partition",
    "leader killed during ISR expansion",
    "leader killed before ISR expansion",
    "late ISR proposal",
    "leader killed while followers lag",
    "coordinator isolated",
)
# Faults that matter only to the metadata log and its voters.
METADATA_FAULTS = (
    "follower hears no leader",
    "controller without majority",
    "candidates slowed",
    "controllers killed in turn",
    "voter lost",
    "wiped founder",
    MOVED,
)


class WeightedFault(NamedTuple):
    """A fault that is drawn with a probability proportional to its weight."""

    weight: int
    name: str
    inject: Fault


class Nemesis:
    """Injects faults into one cluster and repairs all of them.

    `clients` are hosts that connect to the brokers. `excluded` names faults that never happen;
    `additional` has faults beside those of every cluster.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        clients: Sequence[str],
        random: Random,
        plan: Plan,
        excluded: Sequence[str] = (),
        additional: Sequence[WeightedFault] = (),
    ) -> None:
        self.cluster = cluster
        self.random = random
        self.fault_counts: dict[str, int] = {}
        self._between_s = BETWEEN_FAULTS_S[min(plan.brokers, max(BETWEEN_FAULTS_S))]
        self._in_progress = FaultsInProgress(cluster, random)
        self._budget = FaultBudget(cluster, plan)
        single = self._broker_faults = BrokerFaults(cluster, random, self._budget)
        net = self._network_faults = NetworkFaults(cluster, random, clients)
        triggered = TriggeredFaults(cluster, random, clients, single, self._in_progress)
        quorum = QuorumFaults(cluster, random, single, self._budget, self._in_progress)
        faults: list[tuple[int, str, Fault]] = [
            (4, "crash", single.crash),
            (3, "clean restart", single.clean_restart),
            (2, "pause", single.pause),
            (2, "slow disk", single.slow_disk),
            (2, "clock jump", single.clock_jump),
            (3, "client link cut", net.cut_client),
            (2, "full disk", single.full_disk),
            (4, "power loss", single.power_loss),
            (2, "responses lost", triggered.responses_lost),
            (2, "power loss while syncing", triggered.power_loss_while_syncing),
            (2, "power loss of new partition", triggered.power_loss_of_new_partition),
        ]
        if plan.brokers > 1:
            faults += [
                (4, "wiped disk", single.wipe),
                (4, "isolation", net.isolate),
                (2, "one-way isolation", net.isolate_one_way),
                (3, "broker link cut", net.cut_between_two),
                (2, "brokers split", net.split),
                (1, "ring cut", net.cut_ring),
                (4, "controller fault", self._controller_fault),
                (2, "several crashes", self._crash_several),
                (2, "several power losses", self._power_loss_of_several),
                (3, "crashes in sequence", self._crash_in_sequence),
                (3, "slow network", net.slow_network),
                (3, "leader killed during ISR expansion", triggered.leader_killed_while_isr_expands),
                (4, "leader killed before ISR expansion", triggered.leader_killed_before_it_learns_of_expansion),
                (5, "late ISR proposal", triggered.late_isr_proposal_after_leader_change),
                (3, "leader killed while followers lag", triggered.leader_killed_while_followers_lag),
                (3, "requests delayed beyond session", triggered.requests_delayed_beyond_session),
                (5, "coordinator isolated", triggered.coordinator_isolated),
                (2, "follower hears no leader", quorum.follower_hears_no_leader),
                (2, "controller without majority", quorum.leader_without_majority),
                (2, "candidates slowed", quorum.candidates_slowed),
                (2, "controllers killed in turn", quorum.leaders_killed_in_turn),
                (2, "voter lost", quorum.voter_lost),
                (1, "wiped founder", quorum.founder_wiped),
                (1, MOVED, quorum.all_moved),
            ]
        weighted = (WeightedFault(*one) for one in faults)
        self._faults = [*(one for one in weighted if one.name not in excluded), *additional]

    async def run(self, until_s: float, give_up: Callable[[], bool] = lambda: False) -> None:
        """Injects faults until the loop's time is `until_s`, or `give_up` is True; returns when all
        are repaired.
        """
        loop = asyncio.get_running_loop()
        updating = loop.create_task(self._update_budget())
        pause_s = self.random.choice((0.3, self._between_s))  # sometimes early, while the cluster is new
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self.random.expovariate(1 / pause_s))
                pause_s = self._between_s
                if loop.time() >= until_s or give_up():
                    break
                tasks.create_task(self._inject_fault())
        updating.cancel()

    async def _update_budget(self) -> None:
        while True:
            await asyncio.sleep(BUDGET_UPDATE_S)
            self._budget.update()

    async def _inject_fault(self) -> None:
        (_, name, fault) = self.random.choices(self._faults, [one.weight for one in self._faults])[0]
        free = [broker for broker in self.cluster if broker.is_serving and not self._in_progress.is_busy(broker)]
        if not free or not self._is_allowed(name, broker := self.random.choice(free)):
            return
        self.fault_counts[name] = self.fault_counts.get(name, 0) + 1
        await self._in_progress.run(fault, broker)

    def _is_allowed(self, name: str, broker: SimulatedBroker) -> bool:
        if name == "power loss":
            return self._budget.allows_power_loss(broker)
        if name == "wiped disk":
            return self._budget.allows_wipe(broker, calm=self._in_progress.are_none)
        return True

    # --- composed faults

    async def _controller_fault(self, _: SimulatedBroker) -> None:
        """A fault of the active controller."""
        broker = controller_broker(self.cluster)
        if broker is None or not broker.is_serving or self._in_progress.is_busy(broker):
            return
        one, net = self._broker_faults, self._network_faults
        fault = self.random.choice((one.crash, one.pause, one.clean_restart, net.isolate, net.isolate_one_way))
        await self._in_progress.run_on([broker], fault(broker))

    async def _crash_several(self, broker: SimulatedBroker) -> None:
        others = self._in_progress.sample_free_brokers(broker)
        self.cluster.trace.add_line(f"kills {[one.node_id for one in (broker, *others)]} at once")
        await self._in_progress.run_on(
            others, self._broker_faults.run_on_all([broker, *others], self._broker_faults.crash)
        )

    async def _power_loss_of_several(self, broker: SimulatedBroker) -> None:
        """Cuts the power of as many of several brokers as the budget allows; kills the others."""
        brokers = [broker, *self._in_progress.sample_free_brokers(broker)]
        self.cluster.trace.add_line(f"cuts the power of {[one.node_id for one in brokers]}, or kills them")
        await self._in_progress.run_on(
            brokers[1:], self._broker_faults.run_on_all(brokers, self._broker_faults.power_loss)
        )

    async def _crash_in_sequence(self, broker: SimulatedBroker) -> None:
        """Kills several brokers in sequence; the first, which has the oldest log, starts first."""
        brokers = [broker, *self._in_progress.sample_free_brokers(broker)]
        self.cluster.trace.add_line(f"kills {[one.node_id for one in brokers]} in sequence")
        await self._in_progress.run_on(brokers[1:], self._kill_and_start_in_turn(brokers))

    async def _kill_and_start_in_turn(self, brokers: Sequence[SimulatedBroker]) -> None:
        for broker in brokers:
            if broker.is_running:
                broker.kill()
            await sleep_random(self.random, 0.1, 3)
        for broker in brokers:
            if not broker.is_running:
                broker.start()
            await sleep_random(self.random, 0.1, 3)
