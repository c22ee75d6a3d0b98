"""Counts of all partitions of the cluster, as the broker's metadata image has them."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.console.waiting_partitions import is_waiting
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord

PARTITIONS_PER_SLICE: Final = 500
"""Partitions that a slice visits before other tasks may run: about 0.5 ms."""
MAX_NAMED: Final = 50
"""Partitions of each kind that are named; all are counted."""
MIN_INTERVAL_S: Final = 2.0
"""Shortest time between two counts: browsers that ask more often get the last one."""

MinInsync = Callable[[str], int]
"""min.insync.replicas of a topic."""


@dataclass(slots=True)
class PartitionCensus:
    """`offline` (no leader), `below_min_isr`, `under_replicated` and `reassigned`: the first
    MAX_NAMED partitions of each kind; `counts` has the number of all of each kind. A partition is
    counted in the first of the first three kinds that applies. `under_replicated` leaves out those
    to which a reassignment adds replicas. `leaders`, `replicas`: numbers by broker. `behind`: by
    broker, the number of its replicas that are not in sync and are not being added; `behind_named`:
    the first MAX_NAMED of them.
    """

    topics: int = 0
    partitions: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    offline: list[TopicPartition] = field(default_factory=list)
    below_min_isr: list[TopicPartition] = field(default_factory=list)
    under_replicated: list[TopicPartition] = field(default_factory=list)
    reassigned: list[tuple[str, PartitionRecord]] = field(default_factory=list)
    leaders: Counter[int] = field(default_factory=Counter)
    replicas: Counter[int] = field(default_factory=Counter)
    behind: Counter[int] = field(default_factory=Counter)
    behind_named: defaultdict[int, list[TopicPartition]] = field(default_factory=lambda: defaultdict(list))

    def add_topic(self, topic: TopicImage, min_insync: MinInsync) -> None:
        self.topics += 1
        self.partitions += len(topic.partitions)
        for index, state in topic.partitions.items():
            self.replicas.update(state.replicas)
            if state.leader != NO_LEADER:
                self.leaders[state.leader] += 1
            if is_waiting(state):
                self._add_waiting(topic.name, index, state, min_insync)

    def _add_waiting(self, topic: str, index: int, state: PartitionRecord, min_insync: MinInsync) -> None:
        if state.leader == NO_LEADER:
            self._count("offline", self.offline, (topic, index))
        elif len(state.isr) < min(min_insync(topic), len(state.replicas)):
            self._count("below_min_isr", self.below_min_isr, (topic, index))
        elif len(state.isr) < len(state.replicas) and not state.adding:
            self._count("under_replicated", self.under_replicated, (topic, index))
        if state.adding or state.removing:
            self.counts["reassigned"] += 1
            if len(self.reassigned) < MAX_NAMED:
                self.reassigned.append((topic, state))
        for broker in state.replicas:
            if broker not in state.isr and broker not in state.adding:
                self.behind[broker] += 1
                if len(self.behind_named[broker]) < MAX_NAMED:
                    self.behind_named[broker].append((topic, index))

    def _count(self, kind: str, named: list[TopicPartition], partition: TopicPartition) -> None:
        self.counts[kind] += 1
        if len(named) < MAX_NAMED:
            named.append(partition)


async def take_census(image: MetadataImage, min_insync: MinInsync) -> PartitionCensus:
    """Counts the partitions of the image. Other tasks run in between and may change the image."""
    census, counted = PartitionCensus(), 0
    for topic in list(image.topics.values()):
        census.add_topic(topic, min_insync)
        if census.partitions - counted >= PARTITIONS_PER_SLICE:
            counted = census.partitions
            await asyncio.sleep(0)
    return census


class CensusTaker:
    """Keeps a census, and takes another one when it is asked for and the metadata have changed, at
    most every MIN_INTERVAL_S.
    """

    def __init__(self, image: MetadataImage, min_insync: MinInsync) -> None:
        self._image = image
        self._min_insync = min_insync
        self._taken: tuple[float, int, PartitionCensus] | None = None
        self._lock = asyncio.Lock()

    async def current(self) -> PartitionCensus:
        async with self._lock:
            now_s, offset = asyncio.get_running_loop().time(), self._image.end_offset
            if self._taken is not None and (offset == self._taken[1] or now_s - self._taken[0] < MIN_INTERVAL_S):
                return self._taken[2]
            census = await take_census(self._image, self._min_insync)
            self._taken = (now_s, offset, census)
            return census
