"""A program that produces in transactions. It is started again and again under one transactional
id; a former instance may still be running, and must achieve nothing then.
"""

import asyncio
from collections.abc import Sequence
from random import Random

from tests.sim.client import SimulatedClient, Workload
from tests.sim.history import TopicPartition
from tests.sim.processes import SimulatedProcess
from tests.sim.transaction_errors import AbortableError
from tests.sim.transaction_history import TransactionHistory
from tests.sim.transactional_session import (
    ENDS_OF_A_SESSION,
    TransactionalSession,
    choose_timeouts,
    work_in_transaction,
)

INSTANCE_S = (2.0, 12.0)
ZOMBIES = 2  # former instances that may still run
BETWEEN_TRANSACTIONS_S = 0.15  # on average
IDLE_S = (0.2, 5.0)
IDLE_ONE_IN = 15  # batches per idle time, on average
ABORT_ONE_IN = 5  # transactions per abort, on average


class TransactionalProducer(SimulatedClient):
    def __init__(
        self,
        workload: Workload,
        process: SimulatedProcess,
        random: Random,
        transactions: TransactionHistory,
        topic_partitions: Sequence[TopicPartition],
    ) -> None:
        super().__init__(workload, process, random)
        self._transactions = transactions
        self._topic_partitions = topic_partitions
        self._timeouts = choose_timeouts(random)
        self._record_count = 0
        self._instance_count = 0

    async def run(self) -> None:
        running: list[asyncio.Task[None]] = []
        while not self.stopping:
            self._instance_count += 1
            running.append(asyncio.create_task(self._run_instance(self._instance_count)))
            await asyncio.wait(running[-1:], timeout=self.random.uniform(*INSTANCE_S))
            for ended in [task for task in running if task.done()]:
                running.remove(ended)
                ended.result()
            for task in running[: len(running) - ZOMBIES]:
                task.cancel()  # the program crashes
            running = running[-ZOMBIES:]
        if running:
            await asyncio.wait(running)

    async def _run_instance(self, instance: int) -> None:
        session = TransactionalSession(self, self._transactions, self.name, instance, self._timeouts)
        self.workload.history.idempotent_producers.add(session.name)
        try:
            await session.init()
            while not self.stopping:
                await asyncio.sleep(self.random.expovariate(1 / BETWEEN_TRANSACTIONS_S))
                await work_in_transaction(session, lambda: self._produce(session))
        except ENDS_OF_A_SESSION as reason:
            self.workload.trace.add_line(f"{session.name} ends: {reason!r}")
        finally:
            await session.disconnect()

    async def _produce(self, session: TransactionalSession) -> None:
        count = self.random.randint(1, len(self._topic_partitions))
        for tp in self.random.sample(self._topic_partitions, count):
            for _ in range(self.random.choice((1, 1, 2))):
                await session.send(tp, self._make_values(session.name, tp))
                if self.random.randrange(IDLE_ONE_IN) == 0:
                    await asyncio.sleep(self.random.uniform(*IDLE_S))
        if self.random.randrange(ABORT_ONE_IN) == 0:
            raise AbortableError(is_outcome_unknown=False)

    def _make_values(self, producer: str, tp: TopicPartition) -> list[bytes]:
        values = []
        for _ in range(self.random.choice((1, 2, 4))):
            self._record_count += 1
            values.append(
                b"%s/%d/%d%s" % (producer.encode(), tp[1], self._record_count, b"." * self.random.choice((0, 200)))
            )
        self.workload.history.sent.update((value, producer) for value in values)
        return values
