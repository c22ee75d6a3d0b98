"""A client of the target that reads mirrored records and the copied offsets of a group."""

from collections.abc import Callable, Sequence
from random import Random

from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP
from ottla_broker.wire.records import iter_records
from tests.sim.client import FAILURES, SimulatedClient, Workload
from tests.sim.history import TopicPartition
from tests.sim.processes import SimulatedProcess

EXPECTED_ERRORS = frozenset({ErrorCode.offset_out_of_range})  # records were deleted at the source
GROUP_CHECK_ONE_IN = 5  # reads of all partitions per check, on average


class MirrorReader(SimulatedClient):
    """Reads `topic_partitions` as they grow. The offsets of `group` are copied.

    `highest_watermark`: the highest of a partition's running replicas. A leader that is cut off
    from its cluster, and that this client reads from, does not know its successor's high watermark.
    """

    def __init__(
        self,
        workload: Workload,
        process: SimulatedProcess,
        random: Random,
        topic_partitions: Sequence[TopicPartition],
        group: str,
        highest_watermark: Callable[[TopicPartition], int],
    ) -> None:
        super().__init__(workload, process, random)
        self._highest_watermark = highest_watermark
        self._positions = dict.fromkeys(topic_partitions, 0)
        self._group = group

    async def run(self) -> None:
        await self.retry_until_done("read copies", self._read_all_partitions)

    async def _read_all_partitions(self, client: Client) -> bool:
        for tp in self._positions:
            try:
                await self._read(client, tp)
            except FAILURES as reason:
                self.record_failure(f"read the copy {tp}", reason, EXPECTED_ERRORS)
                if isinstance(reason, KafkaError) and reason.code in EXPECTED_ERRORS:
                    self._positions[tp] = max(self._positions[tp], await self._earliest_offset(client, tp))
                await self.pause()
        if self.random.randrange(GROUP_CHECK_ONE_IN) == 0:
            await self._check_group(client)
        return False

    async def _read(self, client: Client, tp: TopicPartition) -> None:
        history = self.workload.history
        known = history.high_watermark(tp, self._epochs.get(tp, 0))
        fetched = await self.fetch(client, tp, self._positions[tp], records_high_watermark=False)
        # The high watermark of an empty copy is not final yet; a new leader does not know it at
        # once.
        if fetched.records and fetched.high_watermark >= 0:
            history.record_high_watermark(tp, self._fetched_in[tp], fetched.high_watermark, known)
        for header, record in iter_records(fetched.records):
            if record.offset >= self._positions[tp] and not header.is_control:
                self.workload.history.record_consumed(self.name, tp, record.offset, record.value or b"")
            if record.offset + 1 == header.next_offset:
                self._positions[tp] = max(self._positions[tp], header.next_offset)

    async def _check_group(self, client: Client) -> None:
        for tp, offset in (await self.committed_offsets(client, self._group, list(self._positions))).items():
            end = await self.latest_offset(client, tp, records_high_watermark=False)
            if offset > max(end, self._highest_watermark(tp)):
                self.record_violation(f"{self._group} has committed {offset} of {tp}, whose high watermark is {end}")

    async def _earliest_offset(self, client: Client, tp: TopicPartition) -> int:
        leader = await self.leader(client, tp)
        wanted = ListOffsetsPartition(
            partition_index=i32(tp[1]), current_leader_epoch=i32(leader.epoch), timestamp=i64(EARLIEST_TIMESTAMP)
        )
        request = ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=(ListOffsetsTopic(name=TopicName(tp[0]), partitions=(wanted,)),),
        )
        answer = await client.send(request, broker=leader.broker)
        (found,) = answer.topics[0].partitions
        raise_for_error(found.error_code, f"earliest offset of {tp}: {found.error_code.name}")
        return int(found.offset)
