"""The run of one seed: a cluster and its clients, faults for a while, recovery, and the checks."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from ottla_broker.metadata import fetch_sources, leader_follower, leader_term
from ottla_broker.metadata.metadata_fetch import MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.observer_fetches import ObserverFetches
from ottla_broker.share_groups import dead_letter_writer
from tests.sim.access_monitor import AccessMonitor, check_access
from tests.sim.admin import TopicAdmin
from tests.sim.checks import violations
from tests.sim.client import Workload
from tests.sim.cluster import SimulatedCluster
from tests.sim.cluster_clients import TOPIC, ClusterClients
from tests.sim.cluster_state import newest_image, unhealthy_partitions
from tests.sim.election_safety import ElectionSafetyMonitor
from tests.sim.history import History
from tests.sim.nemesis import DATA_FAULTS, METADATA_FAULTS, Nemesis
from tests.sim.network import SimulatedNetwork
from tests.sim.plan import Plan
from tests.sim.processes import SimulatedLoop, SimulatedProcess
from tests.sim.quorum_faults import voter_problems
from tests.sim.quorum_monitor import QuorumMonitor
from tests.sim.reader import Reader
from tests.sim.replica_checks import ReplicaMonitor, differing_images, unsettled_replicas, violations_at_rest
from tests.sim.share_faults import ShareFaults
from tests.sim.share_group_member import ShareGroupMember
from tests.sim.share_workload import ShareWorkload
from tests.sim.simulation import Client, CreateClient, Outcome, SimulationDriver, run_simulation
from tests.sim.trace import Trace
from tests.sim.transaction_faults import TransactionFaults
from tests.sim.transaction_workload import OUTPUTS, TransactionWorkload
from tests.sim.virtual_loop import Deadlock

DEAD_LETTER_ATTEMPTS = 1000  # never given up, so that all must arrive after the faults
CONVERGES_WITHIN_S = 120.0
SETTLES_WITHIN_S = 30.0
ENDS_WITHIN_S = 60.0  # longer than any transaction's timeout


def run_plan(
    choose_plan: Callable[[int, int | None], Plan],
    seed: int,
    brokers: int | None = None,
    *,
    on_line: Callable[[str], None] | None = None,
    level: int = logging.WARNING,
) -> Outcome:
    """Runs one seed. `brokers` None: the seed chooses. `on_line` and `level`: see
    `run_simulation`.
    """
    plan = choose_plan(seed, brokers)
    return run_simulation(
        plan.seed, lambda loop, trace: ClusterSimulation(loop, plan, trace), on_line=on_line, level=level
    )


run_seed = partial(run_plan, Plan.of)
run_metadata_seed = partial(run_plan, Plan.of_metadata)
run_observer_seed = partial(run_plan, Plan.of_observers)
run_access_seed = partial(run_plan, Plan.of_access)
run_transaction_seed = partial(run_plan, Plan.of_transactions)
run_share_seed = partial(run_plan, Plan.of_shares)
run_streams_seed = partial(run_plan, Plan.of_streams)


class ClusterSimulation:
    def __init__(self, loop: SimulatedLoop, plan: Plan, trace: Trace) -> None:
        self.plan = plan
        self.loop = loop
        self.trace = trace
        self.random = Random(plan.seed ^ 0x0771A)
        self.cluster = SimulatedCluster(loop, Random(self.random.getrandbits(64)), plan.brokers, plan.settings, trace)
        self.history = History(on_violation=trace.add_line)
        self.workload = Workload(self.cluster.list_addresses, self.history, trace)
        self.faults: dict[str, int] = {}
        self._quorum = QuorumMonitor(self.cluster, trace)
        self._election_safety = ElectionSafetyMonitor(self.cluster, trace)
        self._driver = SimulationDriver(loop, trace, self.random)
        self._is_founded = False
        self._voter_fetch_count = 0  # fetches of observers that voters served
        self._transactions = (
            TransactionWorkload(plan, self.workload, self.random, TOPIC) if plan.is_transactional else None
        )
        self._shares = ShareWorkload(plan, self.workload, self.random, TOPIC) if plan.has_share_group else None
        self._cluster_clients = ClusterClients(plan, self.random, self._client, self._transactions, self._shares)

    @property
    def network(self) -> SimulatedNetwork:
        return self.cluster.network

    @property
    def brokers(self) -> int:
        return self.plan.brokers

    @property
    def histories(self) -> Sequence[History]:
        return (self.history,)

    @property
    def counts(self) -> dict[str, int]:
        of_transactions = {} if self._transactions is None else self._transactions.counts
        of_shares = {} if self._shares is None else self._shares.counts
        return {
            **self.workload.counts,
            **of_transactions,
            **of_shares,
            "controller elected": self._quorum.epoch_count,
            **({"fetches served by voters": self._voter_fetch_count} if self.plan.has_observers else {}),
        }

    @contextmanager
    def _observe_fetches(self) -> Iterator[None]:
        original = ObserverFetches.handle_fetch

        async def handle_fetch(fetches: ObserverFetches, request: MetadataFetchRequest) -> MetadataFetchResponse | None:
            response = await original(fetches, request)
            self._voter_fetch_count += response is not None
            return response

        with patch.object(ObserverFetches, "handle_fetch", handle_fetch):
            yield

    def run(self) -> list[str]:
        monitor = ReplicaMonitor(self.cluster, self.trace)
        main = self.loop.create_task(self._main(monitor))
        try:
            with (
                monitor.observe_appends(),
                self._election_safety.observe_advances(),
                self._observe_fetches(),
                patch.object(leader_term, "VOTER_LOSS_TIMEOUT_S", self.plan.voter_loss_timeout_s),
                patch.object(leader_follower, "LEADER_FETCH_INTERVAL_S", self.plan.leader_fetch_interval_s),
                patch.object(fetch_sources, "VOTER_RETRY_S", self.plan.voter_retry_s),
                patch.object(fetch_sources, "LEADER_ONLY_S", self.plan.leader_only_s),
                patch.object(dead_letter_writer, "ATTEMPTS", DEAD_LETTER_ATTEMPTS),
            ):
                return self.loop.run_until_complete(main)
        except Deadlock as reason:
            return [f"deadlock: {reason}"]

    async def _main(self, monitor: ReplicaMonitor) -> list[str]:
        plan, trace = self.plan, self.trace
        trace.add_line(f"seed {plan.seed}: {plan}")
        for broker in self.cluster:
            broker.disk.set_sync_s(0.0002, plan.sync_s)
            self.loop.call_later(self.random.choice((0.0, 0.0, self.random.uniform(0, 3))), broker.start)
        if plan.only_metadata and self.random.randrange(2):
            self.loop.call_later(self.random.uniform(0.0, 0.5), self._kill_founder)
        monitors: list[Any] = [monitor, self._quorum, self._election_safety]
        if plan.changes_access:
            monitors.append(AccessMonitor(self.cluster, self.history))
        monitoring = [self.loop.create_task(one.run()) for one in monitors]
        admin = self._client(partial(TopicAdmin, replicas=plan.replicas), "admin-0")
        if not await self._driver.finishes_within(60, admin.process.run(self._set_up(admin)), "set up"):
            return ["the cluster did not start", *self.history.violations]
        self._is_founded = True
        version_admins = []
        if self._transactions is not None:
            version_admins.append(self._transactions.create_version_admin(self._client))
            setting = version_admins[0].process.run(version_admins[0].set_level(self.random.choice((1, 2))))
            if not await self._driver.finishes_within(60, setting, "set transaction.version"):
                return ["transaction.version cannot be set", *self.history.violations]
        if self._shares is not None:
            share_admin = self._shares.create_admin(self._client)
            setting = share_admin.process.run(share_admin.configure_group(has_dead_letters=plan.has_dead_letters))
            if not await self._driver.finishes_within(60, setting, "configure the share group"):
                return ["the config of the share group cannot be set", *self.history.violations]
        clients = [*version_admins, *self._cluster_clients.create()]
        tasks = [client.process.run(client.run()) for client in clients]
        hosts = [client.name for client in clients]
        excluded = (
            DATA_FAULTS
            if plan.only_metadata
            else METADATA_FAULTS
            if plan.is_transactional or plan.has_share_group or plan.has_streams_group
            else ()
        )
        additional: Sequence[Any] = ()
        if plan.is_transactional:
            additional = TransactionFaults(self.cluster, Random(self.random.getrandbits(64)), plan).weighted_faults
        if plan.has_share_group:
            members = [one for one in clients if isinstance(one, ShareGroupMember)]
            additional = ShareFaults(self.cluster, Random(self.random.getrandbits(64)), members).weighted_faults
        nemesis = Nemesis(self.cluster, hosts, Random(self.random.getrandbits(64)), plan, excluded, additional)
        await nemesis.run(self.loop.time() + plan.faults_for_s, self._has_violations)
        self.faults = nemesis.fault_counts
        trace.add_line("faults are over")
        found = await self._wait_for_convergence()
        self.workload.stop_event.set()
        found += await self._driver.wait_for_clients(tasks)
        found += await self._check()
        for task in monitoring:
            task.cancel()
        return found + [violation for violation in self.history.violations if violation not in found]

    def _kill_founder(self) -> None:
        """Kills the founding broker, or cuts its power, while it founds the cluster."""
        founder = self.cluster.brokers[1]
        if not founder.is_running or self._is_founded:
            return
        if self.random.randrange(2):
            founder.kill()
        else:
            founder.lose_power()
            founder.power_on()
        self.loop.call_later(self.random.uniform(0.01, 1.0), founder.start)

    async def _set_up(self, admin: TopicAdmin) -> None:
        """Creates the topics. Waits until enough brokers have started."""
        await admin.create(TOPIC, self.plan.partitions)
        if self._transactions is not None:
            await admin.create(OUTPUTS, self.plan.partitions)

    def _client(self, create: CreateClient[Client], name: str) -> Client:
        return self._driver.create_client(create, self.workload, name)

    # --- after the faults

    async def _wait_for_convergence(self) -> list[str]:
        """Waits until every producer and group makes progress, every broker serves clients, the
        voters are complete, and every partition has a leader and a full ISR.
        """
        history = self.history
        acks = {name: history.ack_counts[name] for name in self._producers()}
        ends = {tp: history.highest_watermark(tp) for tp in history.high_watermarks if tp[0] == TOPIC}
        if self._transactions is not None:
            self._transactions.expect_progress()
        if self._shares is not None:
            self._shares.expect_progress()

        def missing() -> list[str]:
            image = newest_image(self.cluster)
            return [
                *(
                    f"{name} gets no acknowledgement"
                    for name, count in acks.items()
                    if history.ack_counts[name] <= count
                ),
                *(
                    f"{group} lags at {tp}"
                    for group in history.consumed
                    for tp, end in ends.items()
                    if history.committed_offsets.get((group, tp), 0) < end
                ),
                *(f"{broker.host} is not serving" for broker in self.cluster if not broker.is_serving),
                *voter_problems(self.cluster),
                *(() if self._transactions is None else self._transactions.missing_progress()),
                *(() if self._shares is None else self._shares.missing_progress(self.cluster)),
                *(["no broker runs"] if image is None else unhealthy_partitions(image)),
            ]

        return await self._wait_until_empty(missing, CONVERGES_WITHIN_S, "no convergence")

    async def _wait_until_empty(self, missing: Callable[[], list[str]], within_s: float, failure: str) -> list[str]:
        return await self._driver.wait_until_empty(
            missing,
            within_s,
            failure,
            give_up=self._has_violations,
            clusters=(self.cluster,),
        )

    def _has_violations(self) -> bool:
        """True if the run has failed: more faults would show nothing new."""
        return bool(self.history.violations or self.trace.problems)

    def _producers(self) -> list[str]:
        return [name for name in dict.fromkeys(self.history.sent.values()) if name.startswith("producer")]

    async def _check(self) -> list[str]:
        if differing := await self._wait_until_empty(
            lambda: list(differing_images(self.cluster)), SETTLES_WITHIN_S, "not settled"
        ):
            return differing
        reader = Reader(self.workload, SimulatedProcess(self.loop, "reader"), self.random)
        if not await self._driver.finishes_within(60, reader.process.run(reader.run()), "read all records"):
            return ["the contents cannot be read"]
        found = violations(self.history, reader.contents, reader.topics)
        if self._transactions is not None:
            found += await self._check_transactions(self._transactions)
        if self._shares is not None:
            found += self._shares.violations(reader.contents)
        if (image := newest_image(self.cluster)) is not None:
            found += check_access(self.history, image)
        if not found:
            found = await self._wait_until_empty(
                lambda: list(unsettled_replicas(self.cluster)), SETTLES_WITHIN_S, "not settled"
            )
        return found + list(violations_at_rest(self.cluster, self.history))

    async def _check_transactions(self, transactions: TransactionWorkload) -> list[str]:
        reader = transactions.create_final_reader(self._client)
        if not await self._driver.finishes_within(ENDS_WITHIN_S, reader.process.run(reader.run()), "read committed"):
            return ["hanging: a transaction does not end, or committed records cannot be read"]
        return transactions.violations(reader)
