"""Reading records: every partition of some topics, from given offsets on, in the order of each partition."""

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
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, decode_batch
from ottla_operator.kafka import topics
from ottla_operator.kafka.client import KafkaClient, Unreachable, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition

MAX_BYTES: Final = 16 * 1024 * 1024
PARTITION_BYTES: Final = 1024 * 1024
WAIT: Final = i32Timedelta.parse(timedelta(milliseconds=500))
RETRY_S: Final = 0.2

MOVED: Final = frozenset(
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
    """`positions`: the next offset to be read of each partition; moves on as records come. `committed_only`: leaves out records of transactions
    that are open or were aborted."""

    link: KafkaClient
    positions: dict[TopicPartition, int]
    committed_only: bool = True
    _leaders: dict[TopicPartition, int] = field(default_factory=dict)

    async def records(self) -> AsyncIterator[tuple[TopicPartition, list[Record]]]:
        """For ever: the next records of a partition. An empty list is told when a round has brought nothing."""
        while True:
            if not self._leaders:
                await self._look_up()
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for place in self.positions:
                by_leader[self._leaders.get(place, -1)].append(place)
            answers = await asyncio.gather(
                *(self._fetch(leader, places) for leader, places in by_leader.items() if leader >= 0)
            )
            quiet = True
            for place, data in (it for answer in answers for it in answer):
                if records := self._take(place, data):
                    quiet = False
                    yield place, records
            if quiet:
                yield ("", -1), []
                if by_leader.get(-1) or not self._leaders:
                    await asyncio.sleep(RETRY_S)
                    self._leaders.clear()

    async def _fetch(self, leader: int, places: Iterable[TopicPartition]) -> list[tuple[TopicPartition, PartitionData]]:
        by_topic: dict[str, list[FetchPartition]] = defaultdict(list)
        for topic, partition in places:
            by_topic[topic].append(
                FetchPartition(
                    partition=i32(partition),
                    fetch_offset=i64(self.positions[topic, partition]),
                    partition_max_bytes=i32(PARTITION_BYTES),
                )
            )
        request = FetchRequest(
            max_wait=WAIT,
            min_bytes=i32(1),
            max_bytes=i32(MAX_BYTES),
            isolation_level=i8(1 if self.committed_only else 0),
            topics=tuple(
                FetchTopic(topic=TopicName(topic), partitions=tuple(found)) for topic, found in by_topic.items()
            ),
            forgotten_topics_data=(),
        )
        try:
            answer = await self.link.ask(request, broker=leader)
        except Unreachable:
            self._leaders.clear()
            await asyncio.sleep(RETRY_S)
            return []
        raise_for_error(answer.error_code, None, "fetch")
        found: list[tuple[TopicPartition, PartitionData]] = []
        for topic in answer.responses:
            for it in topic.partitions:
                if it.error_code in MOVED:
                    self._leaders.clear()
                    continue
                raise_for_error(
                    it.error_code,
                    None,
                    f"partition {topic.topic}-{it.partition_index} at {self.positions[topic.topic, it.partition_index]}",
                )
                found.append(((topic.topic, it.partition_index), it))
        return found

    def _take(self, place: TopicPartition, told: PartitionData) -> list[Record]:
        """The records of an answer that are not before our position; moves the position."""
        data = memoryview(told.records or b"")
        aborting = sorted((it.first_offset, it.producer_id) for it in told.aborted_transactions or ())
        aborted: set[int] = set()
        found: list[Record] = []
        at, position = 0, self.positions[place]
        while len(data) - at >= HEADER_SIZE:
            header = parse_batch_header(data, at)
            if header.length + LOG_OVERHEAD > len(data) - at:
                break  # the last batch may be cut off
            while aborting and aborting[0][0] <= header.last_offset:
                aborted.add(aborting.pop(0)[1])
            if header.is_control:
                if control_record_type(decode_batch(data, header, at)[0]) is ControlRecordType.abort:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [it for it in decode_batch(data, header, at) if it.offset >= position]
            self.positions[place] = max(self.positions[place], header.next_offset)
            at += header.size
        return found

    async def _look_up(self) -> None:
        found = await topics.describe_topics(self.link, {topic for topic, _ in self.positions})
        if missing := {topic for topic, _ in self.positions} - set(found):
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"there is no topic {', '.join(map(repr, sorted(missing)))}"
            )
        self._leaders = {
            (it.name, partition.index): partition.leader for it in found.values() for partition in it.partitions
        }
