"""The cluster's metadata in memory: the result of all committed records.

An image is changed only by `apply_records` and `replace_with`, which return what changed, so that a
broker acts on differences and never compares images.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ottla_broker.metadata.features import Feature
from ottla_broker.metadata.partition_index import PartitionIndex, TopicIdPartition
from ottla_broker.metadata.records import (
    NO_LEADER,
    AccessControlEntryRecord,
    AppendedPartitionRecord,
    AppendedSourceRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    Endpoint,
    FeatureLevelRecord,
    LeaderChangeRecord,
    MetadataRecord,
    MirroredPartitionRecord,
    MirroredTopicRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from ottla_broker.security.acls import AccessControlEntry
from ottla_broker.security.client_quotas import QuotaEntity
from ottla_broker.security.delegation_tokens import DelegationToken
from ottla_broker.security.scram import ScramCredential

K = TypeVar("K")
V = TypeVar("V")

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32
MIRROR_RESOURCE = 101  # Kafka's own resource types are powers of two
MIRRORED_TOPIC_RESOURCE = 102
CREDENTIALS_RESOURCE = 103

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
SCHEMAS_TOPIC = "_schemas"
"""The topic of the schema registry. It is not internal: other registries write it as clients."""


@dataclass(slots=True)
class TopicImage:
    """A topic with its partitions by number."""

    name: str
    id: UUID
    partitions: dict[int, PartitionRecord] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class BrokerRegistration(msgspec.Struct, frozen=True):
    """A registered broker. `endpoints`: by listener name; `directories`: ids of its log.dirs that
    have not failed; `http`: host:port of its `http.listener`, None if it has none; `node`: its
    broker.node.
    """

    id: int
    epoch: int
    incarnation: UUID
    endpoints: dict[str, Endpoint]
    rack: str | None
    directories: tuple[UUID, ...]
    fenced: bool
    shutting_down: bool = False
    http: str | None = None
    node: str | None = None

    def to_records(self) -> list[MetadataRecord]:
        """The records of this broker in a snapshot."""
        registration = RegisterBrokerRecord(
            self.id, self.incarnation, self.endpoints, self.rack, self.directories, self.http, self.epoch, self.node
        )
        change = BrokerRegistrationChangeRecord(self.id, self.epoch, self.fenced, self.shutting_down)
        return [registration, change]


@dataclass(slots=True)
class MetadataDelta:
    """The changes by a sequence of records. Topics by name, partitions by (topic name, number),
    configs by (resource type, name), brokers and access control entries by id.
    """

    created_topics: list[str] = field(default_factory=list)
    deleted_topics: list[TopicImage] = field(default_factory=list)
    changed_partitions: set[tuple[str, int]] = field(default_factory=set)
    changed_configs: set[tuple[int, str]] = field(default_factory=set)
    changed_brokers: set[int] = field(default_factory=set)
    changed_mirrored_topics: set[str] = field(default_factory=set)  # those with changed records of mirrors or sources
    changed_acls: set[UUID] = field(default_factory=set)
    client_quotas_changed: bool = False
    logins_removed: bool = False  # SCRAM credentials, delegation tokens
    controller_changed: bool = False


@dataclass(slots=True)
class MetadataImage:
    """Topics by name; configs by (resource type, name); mirrored topics by topic id and their
    partitions by (topic id, number); appended sources by topic id and source id and their
    partitions by (topic id, source id, number).
    """

    topics: dict[str, TopicImage] = field(default_factory=dict)
    topic_names: dict[UUID, str] = field(default_factory=dict)
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    mirrored_topics: dict[UUID, MirroredTopicRecord] = field(default_factory=dict)
    mirrored_partitions: dict[tuple[UUID, int], MirroredPartitionRecord] = field(default_factory=dict)
    appended_sources: dict[UUID, dict[UUID, AppendedSourceRecord]] = field(default_factory=dict)
    appended_partitions: dict[tuple[UUID, UUID, int], AppendedPartitionRecord] = field(default_factory=dict)
    acls: dict[UUID, AccessControlEntry] = field(default_factory=dict)
    scram_credentials: dict[tuple[str, int], ScramCredential] = field(default_factory=dict)  # by user, mechanism
    mirrored_credentials: dict[tuple[str, int], str] = field(default_factory=dict)  # → the mirror that has copied it
    delegation_tokens: dict[str, DelegationToken] = field(default_factory=dict)  # by id
    client_quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    next_producer_id: int = 0
    feature_levels: dict[str, int] = field(default_factory=dict)  # as recorded; others have their default
    controller_id: int = -1
    previous_controller_id: int = -1  # of the previous epoch; may be the same broker
    end_offset: int = 0  # offset after the last record applied
    _partition_index: PartitionIndex | None = None

    def apply_records(self, records: Iterable[tuple[int, MetadataRecord]]) -> MetadataDelta:
        """Applies (offset, record) pairs in order."""
        delta = MetadataDelta()
        for offset, record in records:
            self._apply(offset, record, delta)
            self.end_offset = offset + 1
        return delta

    def replace_with(self, other: "MetadataImage") -> MetadataDelta:
        """Takes over the state of `other`, which must not be used afterwards. The result names all
        partitions, configs, brokers and access control entries, whether they changed or not.
        """
        delta = MetadataDelta(
            created_topics=[name for name, topic in other.topics.items() if topic.id not in self.topic_names],
            deleted_topics=[topic for topic in self.topics.values() if topic.id not in other.topic_names],
            changed_partitions={(name, index) for name, topic in other.topics.items() for index in topic.partitions},
            changed_configs=self.configs.keys() | other.configs.keys(),
            changed_brokers=self.brokers.keys() | other.brokers.keys(),
            changed_mirrored_topics={
                other.topic_names[topic] for topic in other.mirrored_topics.keys() | other.appended_sources.keys()
            },
            changed_acls=self.acls.keys() | other.acls.keys(),
            client_quotas_changed=self.client_quotas != other.client_quotas,
            logins_removed=not (
                self.scram_credentials.keys() <= other.scram_credentials.keys()
                and self.delegation_tokens.keys() <= other.delegation_tokens.keys()
            ),
            controller_changed=True,  # the same broker may have been elected again
        )
        for attribute in fields(self):
            setattr(self, attribute.name, getattr(other, attribute.name))
        return delta

    def to_records(self, epoch: int) -> list[MetadataRecord]:
        """Records from which an equal image results: the content of a snapshot. `epoch`: that of
        the last record applied. Copies one reference for each partition, so that it may run on the
        event loop."""
        records: list[MetadataRecord] = [
            LeaderChangeRecord(broker, epoch)
            for broker in (self.previous_controller_id, self.controller_id)
            if broker != NO_LEADER
        ]
        for broker in self.brokers.values():
            records += broker.to_records()
        for topic in self.topics.values():
            records.append(TopicRecord(topic.name, topic.id))
            records += topic.partitions.values()
        for (resource_type, name), config in self.configs.items():
            records += [ConfigRecord(resource_type, name, key, value) for key, value in config.items()]
        records += self.mirrored_topics.values()
        records += self.mirrored_partitions.values()
        records += (source for sources in self.appended_sources.values() for source in sources.values())
        records += self.appended_partitions.values()
        records += [AccessControlEntryRecord(entry_id, entry) for entry_id, entry in self.acls.items()]
        records += [
            UserScramCredentialRecord(name, mechanism, credential, self.mirrored_credentials.get((name, mechanism), ""))
            for (name, mechanism), credential in self.scram_credentials.items()
        ]
        records += [DelegationTokenRecord(token) for token in self.delegation_tokens.values()]
        for entity, quotas in self.client_quotas.items():
            records += [ClientQuotaRecord(entity, key, value) for key, value in quotas.items()]
        if self.next_producer_id:
            records.append(ProducerIdsRecord(self.next_producer_id))
        records += [FeatureLevelRecord(name, level) for name, level in self.feature_levels.items()]
        return records

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def topic_config(self, name: str) -> dict[str, str]:
        return self.configs.get((TOPIC_RESOURCE, name), {})

    def active_mirror(self, topic_id: UUID) -> MirroredTopicRecord | None:
        """The record of a mirrored topic that has not failed over, which takes only its source's
        records. None for any other topic.
        """
        mirror = self.mirrored_topics.get(topic_id)
        return None if mirror is None or mirror.failed_over else mirror

    def is_writable(self, topic_id: UUID, partition: int) -> bool:
        """True if producers may write to the partition: the topic is not mirrored, or has failed
        over and the end of the mirrored records is known."""
        if topic_id not in self.mirrored_topics:
            return True
        mirrored = self.mirrored_partitions.get((topic_id, partition))
        return self.mirrored_topics[topic_id].failed_over and mirrored is not None and mirrored.end >= 0

    def partition(self, topic_id: UUID, partition: int) -> PartitionRecord | None:
        topic = self.topic_by_id(topic_id)
        return None if topic is None else topic.partitions.get(partition)

    def feature_level(self, feature: Feature) -> int:
        """The finalized level."""
        return self.feature_levels.get(feature.name, feature.default)

    @property
    def partition_index(self) -> PartitionIndex:
        """The complete index. A controller uses it; it is kept up to date from the first use on."""
        index = self._begin_partition_index()
        index.add_topics()
        return index

    def index_partitions(self, max_partitions: int) -> bool:
        """Continues the index by topics with about `max_partitions` partitions in all. Returns True
        if it is complete.
        """
        index = self._begin_partition_index()
        index.add_topics(max_partitions)
        return index.is_complete

    def _begin_partition_index(self) -> PartitionIndex:
        if self._partition_index is None:
            self._partition_index = PartitionIndex((topic.id, topic.partitions) for topic in self.topics.values())
        return self._partition_index

    def partitions_on_broker(self, broker: int) -> list[PartitionRecord]:
        """The partitions that have a replica on this broker."""
        return self.find_partitions(self.partition_index.partitions_on(broker))

    def find_partitions(self, keys: Iterable[TopicIdPartition]) -> list[PartitionRecord]:
        """The partitions with these keys that exist."""
        states = (self.partition(*key) for key in keys)
        return [state for state in states if state is not None]

    def broker_addresses(self, listener: str) -> list[tuple[str, int]]:
        """(host, port) of all brokers with this listener."""
        endpoints = [broker.endpoints.get(listener) for broker in self.brokers.values()]
        return [(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint is not None]

    def unfenced_brokers(self) -> list[BrokerRegistration]:
        return [self.brokers[broker] for broker in sorted(self.brokers) if not self.brokers[broker].fenced]

    def _apply(self, offset: int, record: MetadataRecord, delta: MetadataDelta) -> None:
        match record:
            case PartitionRecord():
                name = self.topic_names[record.topic]
                partitions = self.topics[name].partitions
                if self._partition_index is not None:
                    self._partition_index.update(partitions.get(record.partition), record)
                partitions[record.partition] = record
                delta.changed_partitions.add((name, record.partition))
            case TopicRecord():
                self.topics[record.name] = TopicImage(record.name, record.id)
                self.topic_names[record.id] = record.name
                delta.created_topics.append(record.name)
            case RemoveTopicRecord():
                name = self.topic_names.pop(record.id)
                removed = self.topics.pop(name)
                if self._partition_index is not None:
                    self._partition_index.remove_topic(record.id, removed.partitions)
                delta.deleted_topics.append(removed)
                self.configs.pop((TOPIC_RESOURCE, name), None)
                self.mirrored_topics.pop(record.id, None)
                sources = self.appended_sources.pop(record.id, {})
                for partition in removed.partitions:
                    self.mirrored_partitions.pop((record.id, partition), None)
                    for source in sources:
                        self.appended_partitions.pop((record.id, source, partition), None)
            case ConfigRecord():
                _set_or_remove(self.configs, (record.resource_type, record.name), record.key, record.value)
                delta.changed_configs.add((record.resource_type, record.name))
            case AccessControlEntryRecord():
                self.acls[record.id] = record.entry
                delta.changed_acls.add(record.id)
            case RemoveAccessControlEntryRecord():
                self.acls.pop(record.id, None)
                delta.changed_acls.add(record.id)
            case UserScramCredentialRecord():
                self.scram_credentials[record.name, record.mechanism] = record.credential
                self.mirrored_credentials.pop((record.name, record.mechanism), None)
                if record.mirror:
                    self.mirrored_credentials[record.name, record.mechanism] = record.mirror
            case RemoveUserScramCredentialRecord():
                self.scram_credentials.pop((record.name, record.mechanism), None)
                self.mirrored_credentials.pop((record.name, record.mechanism), None)
                delta.logins_removed = True
            case DelegationTokenRecord():
                self.delegation_tokens[record.token.id] = record.token
            case RemoveDelegationTokenRecord():
                self.delegation_tokens.pop(record.id, None)
                delta.logins_removed = True
            case ClientQuotaRecord():
                _set_or_remove(self.client_quotas, record.entity, record.key, record.value)
                delta.client_quotas_changed = True
            case ProducerIdsRecord():
                self.next_producer_id = record.next
            case FeatureLevelRecord():
                self.feature_levels[record.name] = record.level
            case MirroredTopicRecord():
                self.mirrored_topics[record.topic] = record
                delta.changed_mirrored_topics.add(self.topic_names[record.topic])
            case MirroredPartitionRecord():
                self.mirrored_partitions[record.topic, record.partition] = record
                delta.changed_mirrored_topics.add(self.topic_names[record.topic])
            case AppendedSourceRecord():
                self.appended_sources.setdefault(record.topic, {})[record.source_id] = record
                delta.changed_mirrored_topics.add(self.topic_names[record.topic])
            case AppendedPartitionRecord():
                self.appended_partitions[record.topic, record.source_id, record.partition] = record
                delta.changed_mirrored_topics.add(self.topic_names[record.topic])
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
                    node=record.node,
                )
                delta.changed_brokers.add(record.broker)
            case BrokerRegistrationChangeRecord():
                self._apply_registration_change(record)
                delta.changed_brokers.add(record.broker)
            case LeaderChangeRecord():
                self.previous_controller_id, self.controller_id = self.controller_id, record.broker
                delta.controller_changed = True
            case UnregisterBrokerRecord():
                self.brokers.pop(record.broker, None)
                delta.changed_brokers.add(record.broker)

    def _apply_registration_change(self, change: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(change.broker)
        if broker is not None and broker.epoch == change.epoch:
            self.brokers[change.broker] = replace(
                broker,
                fenced=change.fenced,
                shutting_down=change.shutting_down,
                directories=broker.directories if change.directories is None else change.directories,
            )


def _set_or_remove(entities: dict[K, dict[str, V]], entity: K, key: str, value: V | None) -> None:
    """Sets one value of an entity; None removes it. An entity without values is left out."""
    values = entities.setdefault(entity, {})
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
    if not values:
        del entities[entity]
