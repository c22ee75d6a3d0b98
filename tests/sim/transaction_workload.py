"""Transactional producers, workers and readers of committed records in one run: creates them, and
checks what they have produced and read.
"""

import asyncio
from functools import partial
from random import Random
from typing import Any

from ottla_broker.metadata.features import TRANSACTION_VERSION, UpgradeType
from ottla_broker.wire.client import Client
from tests.sim.admin import SimulatedAdmin
from tests.sim.client import FAILURES, Workload
from tests.sim.history import TopicPartition
from tests.sim.plan import Plan
from tests.sim.processes import SimulatedProcess
from tests.sim.read_committed import CommittedRecordsReader
from tests.sim.simulation import NewClient
from tests.sim.transaction_checks import transaction_violations
from tests.sim.transaction_history import TransactionHistory
from tests.sim.transactional_producer import TransactionalProducer
from tests.sim.transforming_worker import TransformingWorker

OUTPUTS = "outputs"
GROUP = "workers"
VERSION_CHANGE_S = (1.0, 10.0)
READ_BYTES = 1 << 20


class TransactionVersionAdmin(SimulatedAdmin):
    """Lowers and raises `transaction.version` while clients and coordinators run."""

    def __init__(self, workload: Workload, process: SimulatedProcess, random: Random, *, changes: bool) -> None:
        super().__init__(workload, process, random)
        self._changes = changes
        self._level = TRANSACTION_VERSION.default

    async def run(self) -> None:
        while self._changes and not self.stopping:
            await asyncio.sleep(self.random.uniform(*VERSION_CHANGE_S))
            await self.set_level(self.random.choice((1, 2)))

    async def set_level(self, level: int) -> None:
        if level == self._level:
            return
        kind = UpgradeType.upgrade if level > self._level else UpgradeType.safe_downgrade

        async def attempt(client: Client) -> bool:
            await self.update_feature(client, TRANSACTION_VERSION.name, level, kind)
            return True

        if await self.retry_until_done(f"set transaction.version to {level}", attempt):
            self._level = level
            self.count("transaction version changed")


class FinalReader(CommittedRecordsReader):
    """Reads all committed records when no client runs, and the workers' offsets."""

    group_offsets: dict[TopicPartition, int]

    async def run(self) -> None:
        self.group_offsets = {}
        waiting = list(self._topic_partitions)
        while True:
            try:
                async with self.connect() as client:
                    while waiting:
                        if await self._has_read(client, waiting[-1]):
                            waiting.pop()
                    inputs = [tp for tp in self._topic_partitions if tp[0] != OUTPUTS]
                    found = await self.committed_offsets(client, GROUP, inputs, require_stable=True)
                    self.group_offsets = {tp: max(offset, 0) for tp, offset in found.items()}
                return
            except FAILURES as reason:
                self.record_failure("read everything that is committed", reason)
                self.forget_coordinator(GROUP)
                await self.pause()

    async def _has_read(self, client: Client, tp: TopicPartition) -> bool:
        """True if everything is read, and no transaction is open."""
        fetched = await self.read(client, tp, max_bytes=READ_BYTES)
        end = await self.latest_offset(client, tp)
        position = self._transactions.positions[self.name].get(tp, 0)
        if position < end and not fetched.records:
            await asyncio.sleep(0.2)
        return position >= end


class TransactionWorkload:
    def __init__(self, plan: Plan, workload: Workload, random: Random, topic: str) -> None:
        self.history = TransactionHistory(workload.history.record_violation)
        self._plan = plan
        self._workload = workload
        self._random = random
        self._topic = topic
        self._inputs = [(topic, partition) for partition in range(plan.partitions)]
        self._all_partitions = [*self._inputs, *((OUTPUTS, partition) for partition in range(plan.partitions))]
        self._producers: list[str] = []
        self._expected_commit_counts: dict[str, int] = {}
        self._expected_offsets: dict[TopicPartition, int] = {}

    def create_version_admin(self, create: NewClient) -> TransactionVersionAdmin:
        changes = self._random.randrange(4) == 0
        admin: TransactionVersionAdmin = create(partial(TransactionVersionAdmin, changes=changes), "features-1")
        return admin

    def create_clients(self, create: NewClient) -> list[Any]:
        random = self._random
        clients = []
        for number in range(random.choice((1, 2, 2, 3))):
            mine = random.sample(self._inputs, random.randrange(1, len(self._inputs) + 1))
            name = f"txn-{number}"
            self._producers.append(name)
            clients.append(
                create(partial(TransactionalProducer, transactions=self.history, topic_partitions=mine), name)
            )
        worker = partial(TransformingWorker, transactions=self.history, group=GROUP, topic=self._topic, outputs=OUTPUTS)
        clients += [create(worker, f"worker-{number}") for number in range(random.choice((1, 2, 2, 3)))]
        reader = partial(CommittedRecordsReader, transactions=self.history, topic_partitions=self._all_partitions)
        clients += [create(reader, f"auditor-{number}") for number in range(random.randrange(1, 3))]
        return clients

    @property
    def counts(self) -> dict[str, int]:
        return {
            "transaction begun": len(self.history.transactions),
            "transaction committed": sum(self.history.commit_counts.values()),
        }

    # --- after the faults

    def expect_progress(self) -> None:
        """Called when the faults are over: from now on every producer must commit, and the workers
        must reach the present last stable offsets.
        """
        self.history.faults_are_over = True
        self._expected_commit_counts = {name: self.history.commit_counts[name] + 1 for name in self._producers}
        stable = self.history.last_stable_offsets
        self._expected_offsets = {tp: max(stable[tp].values(), default=0) for tp in self._inputs}

    def missing_progress(self) -> list[str]:
        done, offsets = self.history.commit_counts, self.history.group_offsets
        return [
            *(f"{name} commits nothing" for name, count in self._expected_commit_counts.items() if done[name] < count),
            *(f"{GROUP} lag at {tp}" for tp, end in self._expected_offsets.items() if offsets.get(tp, 0) < end),
        ]

    def create_final_reader(self, create: NewClient) -> FinalReader:
        reader: FinalReader = create(
            partial(FinalReader, transactions=self.history, topic_partitions=self._all_partitions), "final-reader"
        )
        return reader

    def violations(self, reader: FinalReader) -> list[str]:
        committed = self.history.visible[reader.name]
        return transaction_violations(self.history, committed, reader.group_offsets, GROUP)
