"""Where new partitions go in this cluster: `placement` over the brokers as the image shows them."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from ottla_broker.metadata.image import BrokerRegistration, MetadataImage
from ottla_broker.metadata.placed import DirectoryAssigner
from ottla_broker.metadata.placement import UsableBroker, assign_replicas, least_loaded_start
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError


def can_start_in_sync(broker: BrokerRegistration) -> bool:
    """Whether a new replica there is in sync from its beginning."""
    return not broker.fenced and not broker.shutting_down


class ReplicaPlacer:
    """For one plan: what it places counts for what it places next."""

    def __init__(self, image: MetadataImage) -> None:
        self._brokers = image.brokers
        self._leaders = Counter(image.replica_index.leader_counts)
        self._held = image.replica_index.replica_counts()
        self._topics = len(image.topics)
        self._directories = DirectoryAssigner(image.brokers, image.replica_index)

    def place_partitions(self, partitions: int, factor: int) -> list[tuple[int, ...]]:
        """Replicas of new partitions. Brokers that are fenced or about to stop come last, and only where the others are too few.
        INVALID_REPLICATION_FACTOR."""
        known = [self._brokers[broker] for broker in sorted(self._brokers)]
        living = [broker for broker in known if can_start_in_sync(broker)]
        if not 1 <= factor <= len(known):
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"replication factor {factor}; between 1 and the {len(known)} registered brokers is allowed",
            )
        if not living:
            raise KafkaError(ErrorCode.invalid_replication_factor, "every registered broker is fenced or about to stop")
        placed = self._place_on(partitions, min(factor, len(living)), living)
        if factor > len(living):
            dead = [broker for broker in known if not can_start_in_sync(broker)]
            rest = self._place_on(partitions, factor - len(living), dead)
            placed = [first + last for first, last in zip(placed, rest, strict=True)]
        self._leaders.update(replicas[0] for replicas in placed)
        self._held.update(broker for replicas in placed for broker in replicas)
        self._topics += 1
        return placed

    def _place_on(self, partitions: int, factor: int, brokers: Sequence[BrokerRegistration]) -> list[tuple[int, ...]]:
        places = [UsableBroker(broker.id, broker.rack) for broker in brokers]
        start = least_loaded_start(places, self._leaders)
        return assign_replicas(partitions, factor, places, start=start, shift=self._topics, held=self._held)

    def new_partition(self, topic: UUID, partition: int, replicas: Sequence[int]) -> PartitionRecord:
        """A new partition on these brokers, one of which lives. Those that do not are not in sync, and catch up when they come."""
        members = tuple(replicas)
        isr = tuple(broker for broker in members if can_start_in_sync(self._brokers[broker]))
        directories = self._directories.assign_directories(members)
        return PartitionRecord(
            topic,
            partition,
            replicas=members,
            isr=isr,
            leader=isr[0],
            directories=tuple(directories.values()) if len(directories) == len(members) else (),
        )
