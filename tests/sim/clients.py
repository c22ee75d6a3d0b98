"""Clients as people write them, on the broker's own wire client: they try again until they know, and write down what they were told."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.delete_topics.v5.request import DeleteTopicsRequest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.join_group.v5.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.leave_group.v3.request import LeaveGroupRequest, MemberIdentity
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest, OffsetFetchRequestTopic
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId, ProducerId, TopicName
from kio.static.primitive import Records, i16, i32, i64

from ottla_broker.wire.client import Client, milliseconds
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, decode_all, encode_batch
from tests.sim.cluster import START_MS
from tests.sim.history import Ack, Commit, History, Place
from tests.sim.processes import Process
from tests.sim.trace import Trace

FAILURES = (KafkaError, OSError, TimeoutError)
CALL_S = 4.0  # how long a client waits for one answer
PAUSE_S = (0.05, 0.3)  # between tries
# Nothing that any fault of the servers explains: a broken promise.
NEVER = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
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
    """What clients share. `stop`: set when they are to end what they do."""

    bootstrap: str
    history: History
    trace: Trace
    stop: asyncio.Event = field(default_factory=asyncio.Event)


class SimulatedClient:
    """One program on one host, with connections that it gives up when they seem dead."""

    def __init__(self, world: World, process: Process, random: Random) -> None:
        self.world = world
        self.name = process.host
        self.process = process
        self.random = random
        self.loop = process.loop
        self._leaders: dict[Place, int] = {}

    @property
    def stopping(self) -> bool:
        return self.world.stop.is_set()

    def now_ms(self) -> int:
        return START_MS + int(self.loop.time() * 1000)

    async def pause(self) -> None:
        await asyncio.sleep(self.random.uniform(*PAUSE_S))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Client]:
        async with Client.connect(self.world.bootstrap, client_id=self.name, timeout_s=CALL_S) as client:
            yield client

    def failed(self, doing: str, reason: BaseException) -> None:
        """A try has failed: which is a broken promise, if no fault explains it."""
        self.world.history.retries += 1
        if isinstance(reason, KafkaError) and reason.code in NEVER:
            self.problem(f"{doing}: {reason.code.name}: {reason.message}")
        else:
            self.world.trace.say(f"{doing}: {type(reason).__name__} {reason}")

    def problem(self, what: str) -> None:
        self.world.history.problems.append(f"{self.name}: {what}")
        self.world.trace.say(f"PROBLEM: {what}")

    async def until_done(self, doing: str, attempt: Callable[[Client], Awaitable[bool]]) -> bool:
        """Tries with ever new connections until it says True, or the run is over."""
        while not self.stopping:
            try:
                async with self.connected() as client:
                    while not self.stopping:
                        if await attempt(client):
                            return True
            except FAILURES as reason:
                self.failed(doing, reason)
                await self.pause()
        return False

    async def leader(self, client: Client, place: Place) -> int:
        if place not in self._leaders:
            answer = await client.metadata([place[0]])
            for topic in answer.topics:
                for partition in topic.partitions:
                    self._leaders[topic.name or "", int(partition.partition_index)] = int(partition.leader_id)
        if self._leaders.get(place, -1) < 0:
            self._leaders.pop(place, None)
            raise KafkaError(ErrorCode.leader_not_available, f"nobody leads {place}")
        return self._leaders[place]

    def forget_leader(self, place: Place) -> None:
        self._leaders.pop(place, None)


class Producer(SimulatedClient):
    """acks=all, one batch in flight for each partition. `idempotent`: repeats what it does not know to be written, in the same
    sequence numbers; others give it up, and it may be there or not."""

    def __init__(
        self,
        world: World,
        process: Process,
        random: Random,
        places: Sequence[Place],
        pause_s: float,
        *,
        idempotent: bool,
    ) -> None:
        super().__init__(world, process, random)
        self._places = places
        self._pause_s = pause_s
        self._idempotent = idempotent
        self._made = 0
        if idempotent:
            world.history.once.add(self.name)

    async def run(self) -> None:
        self._producer_id, self._epoch = -1, -1
        if self._idempotent and not await self.until_done("InitProducerId", self._learn_id):
            return
        async with asyncio.TaskGroup() as tasks:
            for place in self._places:
                tasks.create_task(self._fill(place))

    async def _learn_id(self, client: Client) -> bool:
        request = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=milliseconds(60),
            producer_id=ProducerId(i64(-1)),
            producer_epoch=i16(-1),
        )
        answer = await client.ask(request)
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(answer.error_code)
        self._producer_id, self._epoch = int(answer.producer_id), int(answer.producer_epoch)
        return True

    async def _fill(self, place: Place) -> None:
        sequence = 0
        pending: tuple[bytes, ...] | None = None

        async def one_batch(client: Client) -> bool:
            nonlocal sequence, pending
            if pending is None:
                await asyncio.sleep(self.random.expovariate(1 / self._pause_s))
                pending = self._values(place)
            values = pending
            if not self._idempotent:
                pending = None
            await self._send(client, place, values, sequence)
            sequence, pending = sequence + len(values), None
            return False

        await self.until_done(f"produce to {place[0]}-{place[1]}", one_batch)

    def _values(self, place: Place) -> tuple[bytes, ...]:
        values = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            self._made += 1
            padding = b"." * self.random.choice((0, 0, 10, 300))
            values.append(b"%s/%d/%d%s" % (self.name.encode(), place[1], self._made, padding))
        self.world.history.sent.update((value, self.name) for value in values)
        return tuple(values)

    async def _send(self, client: Client, place: Place, values: tuple[bytes, ...], sequence: int) -> None:
        topic, partition = place
        now_ms = self.now_ms()
        batch = encode_batch(
            [Record(now_ms, None, value) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence if self._idempotent else -1,
        )
        request = ProduceRequest(
            transactional_id=None,
            acks=i16(-1),
            timeout=milliseconds(3),
            topic_data=(
                TopicProduceData(
                    name=TopicName(topic),
                    partition_data=(PartitionProduceData(index=i32(partition), records=Records(batch)),),
                ),
            ),
        )
        broker = await self.leader(client, place)
        try:
            answer = await client.ask(request, broker=broker)
            (result,) = answer.responses[0].partition_responses
            if result.error_code is not ErrorCode.none:
                raise KafkaError(result.error_code, result.error_message)
        except FAILURES:
            self.forget_leader(place)
            raise
        offset = int(result.base_offset)
        self.world.history.acks.append(Ack(place, offset, values, broker, self.loop.time()))


class Member(SimulatedClient):
    """A member of a consumer group that reads everything, and commits after it has read. A commit whose fate it does not know costs it
    its membership, so that it cannot come true later and undo another."""

    def __init__(self, world: World, process: Process, random: Random, group: str, topic: str, partitions: int) -> None:
        super().__init__(world, process, random)
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._id = ""

    async def run(self) -> None:
        await self.until_done(f"member of {self._group}", self._membership)

    async def _membership(self, client: Client) -> bool:
        try:
            generation, mine = await self._join(client)
            positions = await self._committed(client, mine)
            unsaid = 0
            while not self.stopping:
                for place in positions:
                    unsaid += await self._read(client, place, positions)
                if unsaid and self.random.randrange(3) == 0:
                    await self._commit(client, generation, positions)
                    unsaid = 0
                if not positions:
                    await asyncio.sleep(0.5)
                if (code := await self._heartbeat(client, generation)) is not ErrorCode.none:
                    if code is ErrorCode.rebalance_in_progress:
                        if unsaid:
                            await self._commit(client, generation, positions)
                        return False
                    raise KafkaError(code)
        except FAILURES:
            left, self._id = self._id, ""
            await self._leave(client, left)
            raise
        return True

    async def _ask(self, client: Client, request: Any) -> Any:
        return await client.ask_coordinator(self._group, request)

    async def _join(self, client: Client) -> tuple[int, list[Place]]:
        while True:
            request = JoinGroupRequest(
                group_id=GroupId(self._group),
                session_timeout=milliseconds(6),
                rebalance_timeout=milliseconds(3),
                member_id=self._id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="spread", metadata=b""),),
            )
            joined = await self._ask(client, request)
            if joined.error_code is ErrorCode.member_id_required:
                self._id = joined.member_id
                continue
            if joined.error_code is not ErrorCode.none:
                raise KafkaError(joined.error_code, "JoinGroup")
            break
        self._id = joined.member_id
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == self._id:
            members = sorted(member.member_id for member in joined.members)
            assignments = tuple(
                SyncGroupRequestAssignment(
                    member_id=member, assignment=json.dumps(list(range(self._partitions))[at :: len(members)]).encode()
                )
                for at, member in enumerate(members)
            )
        synced = await self._ask(
            client,
            SyncGroupRequest(
                group_id=GroupId(self._group),
                generation_id=joined.generation_id,
                member_id=self._id,
                group_instance_id=None,
                protocol_type="consumer",
                protocol_name="spread",
                assignments=assignments,
            ),
        )
        if synced.error_code is not ErrorCode.none:
            raise KafkaError(synced.error_code, "SyncGroup")
        mine = [(self._topic, partition) for partition in json.loads(synced.assignment)]
        self.world.trace.say(f"is in {self._group}, generation {joined.generation_id}, with {[p for _, p in mine]}")
        return int(joined.generation_id), mine

    async def _committed(self, client: Client, places: list[Place]) -> dict[Place, int]:
        if not places:
            return {}
        history = self.world.history
        known = {place: history.committed.get((self._group, place), -1) for place in places}
        found = await committed(client, self._group, places)
        for place, offset in found.items():
            history.told_committed(self._group, place, offset, known[place])
        return {place: max(offset, 0) for place, offset in found.items()}

    async def _read(self, client: Client, place: Place, positions: dict[Place, int]) -> int:
        history = self.world.history
        known = history.high_watermarks.get(place, 0)
        fetched = await client.fetch(*place, positions[place], max_wait_s=0.2, max_bytes=16 << 10)
        history.told_high_watermark(place, fetched.high_watermark, known)
        count = 0
        for header, record in decode_all(fetched.records):
            if record.offset >= positions[place]:
                history.consumed(self._group, place, record.offset, record.value or b"")
                count += 1
                if record.offset >= fetched.high_watermark:
                    self.problem(
                        f"read {place} offset {record.offset} above the high watermark {fetched.high_watermark}"
                    )
            if record.offset + 1 == header.next_offset:
                positions[place] = max(positions[place], header.next_offset)
        return count

    async def _commit(self, client: Client, generation: int, positions: dict[Place, int]) -> None:
        request = OffsetCommitRequest(
            group_id=GroupId(self._group),
            generation_id_or_member_epoch=i32(generation),
            member_id=self._id,
            group_instance_id=None,
            topics=(
                OffsetCommitRequestTopic(
                    name=TopicName(self._topic),
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=i32(place[1]), committed_offset=i64(offset), committed_metadata=""
                        )
                        for place, offset in positions.items()
                    ),
                ),
            ),
        )
        wanted = dict(positions)
        answer = await self._ask(client, request)
        for partition in answer.topics[0].partitions:
            if partition.error_code is not ErrorCode.none:
                raise KafkaError(partition.error_code, "OffsetCommit")
            place = (self._topic, int(partition.partition_index))
            self.world.history.acked_commit(Commit(self._group, place, wanted[place], self.loop.time()))

    async def _heartbeat(self, client: Client, generation: int) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GroupId(self._group), generation_id=i32(generation), member_id=self._id, group_instance_id=None
        )
        code: ErrorCode = (await self._ask(client, request)).error_code
        return code

    async def _leave(self, client: Client, member: str) -> None:
        """Tells the group that this member comes no more, if that can be told."""
        try:
            async with asyncio.timeout(0.5):
                who = MemberIdentity(member_id=member, group_instance_id=None)
                await self._ask(client, LeaveGroupRequest(group_id=GroupId(self._group), members=(who,)))
        except FAILURES:
            return


async def committed(client: Client, group: str, places: Sequence[Place]) -> dict[Place, int]:
    """What a group has committed; −1 for nothing. KafkaError."""
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
    answer = await client.ask_coordinator(group, request)
    if answer.error_code is not ErrorCode.none:
        raise KafkaError(answer.error_code, "OffsetFetch")
    found = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code is not ErrorCode.none:
                raise KafkaError(partition.error_code, "OffsetFetch")
            found[topic.name, int(partition.partition_index)] = int(partition.committed_offset)
    return found


class Admin(SimulatedClient):
    """Makes topics and takes some away again."""

    def __init__(self, world: World, process: Process, random: Random, replicas: int) -> None:
        super().__init__(world, process, random)
        self._replicas = replicas

    async def create(self, name: str, partitions: int) -> bool:
        """Until it is there, or the run is over. Whether one request was enough: others may still come true later."""
        history = self.world.history
        tries = 0

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            history.topics[name] = None
            topic = CreatableTopic(
                name=TopicName(name),
                num_partitions=i32(partitions),
                replication_factor=i16(self._replicas),
                assignments=(),
                configs=(),
            )
            answer = await client.ask_controller(
                CreateTopicsRequest(topics=(topic,), timeout=milliseconds(3), validate_only=False)
            )
            code = answer.topics[0].error_code
            if code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                raise KafkaError(code, answer.topics[0].error_message)
            history.topics[name] = True
            return True

        return await self.until_done(f"create {name}", attempt) and tries == 1

    async def delete(self, name: str) -> bool:
        history = self.world.history

        async def attempt(client: Client) -> bool:
            history.topics[name] = None
            answer = await client.ask_controller(
                DeleteTopicsRequest(topic_names=(TopicName(name),), timeout=milliseconds(3))
            )
            code = answer.responses[0].error_code
            if code not in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
                raise KafkaError(code, answer.responses[0].error_message)
            history.topics[name] = False
            return True

        return await self.until_done(f"delete {name}", attempt)

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            await asyncio.sleep(self.random.uniform(0.5, 8))
            number += 1
            name = f"passing-{number}"
            if await self.create(name, self.random.randrange(1, 4)) and self.random.randrange(2):
                await self.delete(name)
