"""Where partitions lie: for each broker its replicas, and how many it leads. Kept in step with the image, so that what concerns one broker
costs what that broker has, and not what the cluster has."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from ottla_broker.metadata.records import NO_LEADER, PartitionRecord

TopicIdPartition = tuple[UUID, int]


class ReplicaIndex:
    """`leaders`: how many partitions each broker leads; `in_directory`: how many replicas each directory holds. Keys are (topic id,
    partition), in the order in which they came."""

    __slots__ = ("_on", "directory_counts", "leader_counts")

    def __init__(self) -> None:
        self._on: dict[int, dict[TopicIdPartition, None]] = {}
        self.leader_counts: Counter[int] = Counter()
        self.directory_counts: Counter[UUID] = Counter()

    def partitions_on(self, broker: int) -> Collection[TopicIdPartition]:
        return self._on.get(broker, {})

    def replica_counts(self) -> Counter[int]:
        """How many replicas each broker has."""
        return Counter({broker: len(keys) for broker, keys in self._on.items()})

    def update(self, old: PartitionRecord | None, new: PartitionRecord | None) -> None:
        """One partition's state became another; None: it was not, or is no more."""
        before, after = (() if old is None else old.replicas), (() if new is None else new.replicas)
        state = new or old
        if before != after and state is not None:
            key = (state.topic, state.partition)
            for broker in before:
                if broker not in after:
                    del self._on[broker][key]
            for broker in after:
                self._on.setdefault(broker, {})[key] = None
        for one, step in ((old, -1), (new, 1)):
            if one is not None:
                if one.leader != NO_LEADER:
                    self.leader_counts[one.leader] += step
                if old is None or new is None or old.directories != new.directories:
                    for directory in one.directories:
                        self.directory_counts[directory] += step


class HasDirectories(Protocol):
    @property
    def directories(self) -> Sequence[UUID]: ...


class DirectoryAssigner:
    """Gives new replicas a directory each: that of their broker which has the fewest, counting what was given before in the same plan."""

    def __init__(self, brokers: Mapping[int, HasDirectories], placed: ReplicaIndex) -> None:
        self._brokers = brokers
        self._held = placed.directory_counts
        self._given: Counter[UUID] = Counter()

    def assign_directories(self, replicas: Sequence[int]) -> dict[int, UUID]:
        """By broker; one whose directories are not known is left out."""
        found = {}
        for broker in replicas:
            if broker in self._brokers and (has := self._brokers[broker].directories):
                found[broker] = min(has, key=lambda directory: self._held[directory] + self._given[directory])
                self._given[found[broker]] += 1
        return found
