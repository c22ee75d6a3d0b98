"""A worker that consumes committed records, produces one output record for each, and commits
outputs and offsets in one transaction (KIP-98, KIP-447).
"""

import asyncio
from random import Random

from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.sim.client import FAILURES, Workload
from tests.sim.group_member import HEARTBEAT_S, Member
from tests.sim.history import TopicPartition
from tests.sim.processes import SimulatedProcess
from tests.sim.read_committed import end_of, visible_records
from tests.sim.transaction_errors import AbortableError
from tests.sim.transaction_history import InputPosition, TransactionHistory
from tests.sim.transactional_session import (
    ENDS_OF_A_SESSION,
    GroupMembership,
    TransactionalSession,
    choose_timeouts,
    work_in_transaction,
)

FETCH_BYTES = 1 << 10
WORKER_SESSION_S = 2.5
STALL_ONE_IN = 5  # transactions per stall, on average
STALL_S = (1.0, 8.0)  # most are longer than the session: another member has the partitions then
RESTART_ONE_IN = 15  # transactions per restart, on average
ABORT_ONE_IN = 10  # transactions per abort, on average


class TransformingWorker(Member):
    """`outputs`: the topic of the output records. Each is sent to the partition with the same index
    as that of its input.
    """

    def __init__(
        self,
        workload: Workload,
        process: SimulatedProcess,
        random: Random,
        transactions: TransactionHistory,
        group: str,
        topic: str,
        outputs: str,
    ) -> None:
        super().__init__(workload, process, random, group, topic, "")
        self._transactions = transactions
        self._session_s = WORKER_SESSION_S
        self._outputs = outputs
        self._timeouts = choose_timeouts(random)
        self._instance_count = 0
        self._output_count = 0
        self._session: TransactionalSession | None = None

    async def _join_and_consume(self, client: Client) -> bool:
        try:
            session = await self._start_session()
            generation, mine = await self._join(client)
            positions = await self._stable_positions(client, mine)
            beat_at = 0.0
            while not self.stopping:
                if self.loop.time() >= beat_at:
                    beat_at = self.loop.time() + HEARTBEAT_S
                    code = await self._heartbeat(client, generation)
                    if code is ErrorCode.rebalance_in_progress:
                        return False
                    if code is not ErrorCode.none:
                        raise KafkaError(code, "Heartbeat")
                    if (
                        self._partition_count_as_leader is not None
                        and await self._count_partitions(client) > self._partition_count_as_leader
                    ):
                        return False  # joining again starts a rebalance
                if not await self._transform(client, session, generation, positions):
                    return False  # the positions are those of the last commit again
                if self.random.randrange(RESTART_ONE_IN) == 0 and not self._transactions.faults_are_over:
                    await self._end_session()
                    return False
        except FAILURES:
            left, self._id = self._id, ""
            await self._leave(client, left)
            self.forget_coordinator(self._group)
            raise
        except ENDS_OF_A_SESSION as reason:
            self.workload.trace.add_line(f"{self.name}#{self._instance_count} ends: {reason!r}")
            await self._end_session()
            return False
        return True

    async def _start_session(self) -> TransactionalSession:
        if self._session is None:
            self._instance_count += 1
            session = TransactionalSession(self, self._transactions, self.name, self._instance_count, self._timeouts)
            self.workload.history.idempotent_producers.add(session.name)
            await session.init()
            self._session = session
        return self._session

    async def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.disconnect()

    async def _stable_positions(self, client: Client, mine: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed offsets, once no transaction can change them. Raises KafkaError."""
        known = {tp: self._transactions.group_offsets.get(tp, 0) for tp in mine}
        found: dict[TopicPartition, int] = {}
        while mine:
            try:
                found = await self.committed_offsets(client, self._group, mine, require_stable=True)
                break
            except KafkaError as reason:
                if reason.code is not ErrorCode.unstable_offset_commit or self.stopping:
                    raise
                await self.pause()
        for tp in mine:
            if max(found[tp], 0) < known[tp]:
                self.record_violation(f"{self._group}'s commit of {tp} went back from {known[tp]} to {found[tp]}")
        return {tp: max(found[tp], 0) for tp in mine}

    async def _transform(
        self, client: Client, session: TransactionalSession, generation: int, positions: dict[TopicPartition, int]
    ) -> bool:
        """Runs one transaction with what can be read now, if there is anything. Returns False if it
        was aborted.
        """
        ends: dict[TopicPartition, int] = {}
        outputs: dict[TopicPartition, list[bytes]] = {}
        for tp, offset in positions.items():
            known = self._transactions.last_stable_offset(tp, (await self.leader(client, tp)).epoch)
            fetched = await self.fetch(client, tp, offset, max_bytes=FETCH_BYTES, read_committed=True)
            if fetched.last_stable_offset >= 0:
                self._transactions.record_last_stable_offset(
                    tp, fetched.leader_epoch, fetched.last_stable_offset, known
                )
            end = end_of(fetched.records, offset)
            if end > offset:
                ends[tp] = end
            for header, record in visible_records(fetched.records, fetched.aborted):
                if record.offset >= offset:
                    self._transactions.record_visible(self._group, tp, record.offset, record.value or b"")
                    self.learn_epoch(tp, header.leader_epoch)
                    outputs.setdefault((self._outputs, tp[1]), []).append(self._make_output(session, tp, record.offset))
        if not ends:
            await asyncio.sleep(0.2)
            return True

        async def work() -> None:
            for tp, values in outputs.items():
                await session.send(tp, values)
            stall = self.random.randrange(2 * STALL_ONE_IN)
            must_catch_up = self._transactions.faults_are_over
            if stall == 0 and not must_catch_up:
                await asyncio.sleep(self.random.uniform(*STALL_S))
            await session.send_offsets(ends, GroupMembership(self._group, generation, self._id))
            if stall == 1 and not must_catch_up:
                await asyncio.sleep(self.random.uniform(*STALL_S))
            if self.random.randrange(ABORT_ONE_IN) == 0 and not must_catch_up:
                raise AbortableError(is_outcome_unknown=False)

        if not await work_in_transaction(session, work):
            return False
        positions |= ends
        for tp, end in ends.items():
            self._transactions.group_offsets[tp] = max(end, self._transactions.group_offsets.get(tp, 0))
        return True

    def _make_output(self, session: TransactionalSession, tp: TopicPartition, offset: int) -> bytes:
        self._output_count += 1
        value = b"%s/%d/%d" % (session.name.encode(), tp[1], self._output_count)
        self.workload.history.sent[value] = session.name
        self._transactions.outputs[value] = InputPosition(tp, offset)
        return value
