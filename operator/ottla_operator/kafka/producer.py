"""An idempotent producer: batches by partition, and one request at a time to each leader."""

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
from ottla_broker.wire.partitioner import partition_for_key
from ottla_broker.wire.records import Record, encode_batch
from ottla_operator.kafka import topics
from ottla_operator.kafka.client import KafkaClient, Unreachable, find_error, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition

BATCH_BYTES: Final = 512 * 1024
"""Size of a batch's records before compression; well below max.message.bytes."""
FLUSH_BYTES: Final = 4 * 1024 * 1024
DELIVERY_TIMEOUT_S: Final = 120.0
RETRY_PAUSE_S: Final = 0.1
AUTO_CREATION_ATTEMPTS: Final = 10
REQUEST_TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=30))
KEYLESS_BLOCK_RECORDS: Final = 1000
"""Consecutive records without a key that go to one partition, if the partitions are fixed by
`fix_partitions`.
"""
RECORD_OVERHEAD_BYTES: Final = 24
"""Bytes that a record takes besides key, value and headers, at most."""

COORDINATOR_STARTING_ERRORS: Final = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available}
)
RETRIABLE_ERRORS: Final = frozenset(
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
class _PendingRecords:
    records: list[Record] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class Producer:
    """One task calls the methods. The order of records in a partition is kept. `add`, `send` and
    `flush` raise KafkaError if records that were sent before are refused, and Unreachable.
    """

    client: KafkaClient
    compression: Compression = Compression.none
    acks: int = -1
    sent_records: int = 0
    """Number of acknowledged records."""
    sent_bytes: int = 0
    """Bytes of keys and values of acknowledged records, before compression."""
    _leaders: dict[str, list[int]] = field(default_factory=dict)
    _pending: dict[TopicPartition, _PendingRecords] = field(default_factory=lambda: defaultdict(_PendingRecords))
    _pending_bytes: int = 0
    _sequences: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    _producer_id_and_epoch: tuple[int, int] = (-1, -1)
    _in_flight: asyncio.Task[None] | None = None
    _sticky_partition: int = 0
    _fixed_partitions: dict[str, int] = field(default_factory=dict)
    _keyless_records: Counter[str] = field(default_factory=Counter)

    async def open(self) -> None:
        """Requests a producer id. As in Kafka, without acks=all there is no idempotence."""
        if self.acks != -1:
            return
        deadline = time.monotonic() + DELIVERY_TIMEOUT_S
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout=REQUEST_TIMEOUT)
        while True:
            response = await self.client.send(request)
            if response.error_code not in COORDINATOR_STARTING_ERRORS or time.monotonic() > deadline:
                break
            await asyncio.sleep(RETRY_PAUSE_S)
        raise_for_error(response.error_code, None, "producer id")
        self._producer_id_and_epoch = response.producer_id, response.producer_epoch

    async def count_partitions(self, topic: str) -> int:
        """Number of partitions. Raises KafkaError if the topic neither exists nor is created
        automatically.
        """
        if topic not in self._leaders:
            await self._find_leaders(topic)
        return len(self._leaders[topic])

    async def choose_partition(self, topic: str, key: bytes | None, partition: int | None = None) -> TopicPartition:
        """The given partition, otherwise that of the key. Without a key, each partition in turn for
        a batch.

        After `fix_partitions`, each partition in turn for a block of records: the same records get
        the same partition. Raises KafkaError if there is no such topic or partition.
        """
        count = len(self._leaders[topic]) if topic in self._leaders else await self.count_partitions(topic)
        if partition is not None:
            if not 0 <= partition < count:
                raise KafkaError(
                    ErrorCode.unknown_topic_or_partition,
                    f"topic {topic!r} has no partition {partition}; it has 0 to {count - 1}",
                )
            return topic, partition
        if (fixed := self._fixed_partitions.get(topic)) is not None:
            count = fixed
            if key is None:
                self._keyless_records[topic] += 1
                return topic, self._keyless_records[topic] // KEYLESS_BLOCK_RECORDS % count
        return topic, self._sticky_partition % count if key is None else partition_for_key(key, count)

    def fix_partitions(self, topic: str, count: int) -> None:
        """Records without a given partition go only to the first `count` partitions, even if the
        topic has more or gets more.
        """
        self._fixed_partitions[topic] = count

    async def add(self, partition: TopicPartition, record: Record) -> None:
        """Adds a record to the batch of its partition. Waits only if many bytes are in flight."""
        size = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES
        pending = self._pending[partition]
        pending.records.append(record)
        pending.bytes += size
        self._pending_bytes += size
        if pending.bytes >= BATCH_BYTES:
            self._sticky_partition += 1
        if self._pending_bytes >= FLUSH_BYTES:
            await self.send()

    async def send(self) -> None:
        """Starts sending the pending records after the previous ones are acknowledged."""
        if self._in_flight is not None:
            await self._in_flight
        if not self._pending:
            self._in_flight = None
            return
        pending, self._pending, self._pending_bytes = self._pending, defaultdict(_PendingRecords), 0
        self._sticky_partition += 1
        self._in_flight = asyncio.create_task(self._deliver(pending))
        await asyncio.sleep(0)  # starts the task before the caller goes on to compute

    async def flush(self) -> None:
        """Waits until every record is acknowledged. Raises KafkaError if one is refused."""
        await self.send()
        if self._in_flight is not None:
            await self._in_flight
            self._in_flight = None

    async def _deliver(self, pending: dict[TopicPartition, _PendingRecords]) -> None:
        batches = {partition: _split(it.records) for partition, it in pending.items()}
        while batches:
            await self._deliver_batches({partition: waiting.pop(0) for partition, waiting in batches.items()})
            batches = {partition: waiting for partition, waiting in batches.items() if waiting}

    async def _deliver_batches(self, batches: dict[TopicPartition, list[Record]]) -> None:
        """Sends one batch for each partition, and retries until all are acknowledged."""
        deadline = time.monotonic() + DELIVERY_TIMEOUT_S
        unsent = {partition: self._encode(partition, records) for partition, records in batches.items()}
        while unsent:
            by_leader: dict[int, dict[TopicPartition, bytes]] = defaultdict(dict)
            for partition, batch in unsent.items():
                by_leader[self._leaders[partition[0]][partition[1]]][partition] = batch
            responses = await asyncio.gather(*(self._produce(leader, it) for leader, it in by_leader.items()))
            errors = {partition: error for response in responses for partition, error in response.items()}
            for partition in unsent.keys() - errors.keys():
                del unsent[partition]
                self._acknowledge(partition, batches[partition])
            if errors:
                fatal = next((error for error in errors.values() if error.code not in RETRIABLE_ERRORS), None)
                if fatal is not None or time.monotonic() > deadline:
                    raise fatal or next(iter(errors.values()))
                await asyncio.sleep(RETRY_PAUSE_S)
                for topic in {topic for topic, _ in errors}:
                    await self._find_leaders(topic)

    def _acknowledge(self, partition: TopicPartition, records: list[Record]) -> None:
        self._sequences[partition] = (self._sequences[partition] + len(records)) & 0x7FFF_FFFF
        self.sent_records += len(records)
        self.sent_bytes += sum(len(it.key or b"") + len(it.value or b"") for it in records)

    async def _produce(self, leader: int, batches: dict[TopicPartition, bytes]) -> dict[TopicPartition, KafkaError]:
        """Sends batches to their leader. Returns the errors of those that were not appended."""
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
            timeout=REQUEST_TIMEOUT,
            topic_data=tuple(
                TopicProduceData(name=TopicName(topic), partition_data=tuple(data)) for topic, data in by_topic.items()
            ),
        )
        try:
            response = await self.client.send(request, broker=leader)
        except Unreachable as error:
            return {it: KafkaError(ErrorCode.network_exception, str(error)) for it in batches}
        errors: dict[TopicPartition, KafkaError] = {}
        for result in response.responses if response is not None else ():
            for partition in result.partition_responses:
                subject = f"partition {result.name}-{partition.index}"
                duplicate = (ErrorCode.duplicate_sequence_number,)
                refusal = find_error(partition.error_code, partition.error_message, subject, allow=duplicate)
                if refusal is not None:
                    errors[result.name, partition.index] = refusal
        return errors

    def _encode(self, partition: TopicPartition, records: list[Record]) -> bytes:
        producer_id, epoch = self._producer_id_and_epoch
        sequence = self._sequences[partition] if producer_id >= 0 else -1
        return encode_batch(
            records, compression=self.compression, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )

    async def _find_leaders(self, topic: str) -> None:
        """Describes the topic; a missing topic is created if the brokers create topics
        automatically. Raises KafkaError if they do not.
        """
        description = (await topics.describe_topics(self.client, [topic])).get(topic)
        if description is None:
            await topics.request_auto_creation(self.client, topic)
            for _ in range(AUTO_CREATION_ATTEMPTS):
                if description := (await topics.describe_topics(self.client, [topic])).get(topic):
                    break
                await asyncio.sleep(RETRY_PAUSE_S)
        if description is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {topic!r}")
        self._leaders[topic] = [partition.leader for partition in description.partitions]


def _split(records: list[Record]) -> list[list[Record]]:
    """Batches of at most BATCH_BYTES, or of one larger record."""
    batches: list[list[Record]] = [[]]
    size = 0
    for record in records:
        record_size = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES
        if batches[-1] and size + record_size > BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(record)
        size += record_size
    return batches
