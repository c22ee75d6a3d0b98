"""Keeps this broker's replicas as the metadata say: creates, opens, configures and deletes
partition folders.

A folder that the metadata do not know at the start, or whose partition was assigned to other
brokers while this one was down, is never deleted but renamed to `…-stray`. Only at the very first
start of a cluster on these directories are folders of unknown topics adopted as topics
(`find_orphans`): that takes over the data of a Kafka broker."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla_broker.config import REPLICA_LAG_TIME_MAX_MS, TOPIC_RETENTION_BYTES, TOPIC_RETENTION_MS, Config
from ottla_broker.log.config import LogConfig
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.appended_sources import retained_sources
from ottla_broker.metadata.image import TOPIC_RESOURCE, MetadataDelta, MetadataImage, TopicImage
from ottla_broker.metadata.records import METADATA_TOPIC, PartitionRecord
from ottla_broker.replication.cluster_view import ClusterView
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.replication.replica_fetchers import ReplicaFetchers
from ottla_broker.replication.replica_mover import ReplicaMover
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MAX_NEW_LOGS_AT_ONCE: Final = 64
"""How many logs one change creates before the loop does other work; the others, of a topic with
thousands of partitions, follow in slices."""
NEW_LOGS_PER_TURN: Final = 16
RETRY_PAUSE_S: Final = 5.0
LAG_CHECKS: Final = 4  # per replica.lag.time.max.ms
LAG_CHECKS_PER_TURN: Final = 500
NO_RETENTION: Final = {TOPIC_RETENTION_MS.name: "-1", TOPIC_RETENTION_BYTES.name: "-1"}


@dataclass(eq=False, repr=False)
class ReplicaManager:
    """When this broker goes on leading a partition in a newer leader epoch, `_on_leadership_lost`
    and then `_on_leadership_gained` are called. `_send_isr_change`: sends a partition's pending ISR
    change to the controller."""

    _broker_id: int
    _image: MetadataImage
    _partitions: Partitions
    _log_dirs: Sequence[LogDir]
    _runtime: Runtime
    _config: Config
    _fetchers: ReplicaFetchers
    _mover: ReplicaMover
    _cluster: ClusterView
    _send_isr_change: Callable[[Partition], None]
    _on_leadership_gained: Callable[[Partition], None]
    _on_leadership_lost: Callable[[Partition], None]

    def __post_init__(self) -> None:
        self._led_epochs: dict[Partition, int] = {}  # in which `_on_leadership_gained` was called
        self._to_create: dict[TopicPartition, None] = {}
        self._creating: asyncio.Task[None] | None = None
        self._retries: dict[TopicPartition, asyncio.TimerHandle] = {}  # of logs that could not be opened
        self._created = 0  # logs in this turn of the loop

    def apply_changes(self, changes: MetadataDelta) -> None:
        self._created = 0
        for topic in changes.deleted_topics:
            self._delete_topic(topic)
        for name, partition in sorted(changes.changed_partitions):
            self._host_if_known(name, partition)
        for resource_type, name in changes.changed_configs:
            if resource_type == TOPIC_RESOURCE:
                self.reconfigure_topics([name])
        self.reconfigure_topics(sorted(changes.changed_mirrored_topics))
        if changes.changed_brokers:
            for hosted in self._partitions:
                hosted.on_brokers_changed()
            for broker in sorted(changes.changed_brokers):
                self._fetchers.on_broker_changed(broker)

    def reconfigure_topics(self, topics: Iterable[str]) -> None:
        """Applies the present settings of these topics to their logs."""
        for name in topics:
            config = self._log_config(name)
            for partition in self._image.topics[name].partitions if name in self._image.topics else ():
                if hosted := self._partitions.get(name, partition):
                    hosted.log.set_config(config)
                    hosted.on_config_changed()
                    self._fetchers.follow_leader(hosted)  # topics whose acks wait for a sync have another fetcher

    async def shrink_isrs(self) -> None:
        """Until it is cancelled, periodically proposes ISRs without lagging followers, and notifies
        fetchers of records that retention has deleted."""
        while True:
            max_lag_s = self._config(REPLICA_LAG_TIME_MAX_MS) / 1000
            await asyncio.sleep(max_lag_s / LAG_CHECKS)
            for number, partition in enumerate(list(self._partitions)):
                partition.shrink_isr(max_lag_s)
                partition.notify_log_start_change()
                if number % LAG_CHECKS_PER_TURN == 0:
                    await asyncio.sleep(0)

    def close(self) -> None:
        for retry in self._retries.values():
            retry.cancel()
        if self._creating is not None:
            self._creating.cancel()

    # --- folders that the metadata do not know

    def find_orphans(self) -> dict[str, tuple[UUID, dict[int, int]]]:
        """Partition folders of no topic: name → (topic id, partitions → latest leader epoch). Where
        the folders of one topic have two ids, that of the first folder counts, by log directory and
        then by partition. The others become strays."""
        found: dict[str, tuple[UUID, dict[int, int]]] = {}
        for log_dir in self._log_dirs:
            for (topic, partition), log in sorted(log_dir.logs.items()):
                if topic == METADATA_TOPIC or topic in self._image.topics:
                    continue
                topic_id, partitions = found.setdefault(topic, (log.topic_id or self._runtime.new_uuid(), {}))
                if log.topic_id in (None, topic_id):
                    partitions[partition] = max(log.epochs.latest_epoch(), 0)
        return found

    def rename_strays(self) -> None:
        for log_dir in self._log_dirs:
            for (topic, partition), log in sorted(log_dir.logs.items()):
                if topic != METADATA_TOPIC and not self._is_assigned(topic, partition, log.topic_id):
                    logger.warning("%s is no replica of this broker: renaming it to a stray folder", log.directory)
                    log_dir.move_to_stray(topic, partition)

    def _is_assigned(self, topic: str, partition: int, topic_id: UUID | None) -> bool:
        """True if this broker has a replica of the partition. `topic_id` None: of any topic of this
        name.
        """
        known = self._image.topics.get(topic)
        if known is None or topic_id not in (None, known.id):
            return False
        registration = known.partitions.get(partition)
        return registration is not None and self._broker_id in registration.replicas

    # --- replicas

    def _host_if_known(self, topic: str, partition: int) -> None:
        known = self._image.topics.get(topic)
        if known is not None and partition in known.partitions:  # else it belonged to an earlier topic of that name
            self._host(known, known.partitions[partition])

    def _host(self, topic: TopicImage, registration: PartitionRecord) -> None:
        index = registration.partition
        hosted = self._partitions.get(topic.name, index)
        if self._broker_id not in registration.replicas:
            if hosted is not None:
                self._drop(hosted, ErrorCode.not_leader_or_follower)
            return
        if hosted is not None and hosted.topic_id == topic.id:
            hosted.update_registration(registration)
            self._apply_role(hosted)
            return
        if self._created >= MAX_NEW_LOGS_AT_ONCE:
            self._create_later((topic.name, index))
            return
        try:
            log = self._open_log(topic, registration)
        except (KafkaError, OSError) as reason:
            self._retry_later((topic.name, index), reason)
            return
        self._retries.pop((topic.name, index), None)
        hosted = Partition(
            topic.name,
            topic.id,
            index,
            log,
            registration,
            self._broker_id,
            self._runtime.now_ms,
            self._cluster,
            self._send_isr_change,
        )
        self._partitions.add(hosted)
        self._apply_role(hosted)

    def _retry_later(self, name: TopicPartition, reason: Exception) -> None:
        """Tries to open the log again later, because the reason may pass, as a full disk does. The
        reason is logged once."""
        if name not in self._retries:
            logger.error("cannot open the log of %s-%d: %s", *name, reason)
        else:
            self._retries[name].cancel()
        self._retries[name] = asyncio.get_running_loop().call_later(RETRY_PAUSE_S, self._create_later, name)

    def _create_later(self, name: TopicPartition) -> None:
        self._to_create[name] = None
        if self._creating is None:
            self._creating = asyncio.get_running_loop().create_task(self._create_in_slices())

    async def _create_in_slices(self) -> None:
        try:
            while self._to_create:
                await asyncio.sleep(0)
                self._created = 0
                for name in list(self._to_create)[:NEW_LOGS_PER_TURN]:
                    del self._to_create[name]
                    self._host_if_known(*name)
        finally:
            self._creating = None

    def _apply_role(self, partition: Partition) -> None:
        epoch = partition.leader_epoch if partition.is_leader else None
        before = self._led_epochs.get(partition)
        if epoch != before:
            if before is not None:
                del self._led_epochs[partition]
                self._on_leadership_lost(partition)
            if epoch is not None:
                self._led_epochs[partition] = epoch
                self._on_leadership_gained(partition)
        self._fetchers.follow_leader(partition)

    def _open_log(self, topic: TopicImage, registration: PartitionRecord) -> PartitionLog:
        """Opens a log in the directory that has its folder, else in the one that a client or the
        metadata name, else in the one with the fewest logs.
        """
        config, index = self._log_config(topic.name), registration.partition
        for log_dir in self._log_dirs:
            if (topic.name, index) in log_dir.logs:
                return log_dir.create_log(topic.name, index, topic.id, config)
        working = [log_dir for log_dir in self._log_dirs if log_dir.failure is None]
        if not working:
            raise KafkaError(ErrorCode.kafka_storage_error, "every log directory has failed")
        assigned = dict(zip(registration.replicas, registration.directories, strict=False)).get(self._broker_id)
        chosen = self._mover.take_preferred_directory(topic.name, index)
        if chosen not in working:
            chosen = next((one for one in working if one.directory_id == assigned), None)
        if chosen is None:
            chosen = min(working, key=lambda one: len(one.logs))
        self._created += 1
        return chosen.create_log(topic.name, index, topic.id, config)

    def _log_config(self, topic: str) -> LogConfig:
        """The settings of a topic's log. Two kinds of log do not apply retention by themselves.
        That of a mirrored topic follows its source's log start. For a topic with appended sources
        the leader applies retention and preserves the sources' positions
        (`mirroring.appended_retention`), and followers follow its log start."""
        known = self._image.topics.get(topic)
        overrides = self._image.topic_config(topic)
        skips_retention = known is not None and (
            self._image.active_mirror(known.id) or retained_sources(self._image, known.id)
        )
        return self._config.log_config({**overrides, **NO_RETENTION} if skips_retention else overrides)

    def _delete_topic(self, topic: TopicImage) -> None:
        for partition in topic.partitions:
            hosted = self._partitions.get(topic.name, partition)
            if hosted is not None and hosted.topic_id == topic.id:
                self._drop(hosted, ErrorCode.unknown_topic_or_partition)

    def _drop(self, hosted: Partition, code: ErrorCode) -> None:
        self._partitions.remove(hosted.topic, hosted.partition)
        if self._led_epochs.pop(hosted, None) is not None:
            self._on_leadership_lost(hosted)
        self._mover.cancel_move(hosted.topic, hosted.partition)
        hosted.stop_replica(code)
        self._fetchers.remove_partition(hosted)
        for log_dir in self._log_dirs:
            if (hosted.topic, hosted.partition) in log_dir.logs:
                log_dir.delete_log(hosted.topic, hosted.partition)
