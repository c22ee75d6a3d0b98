"""The clusters of a run with mirrors, their workloads, and the mirrors between them."""

import asyncio
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from tests.sim.appended_topic_checks import AppendedPartition, appended_partitions
from tests.sim.client import Workload
from tests.sim.cluster import SimulatedCluster
from tests.sim.cluster_clients import TOPIC
from tests.sim.history import History, TopicPartition
from tests.sim.log_history import LogHistory
from tests.sim.mirror_checks import MirroredReplica, mirrored_replicas
from tests.sim.mirror_plan import MirrorPlan
from tests.sim.network import SimulatedNetwork
from tests.sim.processes import SimulatedLoop
from tests.sim.trace import Trace

FORWARD_MIRROR: Final = "west"  # the mirror at the target
REVERSE_MIRROR: Final = "back"  # the mirror at the old source, after the failover


@dataclass
class MirrorSetup:
    """`admins_at_source` is the workload of the clients that finish before the other clients of the
    source.
    """

    plan: MirrorPlan
    loop: SimulatedLoop
    trace: Trace
    network: SimulatedNetwork
    source: SimulatedCluster
    target: SimulatedCluster
    at_source: Workload
    at_target: Workload
    admins_at_source: Workload
    counts: dict[str, int]
    log_history: LogHistory = field(default_factory=LogHistory)

    @classmethod
    def of(cls, plan: MirrorPlan, loop: SimulatedLoop, trace: Trace, random: Random) -> "MirrorSetup":
        network = SimulatedNetwork(loop, Random(random.getrandbits(64)))
        source, target = (
            SimulatedCluster(
                loop,
                Random(random.getrandbits(64)),
                one.brokers,
                one.settings,
                trace,
                network=network,
                host_prefix=name,
            )
            for name, one in (("source", plan.source), ("target", plan.target))
        )
        counts: dict[str, int] = {}
        at_source, at_target = (
            Workload(cluster.list_addresses, History(on_violation=trace.add_line), trace, counts=counts)
            for cluster in (source, target)
        )
        at_target.history.sent = at_source.history.sent  # records are sent to one cluster and found in the other
        at_target.history.idempotent_producers = at_source.history.idempotent_producers
        admins = replace(at_source, stop_event=asyncio.Event())
        return cls(plan, loop, trace, network, source, target, at_source, at_target, admins, counts)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [(TOPIC, partition) for partition in range(self.plan.source.partitions)]

    def violations(self) -> list[str]:
        """Violations that clients observed; those of a source that loses records on purpose do not
        count.
        """
        kept = [self.at_target] if self.plan.loses_records else [self.at_source, self.at_target]
        return [violation for workload in kept for violation in workload.history.violations]

    def appended_partitions(self) -> list[AppendedPartition]:
        return appended_partitions(self.target, FORWARD_MIRROR, self.loop.time())

    def copies(self) -> list[MirroredReplica]:
        return mirrored_replicas(self.target, FORWARD_MIRROR, self.loop.time())

    def failed_back_copies(self) -> list[MirroredReplica]:
        """Replicas of the reverse mirror at the old source."""
        return mirrored_replicas(self.source, REVERSE_MIRROR, self.loop.time())
