"""What is in a cluster at the end: as a client reads it, and straight from the brokers' logs."""

from collections.abc import Iterator, Mapping
from random import Random
from uuid import UUID

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.client import Client
from ottla_broker.wire.records import iter_records
from tests.sim.checks import Topic
from tests.sim.client import FAILURES, SimulatedClient, World
from tests.sim.history import Place
from tests.sim.processes import SimulatedProcess

READ_BYTES = 1 << 20
INTERNAL = "__"


class Reader(SimulatedClient):
    """Reads everything that a consumer can, and what the groups have committed."""

    def __init__(self, world: World, process: SimulatedProcess, random: Random) -> None:
        super().__init__(world, process, random)
        self.contents: dict[Place, dict[int, bytes]] = {}
        self.topics: dict[str, Topic] = {}

    async def run(self) -> None:
        while True:
            try:
                async with self.connected() as client:
                    await self._read_everything(client)
                return
            except FAILURES as reason:
                self.failed("read everything", reason)
                await self.pause()

    async def _read_everything(self, client: Client) -> None:
        answer = await self.metadata(client, None)
        for topic in answer.topics:
            name, topic_id = topic.name or "", topic.topic_id
            assert isinstance(topic_id, UUID)
            if not name.startswith(INTERNAL):
                self.topics[name] = Topic(topic_id, len(topic.partitions))
                for partition in range(len(topic.partitions)):
                    self.contents[name, partition] = await self._read(client, (name, partition))
        for group, places in self.world.history.seen.items():
            await self.committed(client, group, list(places))

    async def _read(self, client: Client, place: Place) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = 0
        while True:
            fetched = await self.fetch(client, place, offset, max_bytes=READ_BYTES)
            if not fetched.records:
                return found
            for header, record in iter_records(fetched.records):
                found[record.offset] = record.value or b""
                offset = header.next_offset


def below_high_watermark(log: PartitionLog) -> Iterator[tuple[int, bytes]]:
    """Base offset and bytes of each batch."""
    offset = log.start
    while offset < log.high_watermark:
        data = log.read(offset, READ_BYTES, up_to=log.high_watermark)
        if not data:
            return
        for at, header in iter_batches(data):
            yield header.base_offset, bytes(data[at : at + header.size])
            offset = header.next_offset


def latest_by_key(log: PartitionLog) -> Mapping[bytes | None, bytes]:
    """What a compacted log says below the high watermark: of each key the last value; keys that were taken back are not there."""
    found: dict[bytes | None, bytes] = {}
    for _, batch in below_high_watermark(log):
        for _, record in iter_records(batch):
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = bytes(record.value)
    return found
