"""Applies committed metadata to the parts of a broker (Kafka's BrokerMetadataPublisher)."""

from collections.abc import Callable
from dataclasses import dataclass

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.config import Config
from ottla_broker.coordination.group_coordinator import GroupCoordinator
from ottla_broker.coordination.journal import PartitionJournal
from ottla_broker.coordination.records import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla_broker.coordination.share_group_services import StateTopicLeader
from ottla_broker.metadata.broker_lifecycle import BrokerLifecycle
from ottla_broker.metadata.failure_detector import FailureDetector
from ottla_broker.metadata.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, MetadataDelta, MetadataImage
from ottla_broker.mirroring.lazy_mirrors import LazyMirrors
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.replica_manager import ReplicaManager
from ottla_broker.security.client_quota_manager import ClientQuotaManager
from ottla_broker.security.standard_authorizer import StandardAuthorizer
from ottla_broker.telemetry.client_instances import ClientInstances
from ottla_broker.transactions.transaction_coordinator import TransactionCoordinator


@dataclass(eq=False, repr=False)
class MetadataPublisher:
    """Applies committed metadata to the parts of a broker. During the start replicas are not
    touched; `publish_image` applies the whole image afterwards. `_share_coordinator`: returns the
    share coordinator, which is built at the first use.
    """

    _config: Config
    _image: MetadataImage
    _lifecycle: BrokerLifecycle
    _failure_detector: FailureDetector
    _group_coordinator: GroupCoordinator
    _transaction_coordinator: TransactionCoordinator
    _share_coordinator: Callable[[], StateTopicLeader]
    _mirrors: LazyMirrors
    _tasks: BackgroundTasks
    _acl_authorizer: StandardAuthorizer | None
    _client_quotas: ClientQuotaManager
    _client_instances: ClientInstances
    _on_logins_removed: Callable[[], None]
    _replica_manager: ReplicaManager | None = None

    def publish_delta(self, delta: MetadataDelta) -> None:
        if delta.changed_brokers:
            self._failure_detector.update_peers()
        if delta.controller_changed:
            self._lifecycle.send_heartbeat_now()
        if delta.changed_acls and self._acl_authorizer is not None:
            self._acl_authorizer.update(delta.changed_acls, self._image.acls)
        if delta.client_quotas_changed:
            self._client_quotas.update(self._image.client_quotas)
        if any(resource_type == CLIENT_METRICS_RESOURCE for resource_type, _ in delta.changed_configs):
            self._client_instances.on_subscriptions_changed()
        if delta.logins_removed:
            self._on_logins_removed()
        if self._replica_manager is not None:
            self._publish_to_replicas(self._replica_manager, delta)

    def publish_image(self, replica_manager: ReplicaManager) -> None:
        """Applies the whole image, as a restarted broker finds it, and from now on every delta."""
        self._replica_manager = replica_manager
        self.update_config()
        if self._acl_authorizer is not None:
            self._acl_authorizer.update(self._image.acls.keys(), self._image.acls)
        self._client_quotas.update(self._image.client_quotas)
        topics = self._image.topics
        replica_manager.apply_changes(
            MetadataDelta(
                created_topics=list(topics),
                changed_partitions={(name, index) for name, topic in topics.items() for index in topic.partitions},
            )
        )

    def update_config(self) -> None:
        """Applies the dynamic configs of this broker and the cluster-wide defaults."""
        configs = self._image.configs
        self._config.set_dynamic(
            cluster=configs.get((BROKER_RESOURCE, ""), {}),
            broker=configs.get((BROKER_RESOURCE, str(self._config.node_id)), {}),
        )

    def on_leadership_gained(self, partition: Partition) -> None:
        self._mirrors.on_leadership_gained(partition)
        if (coordinator := self._find_coordinator(partition.topic)) is not None:
            self._tasks.start(coordinator.load(PartitionJournal(partition)))

    def on_leadership_lost(self, partition: Partition) -> None:
        self._mirrors.on_leadership_lost(partition)
        if (coordinator := self._find_coordinator(partition.topic)) is not None:
            coordinator.unload(partition.partition)

    def _find_coordinator(self, topic: str) -> StateTopicLeader | None:
        """The coordinator whose state is in the topic; None for topics of clients."""
        if topic == OFFSETS_TOPIC:
            return self._group_coordinator
        if topic == TRANSACTION_STATE_TOPIC:
            return self._transaction_coordinator
        return self._share_coordinator() if topic == SHARE_STATE_TOPIC else None

    def _publish_to_replicas(self, replica_manager: ReplicaManager, delta: MetadataDelta) -> None:
        replica_manager.apply_changes(delta)
        if delta.created_topics or delta.deleted_topics or delta.changed_partitions:
            self._group_coordinator.metadata.on_topics_changed()
        self._mirrors.apply_changes(delta)
        if deleted := {topic.name: topic.id for topic in delta.deleted_topics}:
            self._tasks.start(self._group_coordinator.delete_offsets_of_topics(deleted))
        if any(resource_type == BROKER_RESOURCE for resource_type, _ in delta.changed_configs):
            self.update_config()
            replica_manager.reconfigure_topics(self._image.topics)
