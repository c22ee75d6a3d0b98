"""A consumer without group membership: records of partitions from given offsets, in the order of
each partition.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v12.response import PartitionData
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from ottla_broker.wire.batch import HEADER_SIZE, LOG_OVERHEAD, parse_batch_header
from ottla_broker.wire.control_records import ControlRecordType, control_record_type
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.records import Record, decode_batch
from ottla_operator.kafka.client import KafkaClient, Unreachable, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition, group_by_topic
from ottla_operator.kafka.topics import require_topics

FETCH_MAX_BYTES: Final = 16 * 1024 * 1024
PARTITION_MAX_BYTES: Final = 1024 * 1024
FETCH_MAX_WAIT: Final = i32Timedelta.parse(timedelta(milliseconds=500))
RETRY_PAUSE_S: Final = 0.2

STALE_METADATA_ERRORS: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.kafka_storage_error,
    }
)


@dataclass(slots=True)
class Consumer:
    """`positions`: the next offset of each partition, advanced by `records`. `read_committed`:
    skips records of transactions that are open or were aborted.
    """

    client: KafkaClient
    positions: dict[TopicPartition, int]
    read_committed: bool = True
    _leaders: dict[TopicPartition, int] = field(default_factory=dict)

    async def records(self) -> AsyncIterator[tuple[TopicPartition, list[Record]]]:
        """Yields a partition with its next records, forever. Yields ("", −1) with no records after
        a round of fetches without records. Retries while a leader does not respond. Raises
        KafkaError, and Unreachable if no broker responds.
        """
        while True:
            if not self._leaders:
                await self._find_leaders()
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for partition in self.positions:
                by_leader[self._leaders.get(partition, -1)].append(partition)
            responses = await asyncio.gather(
                *(self._fetch(leader, partitions) for leader, partitions in by_leader.items() if leader >= 0)
            )
            is_idle = True
            for partition, data in (it for response in responses for it in response):
                if records := self._decode(partition, data):
                    is_idle = False
                    yield partition, records
            if is_idle:
                yield ("", -1), []
                if by_leader.get(-1) or not self._leaders:
                    await asyncio.sleep(RETRY_PAUSE_S)
                    self._leaders.clear()

    async def _fetch(
        self, leader: int, partitions: Iterable[TopicPartition]
    ) -> list[tuple[TopicPartition, PartitionData]]:
        request = FetchRequest(
            max_wait=FETCH_MAX_WAIT,
            min_bytes=i32(1),
            max_bytes=i32(FETCH_MAX_BYTES),
            isolation_level=i8(1 if self.read_committed else 0),
            topics=tuple(
                FetchTopic(
                    topic=TopicName(topic),
                    partitions=tuple(
                        FetchPartition(
                            partition=index,
                            fetch_offset=i64(self.positions[topic, index]),
                            partition_max_bytes=i32(PARTITION_MAX_BYTES),
                        )
                        for index in indexes
                    ),
                )
                for topic, indexes in group_by_topic(partitions).items()
            ),
            forgotten_topics_data=(),
        )
        try:
            response = await self.client.send(request, broker=leader)
        except Unreachable:
            self._leaders.clear()
            await asyncio.sleep(RETRY_PAUSE_S)
            return []
        raise_for_error(response.error_code, None, "fetch")
        found: list[tuple[TopicPartition, PartitionData]] = []
        for topic in response.responses:
            for data in topic.partitions:
                partition = topic.topic, data.partition_index
                if data.error_code in STALE_METADATA_ERRORS:
                    self._leaders.clear()
                    continue
                subject = f"partition {topic.topic}-{data.partition_index} at {self.positions[partition]}"
                raise_for_error(data.error_code, None, subject)
                found.append((partition, data))
        return found

    def _decode(self, partition: TopicPartition, fetched: PartitionData) -> list[Record]:
        """Records at or after the position, which is advanced."""
        data = memoryview(fetched.records or b"")
        upcoming_aborts = sorted((it.first_offset, it.producer_id) for it in fetched.aborted_transactions or ())
        aborted_producers: set[int] = set()
        records: list[Record] = []
        at, position = 0, self.positions[partition]
        while len(data) - at >= HEADER_SIZE:
            header = parse_batch_header(data, at)
            if header.length + LOG_OVERHEAD > len(data) - at:
                break  # the last batch may be incomplete
            while upcoming_aborts and upcoming_aborts[0][0] <= header.last_offset:
                aborted_producers.add(upcoming_aborts.pop(0)[1])
            if header.is_control:
                if control_record_type(decode_batch(data, header, at)[0]) is ControlRecordType.abort:
                    aborted_producers.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted_producers):
                records += [record for record in decode_batch(data, header, at) if record.offset >= position]
            self.positions[partition] = max(self.positions[partition], header.next_offset)
            at += header.size
        return records

    async def _find_leaders(self) -> None:
        topics = await require_topics(self.client, {topic for topic, _ in self.positions})
        self._leaders = {(topic.name, it.index): it.leader for topic in topics.values() for it in topic.partitions}
