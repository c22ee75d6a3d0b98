"""Reads as consumers with `isolation.level=read_committed` do, without the broker's code for it."""

import asyncio
from collections.abc import Iterator, Sequence
from random import Random

from ottla_broker.wire.batch import BatchHeader, iter_batches
from ottla_broker.wire.client import Client
from ottla_broker.wire.control_records import ControlRecordType, control_record_type
from ottla_broker.wire.records import Record, decode_batch
from tests.sim.client import FAILURES, FetchResult, SimulatedClient, Workload
from tests.sim.history import TopicPartition
from tests.sim.processes import SimulatedProcess
from tests.sim.transaction_history import TransactionHistory

PAUSE_S = 0.1
LATEST_OFFSET_ONE_IN = 10  # fetches per ListOffsets, on average


def visible_records(records: bytes, aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[BatchHeader, Record]]:
    """The records of a response that a consumer passes to the application. `aborted`: producer id
    and first offset of each aborted transaction.
    """
    upcoming = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for at, header in iter_batches(records):
        while upcoming and upcoming[-1][1] <= header.last_offset:
            aborting.add(upcoming.pop()[0])
        if header.is_control:
            for record in decode_batch(records, header, at):
                if control_record_type(record) is ControlRecordType.abort:
                    aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            for record in decode_batch(records, header, at):
                yield header, record


def end_of(records: bytes, otherwise: int) -> int:
    """The offset after the last of these batches; `otherwise` for none."""
    return max((header.next_offset for _, header in iter_batches(records)), default=otherwise)


class CommittedRecordsReader(SimulatedClient):
    """Reads partitions from their start on, fetching committed records, and records what it sees
    and where each partition's last stable offset is."""

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

    async def run(self) -> None:
        await self.retry_until_done("read committed records", self._read_all)

    async def _read_all(self, client: Client) -> bool:
        while not self.stopping:
            for tp in self._topic_partitions:
                try:
                    await self.read(client, tp)
                    if self.random.randrange(LATEST_OFFSET_ONE_IN) == 0:
                        await self.stable_end(client, tp)
                except FAILURES as reason:
                    self.record_failure(f"read {tp}", reason)
                    await self.pause()
            await asyncio.sleep(PAUSE_S)
        return True

    async def read(self, client: Client, tp: TopicPartition, *, max_bytes: int = 16 << 10) -> FetchResult:
        """Fetches once from this reader's position."""
        positions = self._transactions.positions[self.name]
        offset = positions.get(tp, 0)
        known_epoch = (await self.leader(client, tp)).epoch
        known = self._transactions.last_stable_offset(tp, known_epoch)
        fetched = await self.fetch(client, tp, offset, max_bytes=max_bytes, read_committed=True)
        if fetched.last_stable_offset >= 0:
            self._transactions.record_last_stable_offset(tp, fetched.leader_epoch, fetched.last_stable_offset, known)
        for header, record in visible_records(fetched.records, fetched.aborted):
            if record.offset >= offset:
                self._transactions.record_visible(self.name, tp, record.offset, record.value or b"")
                self.learn_epoch(tp, header.leader_epoch)
        positions[tp] = end_of(fetched.records, offset)
        return fetched

    async def stable_end(self, client: Client, tp: TopicPartition) -> int:
        """The last stable offset by ListOffsets."""
        leader = await self.leader(client, tp)
        known = self._transactions.last_stable_offset(tp, leader.epoch)
        offset = await self.latest_offset(client, tp, records_high_watermark=False, read_committed=True)
        self._transactions.record_last_stable_offset(tp, leader.epoch, offset, known)
        return offset
