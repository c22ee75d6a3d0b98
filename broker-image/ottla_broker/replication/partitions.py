"""The partitions that this broker hosts, by name, and the protocol's errors for all others."""

from collections.abc import Iterator
from uuid import UUID

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.errors import ErrorCode, KafkaError

ANY_EPOCH = -1


class Partitions:
    """`removed_count`: how many partitions were removed since the broker started."""

    def __init__(self, image: MetadataImage) -> None:
        self.removed_count = 0
        self._image = image
        self._hosted: dict[tuple[str, int], Partition] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._hosted.values())

    def __len__(self) -> int:
        return len(self._hosted)

    def add(self, partition: Partition) -> None:
        self._hosted[partition.topic, partition.partition] = partition

    def remove(self, topic: str, partition: int) -> Partition | None:
        self.removed_count += 1
        return self._hosted.pop((topic, partition), None)

    def get(self, topic: str, partition: int) -> Partition | None:
        return self._hosted.get((topic, partition))

    def leader(self, topic: str, partition: int, epoch: int = ANY_EPOCH, topic_id: UUID | None = None) -> Partition:
        """The partition if this broker leads it in `epoch`. Raises KafkaError like `replica`, and
        NOT_LEADER_OR_FOLLOWER also when this broker has a replica and does not lead."""
        found = self.replica(topic, partition, epoch, topic_id)
        if not found.is_leader:
            raise KafkaError(
                ErrorCode.not_leader_or_follower,
                f"this broker does not lead {topic}-{partition}; its metadata name broker "
                f"{found.registration.leader} (-1: none)",
            )
        return found

    def record_misdirected(self, topic: str | UUID, partition: int, records: Buffer) -> None:
        """Remembers that a client's records were rejected because another broker leads. Raises
        UNKNOWN_TOPIC_ID."""
        name = topic if isinstance(topic, str) else self.topic_name(topic)
        if (found := self._hosted.get((name, partition))) is not None:
            found.misdirected_batches.record_rejection(records, KafkaError(ErrorCode.not_leader_or_follower))

    def replica(self, topic: str, partition: int, epoch: int = ANY_EPOCH, topic_id: UUID | None = None) -> Partition:
        """The partition if this broker has a replica of it, whether it leads or follows, and knows
        `epoch` as the leader's.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_TOPIC_ID (rule 13),
        NOT_LEADER_OR_FOLLOWER (no replica here), FENCED_LEADER_EPOCH (the caller is behind),
        UNKNOWN_LEADER_EPOCH (we are), KAFKA_STORAGE_ERROR (its disk failed)."""
        found = self._hosted.get((topic, partition))
        if found is None:
            known = self._image.topics.get(topic)
            if known is None or partition not in known.partitions:
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no partition {topic}-{partition}")
            raise KafkaError(ErrorCode.not_leader_or_follower, f"{topic}-{partition} has no replica here")
        if topic_id is not None and topic_id != found.topic_id:
            raise KafkaError(
                ErrorCode.inconsistent_topic_id, f"topic {topic!r} is another topic now: its id has changed"
            )
        if epoch != ANY_EPOCH and epoch != found.registration.leader_epoch:
            code = (
                ErrorCode.fenced_leader_epoch
                if epoch < found.registration.leader_epoch
                else ErrorCode.unknown_leader_epoch
            )
            raise KafkaError(
                code, f"{topic}-{partition}: leader epoch {epoch}, here it is {found.registration.leader_epoch}"
            )
        if found.log.failure is not None:
            raise found.log.failure
        return found

    def topic_name(self, topic_id: UUID) -> str:
        """Raises UNKNOWN_TOPIC_ID when no topic has that id."""
        name = self._image.topic_names.get(topic_id)
        if name is None:
            raise KafkaError(ErrorCode.unknown_topic_id, "no topic has that id")
        return name
