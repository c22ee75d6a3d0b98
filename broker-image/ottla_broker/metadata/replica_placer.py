"""Placement of new partitions: `placement` applied to the brokers of the image."""

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

from ottla_broker.metadata.cells import divide_into_cells
from ottla_broker.metadata.image import BrokerRegistration, MetadataImage
from ottla_broker.metadata.partition_index import PartitionIndex
from ottla_broker.metadata.placement import UsableBroker, assign_replicas, least_loaded_start
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError


def can_start_in_sync(broker: BrokerRegistration) -> bool:
    """True if a new replica on this broker is in sync from the start."""
    return not broker.fenced and not broker.shutting_down


def _to_usable(broker: BrokerRegistration) -> UsableBroker:
    return UsableBroker(broker.id, broker.rack, broker.node)


class DirectoryAssigner:
    """Assigns new replicas to the directory of their broker with the fewest replicas, including
    those assigned before in the same plan."""

    def __init__(self, brokers: Mapping[int, BrokerRegistration], index: PartitionIndex) -> None:
        self._brokers = brokers
        self._existing = index.directory_counts
        self._assigned: Counter[UUID] = Counter()

    def assign_directories(self, replicas: Sequence[int]) -> dict[int, UUID]:
        """Directories by broker, without the brokers whose directories are unknown."""
        assigned = {}
        for broker in replicas:
            if broker in self._brokers and (directories := self._brokers[broker].directories):
                directory = min(directories, key=lambda it: self._existing[it] + self._assigned[it])
                assigned[broker] = directory
                self._assigned[directory] += 1
        return assigned


class ReplicaPlacer:
    """Places the partitions of one plan; each placement takes the earlier ones into account."""

    def __init__(self, image: MetadataImage) -> None:
        self._brokers = image.brokers
        self._cells = divide_into_cells([_to_usable(it) for it in image.brokers.values()])
        self._leader_counts = Counter(image.partition_index.leader_counts)
        self._replica_counts = image.partition_index.replica_counts()
        self._topic_count = len(image.topics)
        self._directories = DirectoryAssigner(image.brokers, image.partition_index)

    def place_partitions(self, partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
        """Replicas of new partitions. Fenced brokers and those that are shutting down are used
        last, and only if the others are too few. Raises INVALID_REPLICATION_FACTOR."""
        brokers = [self._brokers[broker] for broker in sorted(self._brokers)]
        ready = [broker for broker in brokers if can_start_in_sync(broker)]
        if not 1 <= replication_factor <= len(brokers):
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"replication factor {replication_factor}; between 1 and the {len(brokers)} "
                "registered brokers is allowed",
            )
        if not ready:
            raise KafkaError(ErrorCode.invalid_replication_factor, "every registered broker is fenced or shutting down")
        placed = self._place_on(partitions, min(replication_factor, len(ready)), ready)
        if replication_factor > len(ready):
            others = [broker for broker in brokers if not can_start_in_sync(broker)]
            rest = self._place_on(partitions, replication_factor - len(ready), others)
            placed = [first + last for first, last in zip(placed, rest, strict=True)]
        self._leader_counts.update(replicas[0] for replicas in placed)
        self._replica_counts.update(broker for replicas in placed for broker in replicas)
        self._topic_count += 1
        return placed

    def _place_on(
        self, partitions: int, replication_factor: int, brokers: Sequence[BrokerRegistration]
    ) -> list[tuple[int, ...]]:
        candidates = [_to_usable(broker) for broker in brokers]
        start = least_loaded_start(candidates, self._leader_counts, self._cells)
        return assign_replicas(
            partitions,
            replication_factor,
            candidates,
            start=start,
            shift=self._topic_count,
            replica_counts=self._replica_counts,
            cells=self._cells,
        )

    def new_partition(self, topic: UUID, partition: int, replicas: Sequence[int]) -> PartitionRecord:
        """A new partition on these brokers. Its ISR is those that `can_start_in_sync`; the caller
        ensures that there is at least one.
        """
        isr = tuple(broker for broker in replicas if can_start_in_sync(self._brokers[broker]))
        directories = self._directories.assign_directories(replicas)
        return PartitionRecord(
            topic,
            partition,
            replicas=tuple(replicas),
            isr=isr,
            leader=isr[0],
            directories=tuple(directories.values()) if len(directories) == len(replicas) else (),
        )
