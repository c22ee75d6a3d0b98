"""Faults that wait until a broker is in a critical state (`triggers.py`) and then hit that
broker.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from random import Random

from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.replication_control import PartitionReassignment
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import KafkaError
from tests.sim import triggers
from tests.sim.broker_faults import SLOW_SYNC_S, BrokerFaults, sleep_random
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.cluster_state import controller_broker, running_brokers
from tests.sim.faults_in_progress import FaultsInProgress
from tests.sim.lag_monitor import HOST_PREFIX
from tests.sim.network import Direction

DELAY_S = (0.1, 1.5)
DELAY_BEYOND_SESSION_S = (0.8, 4.5)
PROPOSAL_DELAY_S = (0.5, 2.0)  # includes the time in which clients find the new leader
FETCH_DELAY_S = 1.0
TAKEOVER_WITHIN_S = 15.0  # a session timeout, client timeouts and a rebalance


class TriggeredFaults:
    """Faults that wait for a trigger.

    Each method gets a broker that is reserved for it, and may act on another one.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        random: Random,
        clients: Sequence[str],
        faults: BrokerFaults,
        in_progress: FaultsInProgress,
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._clients = list(clients)
        self._faults = faults
        self._in_progress = in_progress

    async def leader_killed_while_isr_expands(self, reserved: SimulatedBroker) -> None:
        """Delays the leader's messages, or those with the new member, while an ISR expands; then
        kills the leader.
        """
        await self._at_trigger(
            reserved,
            triggers.proposes_new_isr_member,
            lambda node: self._delay_and_kill(node, (0.003, 0.5), self._proposed_host(node)),
        )

    async def leader_killed_before_it_learns_of_expansion(self, reserved: SimulatedBroker) -> None:
        """Kills the leader before it learns that the ISR has a new member, which is the next leader
        and lacks the latest records.
        """
        await self._at_trigger(reserved, triggers.proposes_next_leader, self._expand_isr_and_kill)

    async def late_isr_proposal_after_leader_change(self, reserved: SimulatedBroker) -> None:
        """Delivers an ISR proposal of a former leader late, with a member that has none of the new
        leader's records.
        """
        await self._in_progress.run_when_calm(reserved, lambda: self._change_leader_meanwhile(reserved))

    async def leader_killed_while_followers_lag(self, reserved: SimulatedBroker) -> None:
        """Kills a leader whose followers lag behind, with slow links between all of them."""
        await self._at_trigger(reserved, triggers.followers_lag, lambda node: self._delay_and_kill(node, (0.05, 1.5)))

    async def requests_delayed_beyond_session(self, reserved: SimulatedBroker) -> None:
        """Delays a broker's messages, also its ISR proposals, so long that others may lead in its
        place.
        """
        latency_s = self._random.uniform(*DELAY_BEYOND_SESSION_S)
        self._trace(f"messages of {reserved.host} are delayed by {latency_s:.1f} s")
        directions = [(reserved.host, other) for other in self._other_hosts(reserved)]
        with self._cluster.network.links_slowed(directions, latency_s):
            await sleep_random(self._random, 2, 10)

    async def power_loss_while_syncing(self, reserved: SimulatedBroker) -> None:
        """Slows the disks of several brokers and cuts their power while a sync is in progress."""
        brokers = [reserved, *self._in_progress.sample_free_brokers(reserved)]
        self._trace(f"slows the disks of {[one.node_id for one in brokers]} until their power loss")
        await self._in_progress.run_on(brokers[1:], self._slow_disks_and_lose_power(brokers))

    async def power_loss_of_new_partition(self, reserved: SimulatedBroker) -> None:
        """Cuts the power just after a partition was created and written to."""
        await self._at_trigger(reserved, triggers.is_new_with_records, self._lose_power_at_once)

    async def responses_lost(self, reserved: SimulatedBroker) -> None:
        """Drops the responses to some clients, and usually cuts the power meanwhile."""
        clients = self._random.sample(self._clients, self._random.randrange(1, len(self._clients) + 1))
        self._trace(f"drops what {reserved.host} sends to {clients}")
        directions = [(reserved.host, client) for client in clients]
        with self._cluster.network.links_cut(directions):
            await sleep_random(self._random, 0.005, 0.5)
            if self._random.randrange(4):
                # Power loss also stops retransmission; without the budget for it the broker is
                # killed.
                await self._faults.power_loss(reserved)
            await sleep_random(self._random, 0.5, 6)  # some clients wait this long, others time out

    async def coordinator_isolated(self, reserved: SimulatedBroker) -> None:
        """Isolates a coordinator from the other brokers, mostly until others have taken over.

        Lag monitors reach only it, and some other clients only the brokers that take over.
        """
        if self._random.randrange(2):
            await self._at_trigger(reserved, triggers.is_coordinator, self._isolate_coordinator)
        else:
            await self._in_progress.run_when_calm(reserved, self._isolate_any_coordinator)

    # --- actions

    async def _at_trigger(
        self,
        reserved: SimulatedBroker,
        is_trigger: triggers.PartitionPredicate,
        action: Callable[[SimulatedBroker], Awaitable[None]],
    ) -> None:
        def candidates() -> list[SimulatedBroker]:
            nodes = triggers.brokers_with_partition(self._cluster, is_trigger)
            return [node for node in nodes if node is reserved or not self._in_progress.is_busy(node)]

        node = await triggers.wait_for_broker(self._cluster, self._random, candidates)
        if node is reserved:
            await action(node)
        elif node is not None:
            await self._in_progress.run_on([node], action(node))

    def _trace(self, what: str) -> None:
        self._cluster.trace.add_line(what)

    def _other_hosts(self, node: SimulatedBroker) -> list[str]:
        return [one.host for one in self._cluster if one is not node]

    def _proposed_host(self, node: SimulatedBroker) -> str | None:
        for partition in () if node.broker is None else node.broker.partitions:
            if triggers.proposes_new_isr_member(partition) and partition.pending_isr_change is not None:
                new_members = set(partition.pending_isr_change.isr) - set(partition.registration.isr)
                return self._cluster.brokers[min(new_members)].host
        return None

    async def _delay_and_kill(
        self, node: SimulatedBroker, after_s: tuple[float, float], new_member: str | None = None
    ) -> None:
        latency_s = self._random.uniform(*DELAY_S)
        others = self._other_hosts(node)
        outgoing, incoming = [(node.host, one) for one in others], [(one, node.host) for one in others]
        if new_member is None:
            between_others = [(a, b) for a in others for b in others if a != b]
            directions: list[Direction] = (
                self._random.choice([outgoing, incoming, outgoing + incoming]) + between_others
            )
        else:
            between_both = [(node.host, new_member), (new_member, node.host)]
            directions = self._random.choice([outgoing, incoming, between_both, between_both])
        self._trace(
            f"{' and '.join(f'{a} → {b}' for a, b in directions)}: delayed by {latency_s * 1000:.0f} ms; will "
            f"kill {node.host}"
        )
        with self._cluster.network.links_slowed(directions, latency_s):
            await sleep_random(self._random, *after_s)
            if node.is_running:
                node.kill()
            await sleep_random(self._random, 0.05, 3)
        if not node.is_running:
            node.start()

    async def _change_leader_meanwhile(self, reserved: SimulatedBroker) -> None:
        after_s = self._random.uniform(*PROPOSAL_DELAY_S)
        self._trace(f"delays ISR proposals with {reserved.host} by {after_s:.1f} s, until another broker leads")
        ends = {
            (one.topic, one.partition): one.log.end
            for one in ([] if reserved.broker is None else reserved.broker.partitions)
        }
        reserved.kill()
        await sleep_random(self._random, 0.05, 1.5)
        with self._cluster.network.packets_delayed(_is_alter_partition, after_s):
            if not reserved.is_running:
                reserved.start()
            found: list[tuple[Partition, SimulatedBroker]] = []

            def is_proposed() -> bool:
                """True if the ISR proposal of a partition with new records has this broker. An idle
                partition could lose nothing.
                """
                found.extend(
                    (partition, successor)
                    for partition, successor in self._proposals_of(reserved)
                    if partition.log.end > ends.get((partition.topic, partition.partition), partition.log.end)
                )
                return bool(found)

            if await triggers.wait_until(is_proposed):
                await self._take_over_and_kill(*self._random.choice(found), reserved, after_s)

    async def _expand_isr_and_kill(self, node: SimulatedBroker) -> None:
        partition = next(
            filter(triggers.proposes_next_leader, () if node.broker is None else node.broker.partitions), None
        )
        if partition is None:
            return
        new_member = self._cluster.brokers[triggers.proposed_isr_members(partition)[0]]
        controller = controller_broker(self._cluster)
        directions = [(new_member.host, node.host)]
        if controller is not None and controller is not node:
            directions.append((controller.host, node.host))
        if controller is not new_member:  # the controller must receive the proposal
            directions.append((node.host, new_member.host))
        latency_s = self._random.uniform(*DELAY_S)
        self._trace(
            f"{node.host} adds {new_member.host} to an ISR; delays {directions} by {latency_s * 1000:.0f} ms; will "
            f"kill {node.host}"
        )
        with self._cluster.network.links_slowed(list(dict.fromkeys(directions)), latency_s):
            await triggers.wait_until(
                lambda: triggers.is_isr_member_without_committed_records(self._cluster, partition, new_member),
                within_s=self._random.uniform(0.02, latency_s),
            )
            if node.is_running:
                node.kill()
            await sleep_random(self._random, 0.05, 3)
        if not node.is_running:
            node.start()

    def _proposals_of(self, reserved: SimulatedBroker) -> Iterator[tuple[Partition, SimulatedBroker]]:
        """Yields partitions whose ISR proposal has this broker, each with a possible successor.

        The controller's own proposals are left out: they are not sent over the network.
        """
        controller = controller_broker(self._cluster)
        for node, broker in running_brokers(self._cluster):
            for partition in broker.partitions if node is not controller else ():
                if reserved.node_id in triggers.proposed_isr_members(partition):
                    successors = (self._cluster.brokers[one] for one in partition.registration.isr)
                    yield from (
                        (partition, successor)
                        for successor in successors
                        if successor is not node and successor.is_serving
                    )

    async def _take_over_and_kill(
        self, partition: Partition, successor: SimulatedBroker, new_member: SimulatedBroker, within_s: float
    ) -> None:
        controller = controller_broker(self._cluster)
        if controller is None or controller.process is None or controller.broker is None:
            return
        if controller.broker.controller is None:
            return
        self._trace(
            f"{successor.host} becomes leader of {partition} and receives nothing from {new_member.host}; will "
            f"kill {successor.host}"
        )
        after = [successor.node_id, new_member.node_id]
        order = [*after, *(one for one in partition.registration.replicas if one not in after)]
        blocked: Direction = new_member.host, successor.host
        with self._cluster.network.packets_delayed(
            lambda direction, piece: direction == blocked and api_key(piece) == ApiKey.FETCH, within_s + FETCH_DELAY_S
        ):
            controller.process.run(_transfer_leadership(controller.broker.controller, partition, order))
            await triggers.wait_until(
                lambda: triggers.is_led_by(self._cluster, partition, successor), within_s=within_s
            )
            led_partition = (
                None
                if successor.broker is None
                else successor.broker.partitions.get(partition.topic, partition.partition)
            )
            if led_partition is not None:
                await triggers.wait_until(
                    lambda: triggers.is_isr_member_without_committed_records(self._cluster, led_partition, new_member),
                    within_s=within_s + self._random.uniform(0.0, 0.3),
                )
            if successor.is_running:
                successor.kill()
            await sleep_random(self._random, 0.05, 3)
        if not successor.is_running:
            successor.start()

    async def _lose_power_at_once(self, node: SimulatedBroker) -> None:
        await sleep_random(self._random, 0.001, 0.3)
        await self._faults.power_loss(node)

    async def _slow_disks_and_lose_power(self, brokers: Sequence[SimulatedBroker]) -> None:
        original_sync_s = {node.node_id: node.disk.sync_s for node in brokers}
        for node in brokers:
            node.disk.sync_s = lambda: self._random.uniform(*SLOW_SYNC_S)

        def candidates() -> list[SimulatedBroker]:
            waiting = triggers.brokers_with_partition(self._cluster, triggers.has_unsynced_acks)
            waiting += triggers.brokers_where(self._cluster, triggers.has_unsynced_metadata)
            return [node for node in waiting if node in brokers]

        await sleep_random(self._random, 0.05, 1.5)
        await triggers.wait_for_broker(self._cluster, self._random, candidates, within_s=2.0)
        await sleep_random(self._random, 0.001, 0.1)
        await self._faults.run_on_all(brokers, self._faults.power_loss)
        for node in brokers:
            node.disk.sync_s = original_sync_s[node.node_id]

    async def _isolate_any_coordinator(self) -> None:
        if found := triggers.brokers_with_partition(self._cluster, triggers.is_coordinator):
            await self._isolate_coordinator(self._random.choice(found))

    async def _isolate_coordinator(self, node: SimulatedBroker) -> None:
        """Lag monitors reach only the isolated broker. Any other client reaches all brokers, or all
        but the isolated one.
        """
        others = self._other_hosts(node)
        directions = [direction for other in others for direction in ((node.host, other), (other, node.host))]
        for client in self._clients:
            unreachable = others if client.startswith(HOST_PREFIX) else self._random.choice(([], [node.host]))
            directions += [direction for broker in unreachable for direction in ((client, broker), (broker, client))]
        self._trace(f"isolates {node.host}, a coordinator")
        with self._cluster.network.links_cut(directions):
            await sleep_random(self._random, 1, 6)
            if self._random.randrange(4):
                await triggers.wait_until(
                    lambda: triggers.is_stale_coordinator(self._cluster, node), within_s=TAKEOVER_WITHIN_S
                )
                await sleep_random(self._random, 0.5, 3)
            self._trace(f"ends the isolation of {node.host}")


def _is_alter_partition(_: Direction, piece: bytes) -> bool:
    return api_key(piece) == ApiKey.ALTER_PARTITION


def api_key(piece: bytes) -> int:
    """API key of the request at the start of a segment."""
    return int.from_bytes(piece[4:6])


async def _transfer_leadership(controller: Controller, partition: Partition, order: Sequence[int]) -> None:
    """Makes `order[0]` leader as an administrator does: reassigns the replicas in this order, then
    elects the preferred leader.
    """
    with suppress(KafkaError):
        await controller.replication_control.reassign_partitions(
            [PartitionReassignment(partition.topic, partition.partition, order)]
        )
        await controller.replication_control.elect_preferred_leaders([(partition.topic, partition.partition)])
