"""Which replicas live on this broker: follows the metadata, and makes, opens, re-configures and deletes partition folders to match.

A folder that the metadata do not know is never deleted: it is set aside under a `-stray` name, unless this is the very first start of a cluster on
these directories, when folders found there are taken in as topics (`orphans`), which is how a Kafka broker's data move here.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID

from ottla_broker.config import TOPIC_RETENTION_BYTES, TOPIC_RETENTION_MS
from ottla_broker.log.config import LogConfig
from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.appended_sources import retained_sources
from ottla_broker.metadata.image import TOPIC_RESOURCE, MetadataDelta, MetadataImage, TopicImage
from ottla_broker.metadata.records import METADATA_TOPIC, PartitionRecord
from ottla_broker.replication.cluster_view import ClusterView
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

# New logs that are made before anybody else gets a turn; of a topic of thousands of partitions the others follow in slices.
MADE_AT_ONCE: Final = 64
MADE_PER_TURN: Final = 16
AGAIN_S: Final = 5.0
NO_RETENTION: Final = {TOPIC_RETENTION_MS.name: "-1", TOPIC_RETENTION_BYTES.name: "-1"}


class Fetchers(Protocol):
    """Where a replica's records come from while another broker leads."""

    def follow_leader(self, partition: Partition) -> None:
        """Looks at the partition's state: fetches from its leader, from nobody, or in another epoch than before."""
        ...

    def remove_partition(self, partition: Partition) -> None:
        """It is hosted here no longer."""
        ...

    def on_broker_changed(self, broker: int) -> None:
        """The metadata say something new of it: it may be back."""
        ...


class ReplicaManager:
    """`log_config_of` gives a topic's log settings from its overrides; `led`/`lost` hear of leadership that came or went, in each epoch anew."""

    def __init__(
        self,
        me: int,
        image: MetadataImage,
        partitions: Partitions,
        directories: Sequence[LogDir],
        runtime: Runtime,
        log_config_of: Callable[[Mapping[str, str]], LogConfig],
        on_leadership_gained: Callable[[Partition], None],
        on_leadership_lost: Callable[[Partition], None],
        cluster: ClusterView | None = None,
        fetchers: Fetchers | None = None,
    ) -> None:
        self._me = me
        self._image = image
        self._partitions = partitions
        self._directories = directories
        self._runtime = runtime
        self._log_config_of = log_config_of
        self._led = on_leadership_gained
        self._lost = on_leadership_lost
        self._peers = cluster
        self._following = fetchers
        self._leading: dict[Partition, int] = {}  # what `led` was told: in which epoch
        self._to_make: dict[tuple[str, int], None] = {}  # replicas whose logs are still to be made
        self._making: asyncio.Task[None] | None = None
        self._refused: dict[
            tuple[str, int], asyncio.TimerHandle
        ] = {}  # logs that could not be made, and when they are tried again
        self._made = 0  # new logs in this turn

    def apply_changes(self, changes: MetadataDelta) -> None:
        """Brings this broker's replicas in line with what changed."""
        self._made = 0
        for topic in changes.deleted_topics:
            self._remove(topic)
        for name, partition in sorted(changes.changed_partitions):
            known = self._image.topics.get(name)
            if known is not None and partition in known.partitions:  # or it was of an earlier topic of that name
                self._host(known, known.partitions[partition])
        for resource_type, name in changes.changed_configs:
            if resource_type == TOPIC_RESOURCE:
                self.reconfigure_topics([name])
        self.reconfigure_topics(sorted(changes.changed_mirrors))
        if changes.changed_brokers:
            for hosted in self._partitions:
                hosted.on_brokers_changed()
            if self._following is not None:
                for broker in sorted(changes.changed_brokers):
                    self._following.on_broker_changed(broker)

    def reconfigure_topics(self, topics: Iterable[str]) -> None:
        """Gives the logs of these topics their settings as they are now."""
        for name in topics:
            config = self._config_of(name)
            for partition in self._image.topics[name].partitions if name in self._image.topics else ():
                if hosted := self._partitions.get(name, partition):
                    hosted.log.set_config(config)
                    hosted.on_config_changed()
                    if self._following is not None:
                        self._following.follow_leader(hosted)  # topics whose acks wait for a sync are copied apart

    def find_orphans(self) -> dict[str, tuple[UUID, dict[int, int]]]:
        """Partition folders that no topic claims: name → (topic id, partition → latest leader epoch). Two ids in one topic: the folder
        of the lower partition decides, and the others are set aside."""
        found: dict[str, tuple[UUID, dict[int, int]]] = {}
        for directory in self._directories:
            for (topic, partition), log in sorted(directory.logs.items()):
                if topic == METADATA_TOPIC or topic in self._image.topics:
                    continue
                topic_id, partitions = found.setdefault(topic, (log.topic_id or self._runtime.new_uuid(), {}))
                if log.topic_id in (None, topic_id):
                    partitions[partition] = max(log.epochs.latest_epoch(), 0)
        return found

    def rename_strays(self) -> None:
        for directory in self._directories:
            for (topic, partition), log in sorted(directory.logs.items()):
                known = self._image.topics.get(topic)
                if topic == METADATA_TOPIC:
                    continue
                if known is None or partition not in known.partitions or log.topic_id not in (None, known.id):
                    logger.warning("%s is not a replica that the metadata know; set aside as a stray", log.directory)
                    directory.move_to_stray(topic, partition)

    def _host(self, topic: TopicImage, state: PartitionRecord) -> None:
        hosted = self._partitions.get(topic.name, state.partition)
        if self._me not in state.replicas:
            if hosted is not None:
                self._drop(hosted, ErrorCode.not_leader_or_follower)
            return
        if hosted is not None and hosted.topic_id == topic.id:
            hosted.update_registration(state)
            self._tell(hosted)
            return
        if self._made >= MADE_AT_ONCE:
            self._make_later(topic.name, state.partition)
            return
        try:
            log = self._open(topic, state)
        except (KafkaError, OSError) as reason:
            self._try_again(topic.name, state.partition, reason)
            return
        self._refused.pop((topic.name, state.partition), None)
        hosted = Partition(
            topic.name, topic.id, state.partition, log, state, self._me, self._runtime.now_ms, self._peers
        )
        self._partitions.add(hosted)
        self._tell(hosted)

    def _try_again(self, topic: str, partition: int, reason: Exception) -> None:
        """After a while: what is wrong may pass, as a full disk does. Said once."""
        if (topic, partition) not in self._refused:
            logger.error("%s-%d cannot be hosted: %s", topic, partition, reason)
        else:
            self._refused[topic, partition].cancel()
        again = asyncio.get_running_loop().call_later(AGAIN_S, self._make_later, topic, partition)
        self._refused[topic, partition] = again

    def _make_later(self, topic: str, partition: int) -> None:
        self._to_make[topic, partition] = None
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._make_in_slices())

    async def _make_in_slices(self) -> None:
        """What the metadata say is looked up when the turn comes."""
        try:
            while self._to_make:
                await asyncio.sleep(0)
                self._made = 0
                for topic, partition in list(self._to_make)[:MADE_PER_TURN]:
                    del self._to_make[topic, partition]
                    known = self._image.topics.get(topic)
                    if known is not None and partition in known.partitions:
                        self._host(known, known.partitions[partition])
        finally:
            self._making = None

    def close(self) -> None:
        for again in self._refused.values():
            again.cancel()
        if self._making is not None:
            self._making.cancel()

    def _tell(self, partition: Partition) -> None:
        epoch = partition.leader_epoch if partition.is_leader else None
        before = self._leading.get(partition)
        if epoch != before:
            if before is not None:
                del self._leading[partition]
                self._lost(partition)
            if epoch is not None:
                self._leading[partition] = epoch
                self._led(partition)
        if self._following is not None:
            self._following.follow_leader(partition)

    def _open(self, topic: TopicImage, state: PartitionRecord) -> PartitionLog:
        """Where its folder is; else where the metadata want it; else in the directory with the fewest."""
        config = self._config_of(topic.name)
        for directory in self._directories:
            if (topic.name, state.partition) in directory.logs:
                return directory.create_log(topic.name, state.partition, topic.id, config)
        working = [directory for directory in self._directories if directory.failure is None]
        if not working:
            raise KafkaError(ErrorCode.kafka_storage_error, "every log directory has failed")
        wanted = dict(zip(state.replicas, state.directories, strict=False)).get(self._me)
        chosen = next((one for one in working if one.directory_id == wanted), None)
        if chosen is None:
            chosen = min(working, key=lambda one: len(one.logs))
        self._made += 1
        return chosen.create_log(topic.name, state.partition, topic.id, config)

    def _config_of(self, topic: str) -> LogConfig:
        """A copy of another cluster's topic lets go what its source lets go, and when; not what is old or large here. A topic to which others are appended
        lets go what its leader does, who keeps how far each was copied (`mirroring.keeping`)."""
        known = self._image.topics.get(topic)
        overrides = self._image.topic_config(topic)
        follows = known is not None and (self._image.active_mirror(known.id) or retained_sources(self._image, known.id))
        return self._log_config_of({**overrides, **NO_RETENTION} if follows else overrides)

    def _remove(self, topic: TopicImage) -> None:
        for partition in topic.partitions:
            hosted = self._partitions.get(topic.name, partition)
            if hosted is not None and hosted.topic_id == topic.id:
                self._drop(hosted, ErrorCode.unknown_topic_or_partition)

    def _drop(self, hosted: Partition, code: ErrorCode) -> None:
        self._partitions.remove(hosted.topic, hosted.partition)
        if self._leading.pop(hosted, None) is not None:
            self._lost(hosted)
        hosted.stop_replica(code)
        if self._following is not None:
            self._following.remove_partition(hosted)
        for directory in self._directories:
            if (hosted.topic, hosted.partition) in directory.logs:
                directory.delete_log(hosted.topic, hosted.partition)
