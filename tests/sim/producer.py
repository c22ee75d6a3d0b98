"""Producers with any acks, idempotent or not, with one or several batches in flight, to permanent
and temporary topics.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.produce.v9 import request as by_name
from kio.schema.produce.v13 import request as by_id
from kio.schema.types import ProducerId, TopicName
from kio.static.primitive import Records, i16, i32, i64

from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.client import Client
from ottla_broker.wire.codec import write_request
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.partition_requests import to_timedelta_field
from ottla_broker.wire.records import Record, encode_batch
from tests.sim.client import FAILURES, REQUEST_TIMEOUT_S, Leader, SimulatedClient, Workload
from tests.sim.history import Ack, ExpectedTopic, TopicPartition
from tests.sim.processes import SimulatedProcess

ALL, ONE, NONE = -1, 1, 0
UNANSWERED = 0  # correlation id of requests without response
EXPECTED_AFTER_FAILURE = frozenset({ErrorCode.out_of_order_sequence_number})


@dataclass(frozen=True, slots=True)
class Batch:
    values: tuple[bytes, ...]
    sequence: int


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of a producer.

    `idempotent`: it resends batches with unknown outcome with the same sequence numbers; other
    producers give them up, so that their records may exist or not. `in_flight` limits requests per
    partition. `produce_by_id`: it names topics by id instead of by name.
    """

    acks: int = ALL
    idempotent: bool = True
    in_flight: int = 1
    produce_by_id: bool = False
    pause_s: float = 0.1


class Producer(SimulatedClient):
    """Produces to `topic_partitions` until the run ends."""

    def __init__(
        self,
        workload: Workload,
        process: SimulatedProcess,
        random: Random,
        topic_partitions: Sequence[TopicPartition],
        settings: ProducerSettings,
    ) -> None:
        super().__init__(workload, process, random)
        self.settings = settings
        self._topic_partitions = topic_partitions
        self._record_count = 0
        if settings.idempotent:
            workload.history.idempotent_producers.add(self.name)

    async def run(self) -> None:
        if not await self._init_if_idempotent():
            return
        async with asyncio.TaskGroup() as tasks:
            for tp in self._topic_partitions:
                tasks.create_task(self._produce_to(tp))

    async def _init_if_idempotent(self) -> bool:
        self._producer_id, self._epoch = -1, -1
        return not self.settings.idempotent or await self.retry_until_done("InitProducerId", self._init_producer_id)

    async def _init_producer_id(self, client: Client) -> bool:
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

    async def _produce_to(
        self, tp: TopicPartition, count: int | None = None, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Sends `count` batches (None: without end) while `is_wanted`, in waves.

        An idempotent producer sends the unacknowledged batches of a wave again as the next wave.
        """
        sequence, remaining = 0, count
        unknown: list[Batch] = []

        async def wave(client: Client) -> bool:
            nonlocal sequence, remaining, unknown
            sending = unknown
            if not sending:
                if remaining == 0:
                    return True
                await asyncio.sleep(self.random.expovariate(1 / self.settings.pause_s))
                wave_size = self.random.randint(1, self.settings.in_flight)
                for _ in range(wave_size if remaining is None else min(wave_size, remaining)):
                    sending.append(Batch(self._make_values(tp), sequence))
                    sequence += len(sending[-1].values)
                remaining = None if remaining is None else remaining - len(sending)
            unknown = sending if self.settings.idempotent else []
            unacknowledged, reason = await self._send(client, tp, sending)
            unknown = unacknowledged if self.settings.idempotent else []
            if reason is not None:
                raise reason
            return False

        await self.retry_until_done(f"produce to {tp[0]}-{tp[1]}", wave, is_wanted)

    def _make_values(self, tp: TopicPartition) -> tuple[bytes, ...]:
        values = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            self._record_count += 1
            padding = b"." * self.random.choice((0, 0, 10, 300))
            values.append(b"%s/%d/%d%s" % (self.name.encode(), tp[1], self._record_count, padding))
        self.workload.history.sent.update((value, self.name) for value in values)
        return tuple(values)

    async def _send(
        self, client: Client, tp: TopicPartition, batches: Sequence[Batch]
    ) -> tuple[list[Batch], BaseException | None]:
        """Sends all batches at once, in order. Returns those without acknowledgement and the first
        failure.
        """
        leader = await self.leader(client, tp)
        if self.settings.acks == NONE:
            await self._send_without_response(client, leader, tp, batches)
            return [], None
        requests = [asyncio.create_task(self._send_batch(client, leader, tp, batch)) for batch in batches]
        await asyncio.wait(requests)
        unacknowledged: list[Batch] = []
        first: BaseException | None = None
        for batch, request in zip(batches, requests, strict=True):
            reason = request.exception()
            if reason is None:
                offset, at_s = request.result(), self.loop.time()
                self._record_ack(Ack(tp, leader.topic_id, offset, batch.values, leader.broker, at_s, self.name))
                continue
            if not isinstance(reason, FAILURES):
                raise reason
            if first is not None:
                self.record_failure(f"another batch of the wave to {tp}", reason, EXPECTED_AFTER_FAILURE)
            first = first or reason
            unacknowledged.append(batch)
        if first is not None:
            self.forget_leader(tp)
        return unacknowledged, first

    def _record_ack(self, ack: Ack) -> None:
        history = self.workload.history
        topic_state = history.topics[ack.topic_partition[0]]
        # If the name may have belonged to two topics, only an id tells which of them has the
        # records.
        if self.settings.acks == ALL and (self.settings.produce_by_id or not topic_state.may_lose_records):
            history.record_ack(ack)
        else:
            history.ack_counts[self.name] += 1

    async def _send_batch(self, client: Client, leader: Leader, tp: TopicPartition, batch: Batch) -> int:
        answer = await client.send(self._request(leader.topic_id, tp, batch), broker=leader.broker)
        (result,) = answer.responses[0].partition_responses
        if result.error_code is not ErrorCode.none:
            raise KafkaError(result.error_code, result.error_message)
        return int(result.base_offset)

    async def _send_without_response(
        self, client: Client, leader: Leader, tp: TopicPartition, batches: Sequence[Batch]
    ) -> None:
        """Sends acks=0 requests over the client's connection: the wire client cannot send requests
        without response.
        """
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            await client.metadata(())
        if leader.broker not in client._addresses:
            raise KafkaError(ErrorCode.broker_not_available, f"broker {leader.broker} is not known")
        channel = await client._channel(client._addresses[leader.broker])
        for batch in batches:
            request = self._request(leader.topic_id, tp, batch)
            frame = write_request(ApiKey.PRODUCE, int(request.__version__), UNANSWERED, self.name, request)
            channel._transport.write(frame)
            self.workload.history.ack_counts[self.name] += 1

    def _request(self, topic_id: UUID, tp: TopicPartition, batch: Batch) -> Any:
        now_ms = self.now_ms()
        records = encode_batch(
            [Record(now_ms, None, value) for value in batch.values],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=batch.sequence if self.settings.idempotent else -1,
        )
        schema: Any = by_id if self.settings.produce_by_id else by_name
        data = (schema.PartitionProduceData(index=i32(tp[1]), records=Records(records)),)
        if self.settings.produce_by_id:
            topic = schema.TopicProduceData(topic_id=topic_id, partition_data=data)
        else:
            topic = schema.TopicProduceData(name=TopicName(tp[0]), partition_data=data)
        return schema.ProduceRequest(
            transactional_id=None, acks=i16(self.settings.acks), timeout=to_timedelta_field(3), topic_data=(topic,)
        )


class TemporaryTopicProducer(Producer):
    """Produces a few batches to one random temporary topic after another. If it is idempotent, it
    gets a new producer id for each.
    """

    def __init__(
        self, workload: Workload, process: SimulatedProcess, random: Random, settings: ProducerSettings, permanent: str
    ) -> None:
        super().__init__(workload, process, random, (), settings)
        self._permanent = permanent

    async def run(self) -> None:
        while not self.stopping:
            topics = [
                (name, topic)
                for name, topic in self.workload.history.existing_topics()
                if name != self._permanent and not topic.deletion_requested
            ]
            if not topics:
                await asyncio.sleep(0.5)
                continue
            name, topic = self.random.choice(topics)
            if await self._init_if_idempotent():
                tp = (name, self.random.randrange(topic.partitions))
                await self._produce_to(tp, self.random.randint(1, 8), partial(_still_exists, topic))


def _still_exists(topic: ExpectedTopic) -> bool:
    return not topic.deletion_requested
