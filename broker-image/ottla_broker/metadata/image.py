"""What the cluster is, as the metadata log tells it: the fold of every committed record.

An image is changed only by `apply`, which also says what changed, so that a broker acts on differences and never compares worlds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from uuid import UUID

from ottla_broker.metadata.placed import ReplicaIndex
from ottla_broker.metadata.records import (
    AppendedPartitionRecord,
    AppendedSourceRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    Endpoint,
    LeaderChangeRecord,
    MetadataRecord,
    MirroredPartitionRecord,
    MirroredTopicRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
MIRROR_RESOURCE = 101  # Kafka's own kinds are powers of two
MIRRORED_TOPIC_RESOURCE = 102

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(slots=True)
class TopicImage:
    name: str
    id: UUID
    partitions: dict[int, PartitionRecord] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    id: int
    epoch: int
    incarnation: UUID
    endpoints: dict[str, Endpoint]
    rack: str | None
    directories: tuple[UUID, ...]
    fenced: bool
    shutting_down: bool = False
    http: str | None = None


@dataclass(slots=True)
class MetadataDelta:
    """What a run of records changed. Topics by name; configs by (resource type, name)."""

    created_topics: list[str] = field(default_factory=list)
    deleted_topics: list[TopicImage] = field(default_factory=list)
    changed_partitions: set[tuple[str, int]] = field(default_factory=set)
    changed_configs: set[tuple[int, str]] = field(default_factory=set)
    changed_brokers: set[int] = field(default_factory=set)
    changed_mirrors: set[str] = field(
        default_factory=set
    )  # topics of which something is said as copies of another cluster's
    controller_changed: bool = False


@dataclass(slots=True)
class MetadataImage:
    topics: dict[str, TopicImage] = field(default_factory=dict)
    topic_names: dict[UUID, str] = field(default_factory=dict)
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    mirrored_topics: dict[UUID, MirroredTopicRecord] = field(default_factory=dict)
    mirrored_partitions: dict[tuple[UUID, int], MirroredPartitionRecord] = field(default_factory=dict)
    appended_sources: dict[UUID, dict[UUID, AppendedSourceRecord]] = field(default_factory=dict)  # by topic, by source
    appended_partitions: dict[tuple[UUID, UUID, int], AppendedPartitionRecord] = field(default_factory=dict)
    next_producer_id: int = 0
    controller_id: int = -1
    previous_controller_id: int = -1  # who had the office before, perhaps the same
    end_offset: int = 0  # offset after the last record applied
    _replica_index: ReplicaIndex | None = None

    def apply_records(self, records: Iterable[tuple[int, MetadataRecord]]) -> MetadataDelta:
        """Applies (offset, record) pairs in order."""
        changes = MetadataDelta()
        for offset, record in records:
            self._apply(offset, record, changes)
            self.end_offset = offset + 1
        return changes

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def topic_config(self, name: str) -> dict[str, str]:
        return self.configs.get((TOPIC_RESOURCE, name), {})

    def active_mirror(self, topic_id: UUID) -> MirroredTopicRecord | None:
        """What is said of a topic that takes no other records than its source's."""
        known = self.mirrored_topics.get(topic_id)
        return None if known is None or known.failed_over else known

    def is_writable(self, topic_id: UUID, partition: int) -> bool:
        """Whether producers may write to it: it is no copy, or has failed over, and is known to end here as its last leader left it."""
        if topic_id not in self.mirrored_topics:
            return True
        known = self.mirrored_partitions.get((topic_id, partition))
        return self.mirrored_topics[topic_id].failed_over and known is not None and known.end >= 0

    def partition(self, topic_id: UUID, partition: int) -> PartitionRecord | None:
        topic = self.topic_by_id(topic_id)
        return None if topic is None else topic.partitions.get(partition)

    @property
    def replica_index(self) -> ReplicaIndex:
        """What lies on and is led by which broker. Counted at the first question and kept from then on: only a controller asks."""
        if self._replica_index is None:
            self._replica_index = ReplicaIndex()
            for topic in self.topics.values():
                for state in topic.partitions.values():
                    self._replica_index.update(None, state)
        return self._replica_index

    def partitions_on_broker(self, broker: int) -> list[PartitionRecord]:
        """The partitions that have a replica on this broker."""
        found = (
            self.partition(topic_id, partition) for topic_id, partition in self.replica_index.partitions_on(broker)
        )
        return [state for state in found if state is not None]

    def broker_addresses(self, listener: str) -> list[tuple[str, int]]:
        """Of all brokers that have such a listener."""
        endpoints = [broker.endpoints.get(listener) for broker in self.brokers.values()]
        return [(one.host, one.port) for one in endpoints if one is not None]

    def unfenced_brokers(self) -> list[BrokerRegistration]:
        return [self.brokers[broker] for broker in sorted(self.brokers) if not self.brokers[broker].fenced]

    def _apply(self, offset: int, record: MetadataRecord, changes: MetadataDelta) -> None:
        match record:
            case PartitionRecord():
                name = self.topic_names[record.topic]
                partitions = self.topics[name].partitions
                if self._replica_index is not None:
                    self._replica_index.update(partitions.get(record.partition), record)
                partitions[record.partition] = record
                changes.changed_partitions.add((name, record.partition))
            case TopicRecord():
                self.topics[record.name] = TopicImage(record.name, record.id)
                self.topic_names[record.id] = record.name
                changes.created_topics.append(record.name)
            case RemoveTopicRecord():
                name = self.topic_names.pop(record.id)
                removed = self.topics.pop(name)
                if self._replica_index is not None:
                    for state in removed.partitions.values():
                        self._replica_index.update(state, None)
                changes.deleted_topics.append(removed)
                self.configs.pop((TOPIC_RESOURCE, name), None)
                self.mirrored_topics.pop(record.id, None)
                sources = self.appended_sources.pop(record.id, {})
                for partition in removed.partitions:
                    self.mirrored_partitions.pop((record.id, partition), None)
                    for source in sources:
                        self.appended_partitions.pop((record.id, source, partition), None)
            case ConfigRecord():
                self._apply_config(record)
                changes.changed_configs.add((record.resource_type, record.name))
            case ProducerIdsRecord():
                self.next_producer_id = record.next
            case MirroredTopicRecord():
                self.mirrored_topics[record.topic] = record
                changes.changed_mirrors.add(self.topic_names[record.topic])
            case MirroredPartitionRecord():
                self.mirrored_partitions[record.topic, record.partition] = record
                changes.changed_mirrors.add(self.topic_names[record.topic])
            case AppendedSourceRecord():
                self.appended_sources.setdefault(record.topic, {})[record.source_id] = record
                changes.changed_mirrors.add(self.topic_names[record.topic])
            case AppendedPartitionRecord():
                self.appended_partitions[record.topic, record.source_id, record.partition] = record
                changes.changed_mirrors.add(self.topic_names[record.topic])
            case RegisterBrokerRecord():
                self.brokers[record.broker] = BrokerRegistration(
                    record.broker,
                    offset if record.epoch < 0 else record.epoch,
                    record.incarnation,
                    record.endpoints,
                    record.rack,
                    record.directories,
                    fenced=True,
                    http=record.http,
                )
                changes.changed_brokers.add(record.broker)
            case BrokerRegistrationChangeRecord():
                self._apply_registration_change(record)
                changes.changed_brokers.add(record.broker)
            case LeaderChangeRecord():
                self.previous_controller_id, self.controller_id = self.controller_id, record.broker
                changes.controller_changed = True
            case UnregisterBrokerRecord():
                self.brokers.pop(record.broker, None)
                changes.changed_brokers.add(record.broker)

    def _apply_config(self, record: ConfigRecord) -> None:
        resource = self.configs.setdefault((record.resource_type, record.name), {})
        if record.value is None:
            resource.pop(record.key, None)
        else:
            resource[record.key] = record.value
        if not resource:
            del self.configs[record.resource_type, record.name]

    def _apply_registration_change(self, change: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(change.broker)
        if broker is not None and broker.epoch == change.epoch:
            self.brokers[change.broker] = replace(
                broker,
                fenced=change.fenced,
                shutting_down=change.shutting_down,
                directories=broker.directories if change.directories is None else change.directories,
            )
