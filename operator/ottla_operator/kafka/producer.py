"""Writing records: batches by partition, one request to each leader at a time, idempotent, so that a repeat after a lost answer does not double
anything."""

import asyncio
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import TopicName
from kio.static.primitive import Records, i16, i32, i32Timedelta

from ottla_broker.wire.batch import Compression
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch
from ottla_operator.kafka import topics
from ottla_operator.kafka.client import KafkaClient, Unreachable, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.partitioner import partition_for_key

BATCH_BYTES: Final = 512 * 1024  # of records before compression; well below max.message.bytes
FLUSH_BYTES: Final = 4 * 1024 * 1024
GIVE_UP_S: Final = 120.0
RETRY_S: Final = 0.1
MADE_WITHIN: Final = 10  # looks, RETRY_S apart
TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=30))
KEYLESS_BLOCK: Final = 1000  # records
OVERHEAD: Final = 24  # bytes that a record takes beside key and value, at most, without headers

STARTING: Final = frozenset({ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available})
RETRIABLE: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.network_exception,
    }
)


@dataclass(slots=True)
class _Pending:
    records: list[Record] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class Producer:
    """`add` and `flush` are called by one task. Records of one partition keep their order."""

    link: KafkaClient
    compression: Compression = Compression.none
    acks: int = -1
    sent_records: int = 0
    """Acknowledged so far."""
    sent_bytes: int = 0
    """Of keys and values, before compression, acknowledged so far."""
    _leaders: dict[str, list[int]] = field(default_factory=dict)
    _pending: dict[TopicPartition, _Pending] = field(default_factory=lambda: defaultdict(_Pending))
    _waiting_bytes: int = 0
    _sequence: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    _identity: tuple[int, int] = (-1, -1)
    _flight: asyncio.Task[None] | None = None
    _spread: int = 0
    _over: dict[str, int] = field(default_factory=dict)
    _keyless: Counter[str] = field(default_factory=Counter)

    async def open(self) -> None:
        """Gets a producer id. Without acks there is no idempotence, as in Kafka."""
        if self.acks != -1:
            return
        until = time.monotonic() + GIVE_UP_S
        while True:
            answer = await self.link.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout=TIMEOUT))
            if answer.error_code not in STARTING or time.monotonic() > until:
                break
            await asyncio.sleep(RETRY_S)
        raise_for_error(answer.error_code, None, "producer id")
        self._identity = answer.producer_id, answer.producer_epoch

    async def partitions(self, topic: str) -> int:
        """How many there are. KafkaError when there is no such topic."""
        if topic not in self._leaders:
            await self._look_up(topic)
        return len(self._leaders[topic])

    async def choose_partition(self, topic: str, key: bytes | None, partition: int | None = None) -> TopicPartition:
        """Where a record goes: the partition asked for, or the key's, or, without a key, each partition in turn for a batch; where `spread_over` was said,
        for a block of records, so that the same records go the same way again."""
        count = len(self._leaders[topic]) if topic in self._leaders else await self.partitions(topic)
        if partition is not None:
            if not 0 <= partition < count:
                raise KafkaError(
                    ErrorCode.unknown_topic_or_partition,
                    f"topic {topic!r} has no partition {partition}; it has 0 to {count - 1}",
                )
            return topic, partition
        if (over := self._over.get(topic)) is not None:
            count = over
            if key is None:
                self._keyless[topic] += 1
                return topic, self._keyless[topic] // KEYLESS_BLOCK % count
        return topic, self._spread % count if key is None else partition_for_key(key, count)

    def spread_over(self, topic: str, count: int) -> None:
        """Keys go to the first `count` partitions, even if there are more, or will be."""
        self._over[topic] = count

    async def add(self, place: TopicPartition, record: Record) -> None:
        """Takes a record; waits only when much is under way."""
        size = len(record.key or b"") + len(record.value or b"")
        pending = self._pending[place]
        pending.records.append(record)
        pending.bytes += size + OVERHEAD
        self._waiting_bytes += size + OVERHEAD
        if pending.bytes >= BATCH_BYTES:
            self._spread += 1
        if self._waiting_bytes >= FLUSH_BYTES:
            await self.send()

    async def send(self) -> None:
        """Sends what is waiting, once what was sent before is acknowledged."""
        if self._flight is not None:
            await self._flight
        if not self._pending:
            self._flight = None
            return
        pending, self._pending, self._waiting_bytes = self._pending, defaultdict(_Pending), 0
        self._spread += 1
        self._flight = asyncio.create_task(self._deliver(pending))
        await asyncio.sleep(0)  # lets it go out before the caller makes more

    async def flush(self) -> None:
        """Returns when everything is acknowledged. KafkaError when something was refused."""
        await self.send()
        if self._flight is not None:
            await self._flight
            self._flight = None

    async def _deliver(self, pending: dict[TopicPartition, _Pending]) -> None:
        batches = {place: list(_split(it.records)) for place, it in pending.items()}
        while batches:
            now = {place: found.pop(0) for place, found in batches.items()}
            await self._deliver_one_each(now)
            batches = {place: found for place, found in batches.items() if found}

    async def _deliver_one_each(self, batches: dict[TopicPartition, list[Record]]) -> None:
        """One batch of each partition, again and again until each is acknowledged."""
        until = time.monotonic() + GIVE_UP_S
        encoded = {place: self._encode(place, records) for place, records in batches.items()}
        while encoded:
            by_leader: dict[int, dict[TopicPartition, bytes]] = defaultdict(dict)
            for place, batch in encoded.items():
                by_leader[self._leaders[place[0]][place[1]]][place] = batch
            outcomes = await asyncio.gather(*(self._ask(leader, found) for leader, found in by_leader.items()))
            refused = {place: error for outcome in outcomes for place, error in outcome.items()}
            for place in [it for it in encoded if it not in refused]:
                del encoded[place]
                records = batches[place]
                self._sequence[place] = (self._sequence[place] + len(records)) & 0x7FFF_FFFF
                self.sent_records += len(records)
                self.sent_bytes += sum(len(it.key or b"") + len(it.value or b"") for it in records)
            if refused:
                worst = next((it for it in refused.values() if it.code not in RETRIABLE), None)
                if worst is not None or time.monotonic() > until:
                    raise worst or next(iter(refused.values()))
                await asyncio.sleep(RETRY_S)
                for topic in {topic for topic, _ in refused}:
                    await self._look_up(topic)

    async def _ask(self, leader: int, batches: dict[TopicPartition, bytes]) -> dict[TopicPartition, KafkaError]:
        """Sends batches to their leader; those that were not taken, and why."""
        if leader < 0:
            return {
                it: KafkaError(ErrorCode.leader_not_available, f"partition {it[0]}-{it[1]} has no leader")
                for it in batches
            }
        by_topic: dict[str, list[PartitionProduceData]] = defaultdict(list)
        for (topic, partition), batch in batches.items():
            by_topic[topic].append(PartitionProduceData(index=i32(partition), records=Records(batch)))
        request = ProduceRequest(
            transactional_id=None,
            acks=i16(self.acks),
            timeout=TIMEOUT,
            topic_data=tuple(
                TopicProduceData(name=TopicName(topic), partition_data=tuple(found))
                for topic, found in by_topic.items()
            ),
        )
        try:
            answer = await self.link.ask(request, broker=leader)
        except Unreachable as error:
            return {it: KafkaError(ErrorCode.network_exception, str(error)) for it in batches}
        refused: dict[TopicPartition, KafkaError] = {}
        for topic in answer.responses if answer is not None else ():
            for it in topic.partition_responses:
                try:
                    raise_for_error(
                        it.error_code,
                        it.error_message,
                        f"partition {topic.name}-{it.index}",
                        allow=(ErrorCode.duplicate_sequence_number,),
                    )
                except KafkaError as error:
                    refused[topic.name, it.index] = error
        return refused

    def _encode(self, place: TopicPartition, records: list[Record]) -> bytes:
        producer_id, epoch = self._identity
        sequence = self._sequence[place] if producer_id >= 0 else -1
        return encode_batch(
            records, compression=self.compression, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )

    async def _look_up(self, topic: str) -> None:
        """As other clients do, by asking: a topic that is not there is made, where the cluster allows it."""
        found = (await topics.describe_topics(self.link, [topic])).get(topic)
        if found is None:
            await topics.request_auto_creation(self.link, topic)
            for _ in range(MADE_WITHIN):
                if found := (await topics.describe_topics(self.link, [topic])).get(topic):
                    break
                await asyncio.sleep(RETRY_S)
        if found is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {topic!r}")
        self._leaders[topic] = [it.leader for it in found.partitions]


def _split(records: list[Record]) -> list[list[Record]]:
    """Batches of at most BATCH_BYTES, or of one record that is larger."""
    batches: list[list[Record]] = [[]]
    size = 0
    for record in records:
        more = len(record.key or b"") + len(record.value or b"") + OVERHEAD
        if batches[-1] and size + more > BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(record)
        size += more
    return batches
