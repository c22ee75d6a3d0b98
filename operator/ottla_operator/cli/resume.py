"""`ottla produce --resume` and `--if-empty`: skip the records that an earlier run has written.

A partition gets the records of its lines in order, so its log end offset is the number of its lines
to skip. It also counts records that have been deleted since. Each line has to go to the same
partition again. Lines with keys do if partitions are counted as in the earlier run, even if the
topic has more by now; PartitionCounts remembers that number.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla_broker.wire.partitioner import partition_for_key
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.formatting import format_count
from ottla_operator.kafka import offsets, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.consumer import Consumer
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.producer import DELIVERY_TIMEOUT_S, RETRIABLE_ERRORS, RETRY_PAUSE_S, Producer

SAMPLED_RECORDS: Final = 50
"""Records at the end of a partition whose keys are checked."""


@dataclass(slots=True)
class PartitionCounts:
    """Number of partitions of each topic when its first record was written, in a file if there is a
    path.

    The number of a topic that was re-created is forgotten, because the topic has another id.
    """

    path: Path | None
    _counts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            counts = json.loads(self.path.read_text()) if self.path else {}
        except (FileNotFoundError, ValueError):
            counts = {}
        self._counts = counts if isinstance(counts, dict) else {}

    def get(self, topic: topics.TopicDescription) -> int | None:
        """None if no count is stored for this topic, or it has fewer partitions than stored."""
        match self._counts.get(topic.name):
            case {"id": id_, "partitions": int(count)} if id_ == str(topic.id) and 1 <= count <= len(topic.partitions):
                return count
        return None

    def store(self, topic: topics.TopicDescription, count: int) -> None:
        self._counts[topic.name] = {"id": str(topic.id), "partitions": count}
        if self.path is not None:
            temporary = self.path.with_name(self.path.name + ".tmp")
            temporary.write_text(json.dumps(self._counts, indent=2))
            temporary.replace(self.path)


@dataclass(slots=True)
class ExistingRecords:
    """Decides which records to skip.

    `if_empty`: skip all records of topics that have, or had, records. Otherwise skip as many of
    each partition as its log end offset. `partitions`: number of partitions of the earlier run, if
    known. `skipped`: number of records skipped so far.
    """

    client: KafkaClient
    producer: Producer
    if_empty: bool
    partition_counts: PartitionCounts
    partitions: int | None = None
    skipped: int = 0
    _remaining: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    _has_records: dict[str, bool] = field(default_factory=dict)

    async def prepare(self, name: str) -> None:
        """Called before the partition of a record is chosen. Raises CommandError if `partitions` is
        more than the topic has, or if no number is known and keys are not where the present number
        puts them. Raises KafkaError if a partition gets no leader: which of its records exist is
        unknown.
        """
        if name in self._remaining:
            return
        await self.producer.count_partitions(name)  # creates the topic where the brokers create topics automatically
        topic, ends = await self._list_ends(name)
        if not self.if_empty:
            count = self.partitions or self.partition_counts.get(topic)
            if count is None:
                count = len(topic.partitions)
                if any(ends.values()):
                    await self._check_keys(topic, ends)
            if count > len(topic.partitions):
                message = f"--partitions {count}: topic {name!r} has {format_count(len(topic.partitions), 'partition')}"
                raise CommandError(ExitCode.usage, message)
            self.producer.fix_partitions(name, count)
            self.partition_counts.store(topic, count)
        self._remaining[name] = ends
        self._has_records[name] = any(ends.values())

    def skip(self, partition: TopicPartition) -> bool:
        """Counts the next record of the partition. Returns True if it is to be skipped."""
        remaining = self._remaining[partition[0]]
        if self.if_empty:
            exists = self._has_records[partition[0]]
        elif exists := remaining.get(partition, 0) > 0:
            remaining[partition] -= 1
        self.skipped += exists
        return exists

    async def _list_ends(self, name: str) -> tuple[topics.TopicDescription, dict[TopicPartition, int]]:
        """The topic, and the log end of each of its partitions. Waits for leaders as long as the
        producer does. Raises KafkaError.
        """
        deadline = time.monotonic() + DELIVERY_TIMEOUT_S
        while True:
            topic = await topics.describe_topic(self.client, name)
            try:
                return topic, await offsets.require_offsets(self.client, topic, LATEST_TIMESTAMP)
            except KafkaError as error:
                if error.code not in RETRIABLE_ERRORS or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _check_keys(self, topic: topics.TopicDescription, ends: dict[TopicPartition, int]) -> None:
        """Checks that the keys at both ends of each partition belong to it. Raises CommandError for
        a key of another partition: it was written when the topic had fewer partitions.
        """
        starts = await offsets.list_offsets(self.client, [topic], EARLIEST_TIMESTAMP)
        filled = {it: starts[it] for it in ends if starts.get(it, ends[it]) < ends[it]}
        for positions in (filled, {it: max(start, ends[it] - SAMPLED_RECORDS) for it, start in filled.items()}):
            async for partition, key in self._read_keys(positions):
                if partition_for_key(key, len(topic.partitions)) != partition[1]:
                    raise CommandError(
                        ExitCode.failed,
                        f"topic {topic.name!r} cannot be resumed: {partition[0]}-{partition[1]} has keys of other "
                        f"partitions, now that there are {len(topic.partitions)}; set --partitions to the number of "
                        "partitions when the earlier run started",
                    )

    async def _read_keys(self, positions: dict[TopicPartition, int]) -> AsyncIterator[tuple[TopicPartition, bytes]]:
        """Keys of the records of one fetch from each partition."""
        waiting = set(positions)
        async for partition, records in Consumer(self.client, dict(positions)).records():
            for record in records if partition in waiting else ():
                if record.key is not None:
                    yield partition, record.key
            waiting.discard(partition)
            if not waiting or not records:
                return
