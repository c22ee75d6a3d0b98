"""Records that an earlier run of the same lines has written: how a run that was broken off goes on without doubling anything.

A partition holds the records of its lines in their order, so that it is enough to know how many it has, as long as every line goes where it went before.
That holds for keys when they are spread over as many partitions as they were then, even if the topic has more by now: `Notes` remembers how
many those were.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.kafka import offsets, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.consumer import Consumer
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.partitioner import partition_for_key
from ottla_operator.kafka.producer import Producer

SAMPLE = 50  # records at the end of a partition


@dataclass(slots=True)
class Notes:
    """How many partitions each topic had when its first line was written, in a file, or nowhere (`path` None). A topic that was made anew is
    another one."""

    path: Path | None
    _found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            found = json.loads(self.path.read_text()) if self.path else {}
        except (FileNotFoundError, ValueError):
            found = {}
        self._found = found if isinstance(found, dict) else {}

    def partitions(self, topic: topics.TopicDescription) -> int | None:
        match self._found.get(topic.name):
            case {"id": id_, "partitions": int(count)} if id_ == str(topic.id) and 1 <= count <= len(topic.partitions):
                return count
        return None

    def note(self, topic: topics.TopicDescription, count: int) -> None:
        self._found[topic.name] = {"id": str(topic.id), "partitions": count}
        if self.path is not None:
            scratch = self.path.with_name(self.path.name + ".tmp")
            scratch.write_text(json.dumps(self._found, indent=2))
            scratch.replace(self.path)


@dataclass(slots=True)
class LeftOut:
    """`everything`: a topic with any record is done; otherwise as many of each partition are left out as it has. `over`: how many partitions keys are
    spread over, where somebody knows. `records`: left out so far."""

    link: KafkaClient
    producer: Producer
    everything: bool
    notes: Notes
    over: int | None = None
    records: int = 0
    _ends: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    _there: dict[str, bool] = field(default_factory=dict)

    async def prepare(self, name: str) -> None:
        """To be called before a record of the topic is given its place. Failure when it cannot be told where keys went before."""
        if name in self._ends:
            return
        await self.producer.partitions(name)  # makes it, where the cluster makes topics by asking
        topic = (await topics.describe_topics(self.link, [name]))[name]
        ends = await offsets.list_offsets(self.link, [topic], offsets.LATEST)
        if not self.everything:
            count = self.over or self.notes.partitions(topic)
            if count is None:
                count = len(topic.partitions)
                if any(ends.values()):
                    await self._check_keys(topic, ends)
            if count > len(topic.partitions):
                raise CommandError(
                    ExitCode.usage, f"--over {count}: topic {name!r} has {len(topic.partitions)} partitions"
                )
            self.producer.spread_over(name, count)
            self.notes.note(topic, count)
        self._ends[name] = ends
        self._there[name] = any(ends.values())

    def has(self, place: TopicPartition) -> bool:
        """Whether the next record of this place is to be left out."""
        ends = self._ends[place[0]]
        if self.everything:
            there = self._there[place[0]]
        elif there := ends.get(place, 0) > 0:
            ends[place] -= 1
        self.records += there
        return there

    async def _check_keys(self, topic: topics.TopicDescription, ends: dict[TopicPartition, int]) -> None:
        """Looks at records at both ends of each partition: keys that belong elsewhere were written when there were fewer partitions."""
        starts = await offsets.list_offsets(self.link, [topic], offsets.EARLIEST)
        filled = {place: starts[place] for place in ends if starts.get(place, ends[place]) < ends[place]}
        for positions in (filled, {place: max(start, ends[place] - SAMPLE) for place, start in filled.items()}):
            async for place, key in self._keys(positions):
                if partition_for_key(key, len(topic.partitions)) != place[1]:
                    raise CommandError(
                        ExitCode.failed,
                        f"topic {topic.name!r} cannot be resumed: {place[0]}-{place[1]} holds keys that belong elsewhere now that there are "
                        f"{len(topic.partitions)} partitions; say with --over how many there were when the earlier run began",
                    )

    async def _keys(self, positions: dict[TopicPartition, int]) -> AsyncIterator[tuple[TopicPartition, bytes]]:
        """Keys of one answer for each partition."""
        waiting = set(positions)
        async for place, records in Consumer(self.link, dict(positions)).records():
            for record in records if place in waiting else ():
                if record.key is not None:
                    yield place, record.key
            waiting.discard(place)
            if not waiting or not records:
                return
