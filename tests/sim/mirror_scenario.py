"""The run of one seed with two clusters: mirroring under faults, failover in the middle of them,
failback.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from random import Random
from typing import Any, Protocol

from ottla_broker.broker import Broker
from ottla_broker.replication.partition import Partition
from tests.sim import mirrored_credentials
from tests.sim.access_admin import AccessAdmin
from tests.sim.admin import ReassignmentAdmin, TopicAdmin
from tests.sim.client import Workload
from tests.sim.cluster import SimulatedCluster
from tests.sim.cluster_clients import TOPIC
from tests.sim.group_member import Member
from tests.sim.history import ExpectedTopic, History, TopicPartition
from tests.sim.mirror_admin import MirrorAdmin, RecordDeleter
from tests.sim.mirror_checks import high_watermark_floor, highest_watermark, leader_replicas
from tests.sim.mirror_faults import LeaderFaults, LinkFaults
from tests.sim.mirror_final_checks import MirrorFinalChecks
from tests.sim.mirror_plan import MirrorPlan
from tests.sim.mirror_reader import MirrorReader
from tests.sim.mirror_setup import FORWARD_MIRROR, REVERSE_MIRROR, MirrorSetup
from tests.sim.nemesis import MOVED, WIPES, Nemesis, WeightedFault
from tests.sim.network import SimulatedNetwork
from tests.sim.plan import Plan
from tests.sim.processes import SimulatedLoop, SimulatedProcess
from tests.sim.producer import ALL, Producer, ProducerSettings, TemporaryTopicProducer
from tests.sim.replica_checks import ReplicaMonitor
from tests.sim.simulation import Client, CreateClient, Outcome, SimulationDriver, run_simulation
from tests.sim.trace import Trace
from tests.sim.virtual_loop import Deadlock

GROUP = "readers"
OWN_GROUP = "keepers"  # the target's own group
TOPIC_PATTERNS = f"{TOPIC},passing-*"
SETS_UP_WITHIN_S = 60.0
JOINS_WITHIN_S = 10.0
COPIES_WITHIN_S = 5.0
FEW, SOME, MANY = 5, 20, 1 << 30  # offsets
POLL_S = 0.01


def run_mirror_seed(
    seed: int, *, on_line: Callable[[str], None] | None = None, level: int = logging.WARNING
) -> Outcome:
    """Runs one seed. `on_line` and `level`: see `run_simulation`."""
    plan = MirrorPlan.of(seed)
    return run_simulation(seed, lambda loop, trace: MirrorSimulation(loop, plan, trace), on_line=on_line, level=level)


class RunningClient(Protocol):
    process: SimulatedProcess

    async def run(self) -> None: ...


class MirrorSimulation:
    def __init__(self, loop: SimulatedLoop, plan: MirrorPlan, trace: Trace) -> None:
        self.random = Random(plan.seed ^ 0x0771A)
        self.faults: dict[str, int] = {}
        self._setup = MirrorSetup.of(plan, loop, trace, self.random)
        self._driver = SimulationDriver(loop, trace, self.random)
        self._losing_records = False
        self._client_hosts: list[str] = []
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def network(self) -> SimulatedNetwork:
        return self._setup.network

    @property
    def counts(self) -> Mapping[str, int]:
        return self._setup.counts

    @property
    def brokers(self) -> int:
        return self._setup.plan.source.brokers + self._setup.plan.target.brokers

    @property
    def histories(self) -> Sequence[History]:
        return self._setup.at_source.history, self._setup.at_target.history

    def run(self) -> list[str]:
        monitors = [
            ReplicaMonitor(cluster, self._setup.trace, floor)
            for cluster, floor in (
                (self._setup.source, self._high_watermark_floor),
                (self._setup.target, high_watermark_floor),
            )
        ]
        main = self._setup.loop.create_task(self._main(monitors))
        try:
            with monitors[0].observe_appends(), self._setup.log_history.record_appends():
                return self._setup.loop.run_until_complete(main)
        except Deadlock as reason:
            return [f"deadlock: {reason}"]

    async def _main(self, monitors: Sequence[ReplicaMonitor]) -> list[str]:
        plan, trace = self._setup.plan, self._setup.trace
        trace.add_line(f"seed {plan.seed}: {plan}")
        for cluster, cluster_plan in ((self._setup.source, plan.source), (self._setup.target, plan.target)):
            for broker in cluster:
                broker.disk.set_sync_s(0.0002, cluster_plan.sync_s)
                broker.start()
        monitoring = [self._setup.loop.create_task(monitor.run()) for monitor in monitors]
        if not await self._driver.finishes_within(
            SETS_UP_WITHIN_S, self._setup.loop.create_task(self._create_topics()), "set up"
        ):
            return ["the clusters did not start", *self._setup.violations()]
        self._start_at_source()
        if plan.mirrors_from_start:
            await self._wait_until(lambda: self._has_copied(FEW), COPIES_WITHIN_S)
        await self._inject_faults()
        trace.add_line("faults are over")
        final_checks = MirrorFinalChecks(self._setup, self._driver)
        found = await final_checks.wait_for_convergence()
        for workload in (self._setup.at_source, self._setup.admins_at_source, self._setup.at_target):
            workload.stop_event.set()
        found += await self._driver.wait_for_clients(self._tasks)
        found += await final_checks.check()
        for task in monitoring:
            task.cancel()
        return found + [violation for violation in self._setup.violations() if violation not in found]

    def _high_watermark_floor(self, broker: Broker, partition: Partition) -> int | None:
        return 0 if self._setup.plan.loses_records else high_watermark_floor(broker, partition)

    # --- clients

    def _client(self, create: CreateClient[Client], workload: Workload, name: str) -> Client:
        return self._driver.create_client(create, workload, name)

    def _start(self, create: CreateClient[RunningClient], workload: Workload, name: str) -> None:
        client = self._client(create, workload, name)
        self._client_hosts.append(name)
        self._tasks.append(client.process.run(client.run()))

    async def _create_topics(self) -> None:
        admin = self._client(
            partial(TopicAdmin, replicas=self._setup.plan.source.replicas), self._setup.at_source, "admin-0"
        )
        await admin.process.run(admin.create(TOPIC, self._setup.plan.source.partitions))
        if self._setup.plan.copies_users:
            for workload, name in ((self._setup.at_target, "own-1"), (self._setup.at_source, "own-2")):
                owner = self._client(AccessAdmin, workload, name)
                await owner.process.run(owner.create_credential(mirrored_credentials.OWN_USER))
        if self._setup.plan.mirrors_from_start:
            await self._set_forward_mirror()

    async def _set_mirror(self, workload: Workload, name: str, settings: Mapping[str, str]) -> None:
        number = sum(self._setup.counts.values())
        admin = self._client(MirrorAdmin, workload, f"mirr-adm-{number}")
        await admin.process.run(admin.set_mirror(name, settings))

    async def _set_forward_mirror(self) -> None:
        settings = self._mirror_settings(self._setup.source) | {
            "on.source.truncation": self._setup.plan.on_source_truncation
        }
        if self._setup.plan.copies_users:
            settings |= mirrored_credentials.mirror_settings(self._setup.source)
        await self._set_mirror(self._setup.at_target, FORWARD_MIRROR, settings)

    def _mirror_settings(self, source: SimulatedCluster) -> dict[str, str]:
        return {
            "bootstrap.servers": ",".join(source.list_addresses()),
            "topics": TOPIC_PATTERNS,
            "groups": GROUP,
            "metadata.max.age.ms": str(self.random.choice((300, 1_000))),
            "fetch.max.wait.ms": str(self.random.choice((100, 500))),
        } | ({"offsets": "Appended"} if self._setup.plan.appended else {})

    def _start_at_source(self) -> None:
        plan, random, setup = self._setup.plan, self.random, self._setup
        for number in range(2):
            self._start(self._producer(plan.loses_records), setup.at_source, f"producer-{number}")
        self._start(_member(GROUP), setup.admins_at_source, f"{GROUP}-0")
        if plan.has_temporary_topics:
            self._start(partial(TopicAdmin, replicas=plan.source.replicas), setup.admins_at_source, "admin-1")
            settings = self._producer_settings(plan.loses_records)
            producer = partial(TemporaryTopicProducer, settings=settings, permanent=TOPIC)
            self._start(producer, setup.admins_at_source, "tmp-prod-1")
        if plan.copies_users:
            self._start(AccessAdmin, setup.admins_at_source, mirrored_credentials.ADMIN)
            remover = self._client(AccessAdmin, setup.admins_at_source, "own-3")
            self._tasks.append(remover.process.run(remover.delete_credential(mirrored_credentials.OWN_USER)))
        if plan.deletes_records:
            self._start(self._record_deleter(GROUP), setup.admins_at_source, "deleter-1")
        if random.randrange(2):
            self._start_reassignments(setup.admins_at_source, "mover-1", plan.source)
        if random.randrange(2):
            self._start_reassignments(setup.at_target, "mover-2", plan.target)
        if plan.appended:
            self._start_target_producers()
            self._start(_member(OWN_GROUP), setup.at_target, f"{OWN_GROUP}-0")
            if random.randrange(2):
                self._start(self._record_deleter(OWN_GROUP), setup.at_target, "deleter-2")
        # The high watermark of a copy that starts inside of a batch may fall to the batch's start
        # once.
        elif not (plan.recreates_copies or plan.deletes_inside_batches):
            highest = partial(highest_watermark, setup.target)
            reader = partial(MirrorReader, topic_partitions=setup.partitions, group=GROUP, highest_watermark=highest)
            self._start(reader, setup.at_target, "reader-1")

    def _start_reassignments(self, workload: Workload, name: str, plan: Plan) -> None:
        if plan.brokers > 1:
            mover = partial(
                ReassignmentAdmin,
                topic_partitions=self._setup.partitions,
                brokers=plan.brokers,
                replicas=plan.replicas,
            )
            self._start(mover, workload, name)

    def _producer(self, plain: bool) -> "partial[Producer]":
        return partial(Producer, topic_partitions=self._setup.partitions, settings=self._producer_settings(plain))

    def _record_deleter(self, group: str) -> "partial[RecordDeleter]":
        inside = self._setup.plan.deletes_inside_batches
        return partial(RecordDeleter, topic_partitions=self._setup.partitions, groups=[group], inside=inside)

    def _producer_settings(self, plain: bool) -> ProducerSettings:
        random = self.random
        idempotent = not plain and bool(random.randrange(2))
        return ProducerSettings(
            ALL, idempotent, random.choice((1, 3)), bool(random.randrange(2)), random.choice((0.1, 0.3))
        )

    # --- faults and stages

    async def _inject_faults(self) -> None:
        plan, random = self._setup.plan, self.random
        until_s = self._setup.loop.time() + plan.faults_for_s
        hosts = [*self._client_hosts, *(one.host for one in self._setup.target)]
        # The settings of a mirror have the addresses that its source had at first. A disk that is
        # lost may hold the saved files of truncated records.
        excluded = (MOVED, *WIPES) if plan.fails_back else (MOVED,)
        link = LinkFaults(self._setup.source, self._setup.target, Random(random.getrandbits(64)))
        record_loss = WeightedFault(15, "records lost unobserved", lambda _: self._lose_records(link))
        additional = [record_loss] if plan.loses_records else []
        nemeses = [
            Nemesis(self._setup.source, hosts, Random(random.getrandbits(64)), plan.source, excluded, additional),
            Nemesis(self._setup.target, self._client_hosts, Random(random.getrandbits(64)), plan.target, (MOVED,)),
        ]
        leader_faults = [
            LeaderFaults(cluster, Random(random.getrandbits(64)))
            for cluster in (self._setup.source, self._setup.target)
        ]
        injectors: list[Nemesis | LinkFaults] = [*nemeses, link]
        async with asyncio.TaskGroup() as tasks:
            for one in injectors:
                tasks.create_task(one.run(until_s))
            tasks.create_task(self._run_stages(*leader_faults))
        for counts in (*(one.fault_counts for one in injectors), *(one.fault_counts for one in leader_faults)):
            for name, count in counts.items():
                self.faults[name] = self.faults.get(name, 0) + count

    async def _lose_records(self, link: LinkFaults) -> None:
        """Loses records that were copied: first waits, at most for COPIES_WITHIN_S, until copies
        lack few of them.
        """
        if self._losing_records:
            return
        self._losing_records = True
        await self._wait_until(lambda: self._source_lead() <= FEW, COPIES_WITHIN_S)
        await link.lose_records_unobserved()
        self._losing_records = False

    def _source_lead(self) -> int:
        """The largest number of offsets by which a source partition is ahead of its copy."""
        ends, leaders = self._copied_offsets(), leader_replicas(self._setup.source)
        known = [tp for tp in self._setup.partitions if tp in ends and tp in leaders]
        return max((leaders[tp].log.high_watermark - ends[tp] for tp in known), default=MANY)

    async def _run_stages(self, at_source: LeaderFaults, at_target: LeaderFaults) -> None:
        plan = self._setup.plan
        if not plan.mirrors_from_start:
            await asyncio.sleep(self.random.uniform(0.1, 2))
            await self._set_forward_mirror()
        if not plan.fails_over:
            return
        await asyncio.sleep(plan.fails_over_s)
        await self._wait_until(lambda: self._has_copied(SOME), COPIES_WITHIN_S)
        await self._wait_until(self._has_copied, inf)
        tp = self.random.choice(self._setup.partitions)
        await self._prepare_failover()
        await (at_target.kill_leader_during(tp, self._fail_over) if plan.kills_leaders else self._fail_over())
        if plan.fails_back:
            await asyncio.sleep(plan.fails_back_s)
            self._setup.trace.add_line("the old source becomes a mirror")
            await self._set_mirror(
                self._setup.at_source,
                REVERSE_MIRROR,
                self._mirror_settings(self._setup.target) | {"on.divergence": "Truncate"},
            )
            if plan.kills_leaders:
                await at_source.kill_leader_during(tp, lambda: self._wait_until_joined(tp))

    async def _wait_until(self, condition: Callable[[], bool], within_s: float) -> None:
        """Waits until `condition` is True, at most `within_s`."""
        deadline = self._setup.loop.time() + within_s
        while self._setup.loop.time() < deadline:
            if condition():
                return
            await asyncio.sleep(POLL_S)

    def _has_copied(self, least: int = 0) -> bool:
        """True if each partition has copied at least this many offsets."""
        ends = self._copied_offsets()
        return all(ends.get(tp, -1) >= least for tp in self._setup.partitions)

    def _copied_offsets(self) -> dict[TopicPartition, int]:
        """The source offset up to which each partition is copied."""
        ends = {copy.topic_partition: copy.leader.log.end for copy in self._setup.copies() if copy.leader is not None}
        return ends | {
            one.topic_partition: one.status.end for one in self._setup.appended_partitions() if one.status is not None
        }

    async def _prepare_failover(self) -> None:
        if not self._setup.plan.appended:
            self._start_target_producers()  # they are rejected until the failover
        await asyncio.sleep(self.random.uniform(0, 1))
        if self._setup.plan.fails_back:
            self._setup.admins_at_source.stop_event.set()

    def _start_target_producers(self) -> None:
        self._setup.at_target.history.topics[TOPIC] = ExpectedTopic(
            exists=True, partitions=self._setup.plan.source.partitions
        )
        for number in range(2):
            self._start(self._producer(plain=False), self._setup.at_target, f"local-{number}")

    async def _fail_over(self) -> None:
        self._setup.trace.add_line("fails over")
        await self._set_mirror(self._setup.at_target, FORWARD_MIRROR, {"role": "FailedOver"})
        if not (self._setup.plan.deletes_records or self._setup.plan.loses_records or self._setup.plan.appended):
            self._start(_member(GROUP), self._setup.at_target, f"{GROUP}-moved")

    async def _wait_until_joined(self, tp: TopicPartition) -> None:
        """Waits until the truncation offset of a partition of the old source is known, with a
        timeout.
        """
        await self._wait_until(
            lambda: any(
                one.topic_partition == tp and one.record.joined >= 0 for one in self._setup.failed_back_copies()
            ),
            JOINS_WITHIN_S,
        )


def _member(group: str) -> "partial[Member]":
    return partial(Member, group=group, topic=TOPIC, rack="")
