"""Producers: of every strength of acknowledgement, idempotent or not, with one batch or several in flight, to topics that stay and to
topics that come and go."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.produce.v9 import request as by_name
from kio.schema.produce.v13 import request as by_id
from kio.schema.types import ProducerId, TopicName
from kio.static.primitive import Records, i16, i32, i64

from ottla_broker.wire.client import Client, to_timedelta_field
from ottla_broker.wire.codec import write_request
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch
from tests.sim.client import CALL_S, FAILURES, Leader, SimulatedClient, World
from tests.sim.history import Ack, Place
from tests.sim.processes import SimulatedProcess

ALL, ONE, NONE = -1, 1, 0
MOST_IN_FLIGHT = 5  # what brokers remember of each producer
PRODUCE = 0
UNANSWERED = 0  # the correlation id of requests that nobody answers
FOLLOWS_A_LOST_ONE = frozenset({ErrorCode.out_of_order_sequence_number})


@dataclass(frozen=True, slots=True)
class Batch:
    values: tuple[bytes, ...]
    sequence: int


@dataclass(frozen=True, slots=True)
class Manner:
    """How a producer works. `idempotent`: it repeats what it does not know to be written, in the same sequence numbers; others give it up, and it may
    be there or not. `in_flight`: requests to one partition at a time. `by_id`: it names topics by their ids, where it can."""

    acks: int = ALL
    idempotent: bool = True
    in_flight: int = 1
    by_id: bool = False
    pause_s: float = 0.1


class Producer(SimulatedClient):
    """Fills `places` as long as the run goes on."""

    def __init__(
        self, world: World, process: SimulatedProcess, random: Random, places: Sequence[Place], manner: Manner
    ) -> None:
        super().__init__(world, process, random)
        self.manner = manner
        self._places = places
        self._made = 0
        if manner.idempotent:
            world.history.once.add(self.name)

    async def run(self) -> None:
        if not await self._begin():
            return
        async with asyncio.TaskGroup() as tasks:
            for place in self._places:
                tasks.create_task(self._fill(place))

    async def _begin(self) -> bool:
        self._producer_id, self._epoch = -1, -1
        return not self.manner.idempotent or await self.until_done("InitProducerId", self._learn_id)

    async def _learn_id(self, client: Client) -> bool:
        request = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=to_timedelta_field(60),
            producer_id=ProducerId(i64(-1)),
            producer_epoch=i16(-1),
        )
        answer = await client.send(request)
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(answer.error_code)
        self._producer_id, self._epoch = int(answer.producer_id), int(answer.producer_epoch)
        return True

    async def _fill(self, place: Place, batches: int | None = None, wanted: Callable[[], bool] = lambda: True) -> None:
        """So many batches (None: without end) while they are wanted, in waves. What one wave leaves unacknowledged is the next, alone."""
        sequence, left = 0, batches
        unknown: list[Batch] = []

        async def wave(client: Client) -> bool:
            nonlocal sequence, left, unknown
            sending = unknown
            if not sending:
                if left == 0:
                    return True
                await asyncio.sleep(self.random.expovariate(1 / self.manner.pause_s))
                count = self.random.randint(1, self.manner.in_flight)
                for _ in range(count if left is None else min(count, left)):
                    sending.append(Batch(self._values(place), sequence))
                    sequence += len(sending[-1].values)
                left = None if left is None else left - len(sending)
            unknown = sending if self.manner.idempotent else []
            unacknowledged, reason = await self._send(client, place, sending)
            unknown = unacknowledged if self.manner.idempotent else []
            if reason is not None:
                raise reason
            return False

        await self.until_done(f"produce to {place[0]}-{place[1]}", wave, wanted)

    def _values(self, place: Place) -> tuple[bytes, ...]:
        values = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            self._made += 1
            padding = b"." * self.random.choice((0, 0, 10, 300))
            values.append(b"%s/%d/%d%s" % (self.name.encode(), place[1], self._made, padding))
        self.world.history.sent.update((value, self.name) for value in values)
        return tuple(values)

    async def _send(
        self, client: Client, place: Place, batches: Sequence[Batch]
    ) -> tuple[list[Batch], BaseException | None]:
        """All of them at once, in their order. Those that were not acknowledged, and why the first was not."""
        leader = await self.leader(client, place)
        if self.manner.acks == NONE:
            await self._tell(client, leader, place, batches)
            return [], None
        asking = [asyncio.create_task(self._ask(client, leader, place, batch)) for batch in batches]
        await asyncio.wait(asking)
        unacknowledged: list[Batch] = []
        first: BaseException | None = None
        for batch, asked in zip(batches, asking, strict=True):
            reason = asked.exception()
            if reason is None:
                offset, at_s = asked.result(), self.loop.time()
                self._acknowledged(Ack(place, leader.topic_id, offset, batch.values, leader.broker, at_s, self.name))
                continue
            if not isinstance(reason, FAILURES):
                raise reason
            if first is not None:
                self.failed(f"one more of that wave to {place}", reason, FOLLOWS_A_LOST_ONE)
            first = first or reason
            unacknowledged.append(batch)
        if first is not None:
            self.forget_leader(place)
        return unacknowledged, first

    def _acknowledged(self, ack: Ack) -> None:
        history = self.world.history
        fate = history.topics[ack.place[0]]
        # Where a name may mean two topics, one after the other, only an id says which of them has the records.
        if self.manner.acks == ALL and (self.manner.by_id or not fate.mortal):
            history.acked(ack)
        else:
            history.acks_of[self.name] += 1

    async def _ask(self, client: Client, leader: Leader, place: Place, batch: Batch) -> int:
        answer = await client.send(self._request(leader.topic_id, place, batch), broker=leader.broker)
        (result,) = answer.responses[0].partition_responses
        if result.error_code is not ErrorCode.none:
            raise KafkaError(result.error_code, result.error_message)
        return int(result.base_offset)

    async def _tell(self, client: Client, leader: Leader, place: Place, batches: Sequence[Batch]) -> None:
        """Nobody answers: the wire client, which knows no such requests, lends its connection."""
        async with asyncio.timeout(CALL_S):
            await client.metadata(())
        if leader.broker not in client._addresses:
            raise KafkaError(ErrorCode.broker_not_available, f"broker {leader.broker} is not there")
        channel = await client._channel(client._addresses[leader.broker])  # which gives up by itself
        for batch in batches:
            request = self._request(leader.topic_id, place, batch)
            frame = write_request(PRODUCE, int(request.__version__), UNANSWERED, self.name, request)
            channel._transport.write(frame)
            self.world.history.acks_of[self.name] += 1

    def _request(self, topic_id: UUID, place: Place, batch: Batch) -> Any:
        now_ms = self.now_ms()
        records = encode_batch(
            [Record(now_ms, None, value) for value in batch.values],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=batch.sequence if self.manner.idempotent else -1,
        )
        schema: Any = by_id if self.manner.by_id else by_name
        data = (schema.PartitionProduceData(index=i32(place[1]), records=Records(records)),)
        if self.manner.by_id:
            topic = schema.TopicProduceData(topic_id=topic_id, partition_data=data)
        else:
            topic = schema.TopicProduceData(name=TopicName(place[0]), partition_data=data)
        return schema.ProduceRequest(
            transactional_id=None, acks=i16(self.manner.acks), timeout=to_timedelta_field(3), topic_data=(topic,)
        )


class Wanderer(Producer):
    """Writes a little to one topic after another of those that come and go; with a new producer id for each."""

    def __init__(self, world: World, process: SimulatedProcess, random: Random, manner: Manner, but: str) -> None:
        super().__init__(world, process, random, (), manner)
        self._but = but

    async def run(self) -> None:
        while not self.stopping:
            there = [
                (name, fate) for name, fate in self.world.history.living() if name != self._but and not fate.leaving
            ]
            if not there:
                await asyncio.sleep(0.5)
                continue
            name, fate = self.random.choice(there)
            if await self._begin():
                place = (name, self.random.randrange(fate.partitions))
                await self._fill(place, self.random.randint(1, 8), lambda fate=fate: not fate.leaving)  # type: ignore[misc]
