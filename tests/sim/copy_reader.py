"""A program that looks at a copy, from its target: at its records, and at what a copied group has committed."""

from collections.abc import Sequence
from random import Random

from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from ottla_broker.wire.client import EARLIEST_TIMESTAMP, Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import iter_records
from tests.sim.client import FAILURES, SimulatedClient, World
from tests.sim.history import Place
from tests.sim.processes import SimulatedProcess

EXPLAINED = frozenset({ErrorCode.offset_out_of_range})  # by records that were deleted at the source
LOOKS_ONE_IN = 5  # reads


class CopyReader(SimulatedClient):
    """Reads `places` as they grow. `group`: whose offsets are copied."""

    def __init__(
        self, world: World, process: SimulatedProcess, random: Random, places: Sequence[Place], group: str
    ) -> None:
        super().__init__(world, process, random)
        self._positions = dict.fromkeys(places, 0)
        self._group = group

    async def run(self) -> None:
        await self.until_done("read copies", self._read_on)

    async def _read_on(self, client: Client) -> bool:
        for place in self._positions:
            try:
                await self._read(client, place)
            except FAILURES as reason:
                self.failed(f"read the copy {place}", reason, EXPLAINED)
                if isinstance(reason, KafkaError) and reason.code in EXPLAINED:
                    self._positions[place] = max(self._positions[place], await self._earliest(client, place))
                await self.pause()
        if self.random.randrange(LOOKS_ONE_IN) == 0:
            await self._look_at_group(client)
        return False

    async def _read(self, client: Client, place: Place) -> None:
        history = self.world.history
        known = history.high_watermark(place, self._epochs.get(place, 0))
        fetched = await self.fetch(client, place, self._positions[place], tells=False)
        if (
            fetched.records and fetched.high_watermark >= 0
        ):  # that of a copy that holds nothing says nothing yet; a new leader does not tell it at once
            history.told_high_watermark(place, self._fetched_in[place], fetched.high_watermark, known)
        for header, record in iter_records(fetched.records):
            if record.offset >= self._positions[place] and not header.is_control:
                self.world.history.consumed(self.name, place, record.offset, record.value or b"")
            if record.offset + 1 == header.next_offset:
                self._positions[place] = max(self._positions[place], header.next_offset)

    async def _look_at_group(self, client: Client) -> None:
        for place, offset in (await self.committed(client, self._group, list(self._positions))).items():
            end = await self.latest(client, place, tells=False)
            if offset > end:
                self.problem(f"{self._group} has committed {offset} of {place}, whose high watermark is {end}")

    async def _earliest(self, client: Client, place: Place) -> int:
        leader = await self.leader(client, place)
        wanted = ListOffsetsPartition(
            partition_index=i32(place[1]), current_leader_epoch=i32(leader.epoch), timestamp=i64(EARLIEST_TIMESTAMP)
        )
        request = ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=(ListOffsetsTopic(name=TopicName(place[0]), partitions=(wanted,)),),
        )
        answer = await client.send(request, broker=leader.broker)
        (found,) = answer.topics[0].partitions
        raise_for_error(found.error_code, f"earliest offset of {place}: {found.error_code.name}")
        return int(found.offset)
