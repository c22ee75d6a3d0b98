"""Faults that hit the members of a share group. Each returns when it is repaired."""

import asyncio
from collections.abc import Iterator, Sequence
from random import Random

from tests.sim import triggers
from tests.sim.broker_faults import sleep_random
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.cluster_state import running_brokers
from tests.sim.history import TopicPartition
from tests.sim.nemesis import WeightedFault
from tests.sim.share_group_member import ShareGroupMember

WITHOUT_FETCHES_S = 1.0, 3.0  # in which producers write records that wait for the members
ELECTED_WITHIN_S = 8.0
READS_FOR_S = 0.5, 3.0


class ShareFaults:
    def __init__(self, cluster: SimulatedCluster, random: Random, members: Sequence[ShareGroupMember]) -> None:
        self._cluster = cluster
        self._random = random
        self._members = members

    @property
    def weighted_faults(self) -> list[WeightedFault]:
        """The faults from which the nemesis draws, beside its own."""
        fault = WeightedFault(12, "fetches from two leaders", self.fetches_from_two_leaders)
        return [fault] if self._has_other_brokers else []

    @property
    def _has_other_brokers(self) -> bool:
        return len(self._cluster.brokers) > 1

    async def fetches_from_two_leaders(self, _: SimulatedBroker) -> None:
        """Isolates a leader, which has records for the group, from the other brokers. First some
        members fetch the records from the next leader, and then others from the isolated one.
        """
        shared = list(self._shared_partitions())
        if not shared:
            return
        node, tp, members = self._random.choice(shared)
        for member in members:
            member.pause_requests()
        self._cluster.trace.add_line(f"pauses the members that fetch {tp} from {node.host}")
        try:
            await sleep_random(self._random, *WITHOUT_FETCHES_S)
            others = [one.host for one in self._cluster if one is not node]
            directions = [(node.host, other) for other in others] + [(other, node.host) for other in others]
            with self._cluster.network.links_cut(directions):
                if await triggers.wait_until(lambda: self._has_other_leader(tp, node), ELECTED_WITHIN_S):
                    self._cluster.trace.add_line(f"another broker leads {tp}, and {node.host} still does")
                    await self._fetch_one_after_another(tp, members)
        finally:
            for member in members:
                member.resume_requests()

    def _shared_partitions(self) -> Iterator[tuple[SimulatedBroker, TopicPartition, list[ShareGroupMember]]]:
        """Partitions from whose leader several members fetch."""
        for node, broker in running_brokers(self._cluster):
            for partition in broker.partitions:
                tp = partition.topic, partition.partition
                members = [one for one in self._members if one.fetches_from(tp, node.node_id)]
                if partition.is_leader and len(members) > 1 and not any(one.is_paused for one in members):
                    yield node, tp, members

    def _has_other_leader(self, tp: TopicPartition, node: SimulatedBroker) -> bool:
        partitions = (broker.partitions.get(*tp) for one, broker in running_brokers(self._cluster) if one is not node)
        return any(one is not None and one.is_leader for one in partitions)

    async def _fetch_one_after_another(self, tp: TopicPartition, members: Sequence[ShareGroupMember]) -> None:
        first_count = self._random.randrange(1, len(members))
        for member in members[:first_count]:
            member.forget_leader(tp)
        for some in (members[:first_count], members[first_count:]):
            for member in some:
                member.resume_requests()
            await asyncio.sleep(self._random.uniform(*READS_FOR_S))
