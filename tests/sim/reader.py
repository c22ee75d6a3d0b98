"""Reads the contents of a cluster at the end of a run, as a client and from brokers' logs."""

from collections.abc import Iterator, Mapping
from random import Random
from uuid import UUID

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.client import Client
from ottla_broker.wire.records import iter_records
from tests.sim.checks import Topic
from tests.sim.client import FAILURES, SimulatedClient, Workload
from tests.sim.history import TopicPartition
from tests.sim.processes import SimulatedProcess
from tests.sim.read_committed import visible_records

READ_BYTES = 1 << 20
WRITTEN_BY_BROKERS = ("__", "dlq.")  # names of topics whose records no producer has sent


class Reader(SimulatedClient):
    """Reads all records that a consumer can read from the topics to which producers send, and the
    committed offsets of all groups.
    """

    def __init__(self, workload: Workload, process: SimulatedProcess, random: Random) -> None:
        super().__init__(workload, process, random)
        self.contents: dict[TopicPartition, dict[int, bytes]] = {}
        self.topics: dict[str, Topic] = {}

    async def run(self) -> None:
        while True:
            try:
                async with self.connect() as client:
                    await self._read_all(client)
                return
            except FAILURES as reason:
                self.record_failure("read everything", reason)
                await self.pause()

    async def _read_all(self, client: Client) -> None:
        answer = await self.metadata(client, None)
        for topic in answer.topics:
            name, topic_id = topic.name or "", topic.topic_id
            assert isinstance(topic_id, UUID)
            if not name.startswith(WRITTEN_BY_BROKERS):
                self.topics[name] = Topic(topic_id, len(topic.partitions))
                for partition in range(len(topic.partitions)):
                    self.contents[name, partition] = await self._read(client, (name, partition))
        for group, topic_partitions in self.workload.history.consumed.items():
            await self.committed_offsets(client, group, list(topic_partitions))

    async def _read(self, client: Client, tp: TopicPartition) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = 0
        while True:
            fetched = await self.fetch(client, tp, offset, max_bytes=READ_BYTES)
            if not fetched.records:
                return found
            for header, record in iter_records(fetched.records):
                if not header.is_control:
                    found[record.offset] = record.value or b""
                offset = header.next_offset


def committed_batches(log: PartitionLog, start: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Base offset and bytes of each batch from `start` (None: the log's) to the high watermark."""
    offset = log.start if start is None else start
    while offset < log.high_watermark:
        data = log.read(offset, READ_BYTES, up_to=log.high_watermark)
        if not data:
            return
        for at, header in iter_batches(data):
            yield header.base_offset, bytes(data[at : at + header.size])
            offset = header.next_offset


def latest_values(log: PartitionLog) -> Mapping[bytes | None, bytes]:
    """The last value of each key below the high watermark, without deleted keys, and without the
    records of aborted transactions, which compaction removes on each replica in its own time.
    """
    found: dict[bytes | None, bytes] = {}
    aborted = [(one.producer_id, one.first_offset) for one in log.aborted_transactions(log.start, log.end)]
    batches = b"".join(batch for _, batch in committed_batches(log))
    for _, record in visible_records(batches, aborted):
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = bytes(record.value)
    return found
