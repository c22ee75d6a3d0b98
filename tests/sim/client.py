"""What all clients of a run share: connections that are given up when they seem dead, leaders and their epochs, and a record of what went wrong."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest, OffsetFetchRequestTopic
from kio.schema.types import BrokerId, GroupId, TopicName
from kio.static.primitive import i8, i32, i64

from ottla_broker.wire.batch import drop_partial_batch
from ottla_broker.wire.client import GROUP_KEY_TYPE, LATEST_TIMESTAMP, Client, raise_for_error, to_timedelta_field
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.sim.cluster import START_MS
from tests.sim.history import History, Place
from tests.sim.processes import SimulatedProcess
from tests.sim.trace import Trace

FAILURES = (KafkaError, OSError, TimeoutError)
CALL_S = 4.0  # how long a client waits for one answer
PAUSE_S = (0.05, 0.3)  # between tries
# Nothing that any fault of the servers explains: a broken promise.
NEVER = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.duplicate_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.offset_out_of_range,
        ErrorCode.corrupt_message,
        ErrorCode.unknown_server_error,
        ErrorCode.invalid_record,
        ErrorCode.invalid_request,
    }
)


@dataclass
class World:
    """What clients share. `stop`: set when they are to end what they do. `done`: what admins got done, and how often."""

    brokers: Sequence[str]  # host:port of each
    history: History
    trace: Trace
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    done: dict[str, int] = field(default_factory=dict)


class Leader(NamedTuple):
    broker: int
    epoch: int
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class Fetched:
    """`high_watermark` −1: the leader does not know it yet. `preferred`: who should be asked next, −1 for the same."""

    records: bytes
    high_watermark: int
    preferred: int


class SimulatedClient:
    """One program on one host."""

    def __init__(self, world: World, process: SimulatedProcess, random: Random) -> None:
        self.world = world
        self.name = process.host
        self.process = process
        self.random = random
        self.loop = process.loop
        self._leaders: dict[Place, Leader] = {}
        self._epochs: dict[Place, int] = {}  # the newest heard of: older metadata are not believed
        self._coordinators: dict[str, int] = {}
        self._fetched_in: dict[Place, int] = {}  # epochs

    @property
    def stopping(self) -> bool:
        return self.world.stop.is_set()

    def now_ms(self) -> int:
        return START_MS + int(self.loop.time() * 1000)

    async def pause(self) -> None:
        await asyncio.sleep(self.random.uniform(*PAUSE_S))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Client]:
        """Through any broker: the same one every time would be the one that cannot be reached."""
        brokers = self.random.sample(self.world.brokers, len(self.world.brokers))
        async with Client.connect(",".join(brokers), client_id=self.name, timeout_s=CALL_S) as client:
            yield client

    def failed(self, doing: str, reason: BaseException, explained: frozenset[ErrorCode] = frozenset()) -> None:
        """A try has failed: which is a broken promise, if no fault explains it."""
        self.world.history.retries += 1
        if isinstance(reason, KafkaError) and reason.code in NEVER - explained:
            self.problem(f"{doing}: {reason.code.name}: {reason.message}")
        else:
            self.world.trace.add_line(f"{doing}: {type(reason).__name__} {reason}")

    def problem(self, what: str) -> None:
        self.world.history.problem(f"{self.name}: {what}")

    async def until_done(
        self,
        doing: str,
        attempt: Callable[[Client], Awaitable[bool]],
        wanted: Callable[[], bool] = lambda: True,
        explained: frozenset[ErrorCode] = frozenset(),
    ) -> bool:
        """Tries with ever new connections until it says True, or nobody wants it any more, or the run is over. `explained`: as for `failed`."""
        while not self.stopping and wanted():
            try:
                async with self.connected() as client:
                    while not self.stopping and wanted():
                        if await attempt(client):
                            return True
            except FAILURES as reason:
                self.failed(doing, reason, explained)
                await self.pause()
        return False

    # --- leaders

    async def metadata(self, client: Client, topics: Sequence[str] | None) -> MetadataResponse:
        """Of these topics (None: all), as one broker knows them; leaders of epochs that are newer than those known are believed."""
        async with asyncio.timeout(CALL_S):
            answer = await client.metadata(topics)
        for topic in answer.topics:
            for partition in topic.partitions:
                place, epoch = (topic.name or "", int(partition.partition_index)), int(partition.leader_epoch)
                if epoch >= self._epochs.get(place, -1) and partition.leader_id >= 0 and topic.topic_id is not None:
                    self._leaders[place] = Leader(int(partition.leader_id), epoch, topic.topic_id)
                    self._epochs[place] = epoch
        return answer

    async def leader(self, client: Client, place: Place) -> Leader:
        if place not in self._leaders:
            await self.metadata(client, [place[0]])
        if place not in self._leaders:
            raise KafkaError(ErrorCode.leader_not_available, f"no leader of {place} is known")
        return self._leaders[place]

    def forget_leader(self, place: Place) -> None:
        """It does not answer, or says that it leads no more."""
        self._leaders.pop(place, None)

    def heard_of_epoch(self, place: Place, epoch: int) -> None:
        """A record or a commit speaks of this epoch: who leads in an older one is not asked any more."""
        if epoch > self._epochs.get(place, -1):
            self._epochs[place] = epoch
            if place in self._leaders and self._leaders[place].epoch < epoch:
                del self._leaders[place]

    # --- questions

    async def ask_coordinator(self, client: Client, group: str, request: Any) -> Any:
        if group not in self._coordinators:
            found = await client.send(FindCoordinatorRequest(key=group, key_type=i8(GROUP_KEY_TYPE)))
            raise_for_error(found.error_code, f"no coordinator of {group}: {found.error_message}")
            self._coordinators[group] = int(found.node_id)
        return await client.send(request, broker=self._coordinators[group])

    def forget_coordinator(self, group: str) -> None:
        self._coordinators.pop(group, None)

    async def fetch(
        self,
        client: Client,
        place: Place,
        offset: int,
        *,
        max_bytes: int = 16 << 10,
        rack: str = "",
        broker: int | None = None,
        tells: bool = True,
    ) -> Fetched:
        """From the leader, or from `broker`, which may be a follower. What the leader says of its high watermark is written down. A leader that
        is new is asked what it knows at once. `tells`: its high watermark counts. KafkaError."""
        history = self.world.history
        leader = await self.leader(client, place)
        max_wait_s = 0.2 if self._fetched_in.get(place) == leader.epoch else 0.0
        self._fetched_in[place] = leader.epoch
        known = history.high_watermark(place, leader.epoch)
        wanted = FetchPartition(
            partition=i32(place[1]),
            current_leader_epoch=i32(leader.epoch),
            fetch_offset=i64(offset),
            partition_max_bytes=i32(max_bytes),
        )
        request = FetchRequest(
            max_wait=to_timedelta_field(max_wait_s),
            min_bytes=i32(1),
            max_bytes=i32(max_bytes),
            isolation_level=i8(0),
            topics=(FetchTopic(topic=TopicName(place[0]), partitions=(wanted,)),),
            forgotten_topics_data=(),
            rack_id=rack,
        )
        try:
            answer = await client.send(request, broker=leader.broker if broker is None else broker)
            raise_for_error(answer.error_code, "the fetch was refused")
            (found,) = answer.responses[0].partitions
            raise_for_error(
                found.error_code, f"fetch {place} at {offset} in epoch {leader.epoch}: {found.error_code.name}"
            )
        except FAILURES:
            self.forget_leader(place)
            raise
        high_watermark = int(found.high_watermark)
        if high_watermark >= 0 and broker is None and tells:
            history.told_high_watermark(place, leader.epoch, high_watermark, known)
        return Fetched(drop_partial_batch(found.records or b""), high_watermark, int(found.preferred_read_replica))

    async def latest(self, client: Client, place: Place, *, tells: bool = True) -> int:
        """The end of what can be read, as ListOffsets tells it. It is written down (`tells`). KafkaError."""
        history = self.world.history
        leader = await self.leader(client, place)
        known = history.high_watermark(place, leader.epoch)
        wanted = ListOffsetsPartition(
            partition_index=i32(place[1]), current_leader_epoch=i32(leader.epoch), timestamp=i64(LATEST_TIMESTAMP)
        )
        request = ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=(ListOffsetsTopic(name=TopicName(place[0]), partitions=(wanted,)),),
        )
        try:
            answer = await client.send(request, broker=leader.broker)
            (found,) = answer.topics[0].partitions
            raise_for_error(
                found.error_code, f"latest offset of {place} in epoch {leader.epoch}: {found.error_code.name}"
            )
        except FAILURES:
            self.forget_leader(place)
            raise
        if tells:
            history.told_high_watermark(place, leader.epoch, int(found.offset), known)
        return int(found.offset)

    async def committed(self, client: Client, group: str, places: Sequence[Place]) -> dict[Place, int]:
        """What a group has committed; −1 for nothing. It is written down, with the epochs that the commits speak of. KafkaError."""
        history = self.world.history
        known = {place: history.committed.get((group, place), -1) for place in places}
        by_topic: dict[str, list[int]] = {}
        for topic, partition in places:
            by_topic.setdefault(topic, []).append(partition)
        request = OffsetFetchRequest(
            group_id=GroupId(group),
            topics=tuple(
                OffsetFetchRequestTopic(name=TopicName(topic), partition_indexes=tuple(map(i32, partitions)))
                for topic, partitions in by_topic.items()
            ),
            require_stable=False,
        )
        answer = await self.ask_coordinator(client, group, request)
        raise_for_error(answer.error_code, "OffsetFetch")
        found = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                raise_for_error(partition.error_code, "OffsetFetch")
                place = topic.name, int(partition.partition_index)
                found[place] = int(partition.committed_offset)
                history.told_committed(group, place, found[place], known[place])
                self.heard_of_epoch(place, int(partition.committed_leader_epoch))
        return found
