"""The status of mirrors and mirrored topics, as read-only entries of DescribeConfigs.

Every broker describes a mirrored topic (resource type 102): what the metadata log says of it, and
the status of the partitions that this broker leads. A client that asks all brokers gets the status
of all partitions.

- Topics with identical offsets: `mirror`, `source.topic`, `failed.over`, `origins` (ids of the
  clusters whose records it holds), `<partition>` (`PartitionStatus` as JSON) and, after a failover,
  `<partition>.lineage` (`EpochHistory` as JSON), which the source needs to become a mirror of this
  topic.
- Topics with appended records: `origins`, `sources` (JSON, for those who mirror this topic),
  `<mirror>/source.topic`, `<mirror>/source.partitions` (their number) and `<mirror>/<partition>`
  (`PartitionStatus` as JSON, whose `end` is the offset of the source up to which it was copied).

The controller describes a mirror (resource type 101) by `trouble` (why the source cannot be read),
`target.error` (the error of this cluster that ended the last synchronisation), and `refused` (JSON
of the topics that are not mirrored, with the reasons).
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from ottla_broker.broker import Broker
from ottla_broker.config import PAUSED, ConfigEntry, ConfigSource
from ottla_broker.config.value_types import ConfigType
from ottla_broker.metadata.appended_sources import appended_partition, describe_sources
from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.mirror_plans import mirrored_partition
from ottla_broker.metadata.records import AppendedSourceRecord, MirroredPartitionRecord, MirroredTopicRecord
from ottla_broker.mirroring.mirror_config import MirrorConfig, mirror_config
from ottla_broker.mirroring.mirror_manager import MirrorManager
from ottla_broker.mirroring.mirrored_partition import MirroredPartition
from ottla_broker.mirroring.source_cluster import (
    ORIGINS,
    SOURCES,
    describe_mirrored_topic,
    epoch_history_key,
    origin_clusters,
)
from ottla_broker.mirroring.source_epochs import NO_EPOCH, EpochHistory, mirrored_end_offset
from ottla_broker.mirroring.source_positions import source_position
from ottla_broker.mirroring.synchronizer import MirrorSynchronizer
from ottla_broker.replication.partition import Partition

State = Literal["Replicating", "Joining", "Diverged", "Paused", "Stopped", "FailingOver", "FailedOver", "Unreachable"]
UNKNOWN: Final = -1
SOURCE_ERROR, TARGET_ERROR, REJECTED_TOPICS = "trouble", "target.error", "refused"
SILENCE_LIMIT_S: Final = 10.0
"""How long a source may be silent beyond a fetch's maximum wait: twice the longest pause after an
error.
"""


class PartitionStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`end`: the log's end offset here, or after a failover the first offset of this cluster's own
    records; of appended records, the offset of the source up to which it was copied. `source_end`:
    the source's high watermark as last read. `lag_seconds`: how long records have been missing
    here. `diverging`: number of records that are here and not at the source. `lag_bytes`: an
    estimate. `silent_seconds`: time since the source's last response. `why`: why the state is not
    the desired one.
    """

    state: State
    end: int
    source_end: int = UNKNOWN
    lag: int = UNKNOWN
    lag_seconds: float = UNKNOWN
    source_epoch: int = NO_EPOCH
    why: str = ""
    diverging: int = 0
    lag_bytes: int = UNKNOWN
    silent_seconds: float = UNKNOWN


def describe_mirror_problems(broker: Broker, mirror: str) -> list[ConfigEntry]:
    """Empty on brokers that are not the controller."""
    synchronizer: MirrorSynchronizer | None = broker.mirror_synchronizer
    if synchronizer is None:
        return []
    problems = synchronizer.problems(mirror)
    rejected = msgspec.json.encode(problems.rejected_topics).decode() if problems.rejected_topics else ""
    values = {
        SOURCE_ERROR: problems.source_error,
        TARGET_ERROR: problems.target_error,
        REJECTED_TOPICS: rejected,
    }
    return [_read_only_entry(name, value) for name, value in values.items() if value]


def describe_mirrored_topic_status(broker: Broker, name: str, now_s: float) -> list[ConfigEntry]:
    """Empty for a topic that mirrors no other topic and has no appended sources."""
    topic = broker.image.topics.get(name)
    if topic is None:
        return []
    entries = {**_identical_entries(broker, topic, now_s), **_appended_entries(broker, topic, now_s)}
    return [_read_only_entry(key, value) for key, value in entries.items()]


def _identical_entries(broker: Broker, topic: TopicImage, now_s: float) -> dict[str, str]:
    mirrored = broker.image.mirrored_topics.get(topic.id)
    if mirrored is None:
        return {}
    entries = describe_mirrored_topic(
        mirrored.mirror, mirrored.source_topic, mirrored.source_id, failed_over=mirrored.failed_over
    )
    entries[ORIGINS] = _origins(broker.image, topic)
    for partition in _led_partitions(broker, topic):
        index = partition.partition
        entries[str(index)] = _json(mirrored_partition_status(broker, topic, mirrored, partition, now_s))
        if (history := _epoch_history(broker.image, mirrored, partition)) is not None:
            entries[epoch_history_key(index)] = _json(history)
    return entries


def _appended_entries(broker: Broker, topic: TopicImage, now_s: float) -> dict[str, str]:
    if topic.id not in broker.image.appended_sources:
        return {}
    sources = _latest_sources(broker.image.appended_sources[topic.id].values())
    entries = {SOURCES: msgspec.json.encode(describe_sources(broker.image, topic.id)).decode()}
    for mirror, source in sorted(sources.items()):
        entries[f"{mirror}/source.topic"] = source.source_topic
        entries[f"{mirror}/source.partitions"] = str(source.partitions)
    if topic.id not in broker.image.mirrored_topics:
        entries[ORIGINS] = _origins(broker.image, topic)
    for mirror, source in sorted(sources.items()):
        for partition in _led_partitions(broker, topic):
            if partition.partition < source.partitions:
                status = appended_partition_status(broker, topic, source, partition, now_s)
                entries[f"{mirror}/{partition.partition}"] = _json(status)
    return entries


def mirrored_partition_status(
    broker: Broker, topic: TopicImage, mirrored: MirroredTopicRecord, partition: Partition, now_s: float
) -> PartitionStatus:
    """Status of a partition with identical offsets, as its leader knows it."""
    record = mirrored_partition(broker.image, topic.id, partition.partition)
    end, epoch = partition.log.end, _latest_epoch(record)
    if mirrored.failed_over:
        if record.end < 0:
            return PartitionStatus("FailingOver", end)
        missing = max(record.source_end - record.end, 0) if record.source_end >= 0 else UNKNOWN
        return PartitionStatus("FailedOver", record.end, record.source_end, missing, source_epoch=epoch)
    if record.stopped:
        return PartitionStatus("Stopped", end, source_epoch=epoch, why=record.stopped)
    mirrors: MirrorManager = broker.mirrors.load()
    if (failback := mirrors.failback_partition(partition)) is not None:
        state: State = "Diverged" if failback.needs_operator else "Joining"
        return PartitionStatus(state, end, why=failback.reason, diverging=failback.diverging_records)
    config = mirror_config(broker.image, mirrored.mirror)
    copy = mirrors.mirrored_partition(partition, mirrored.mirror)
    if config is None or config.role == PAUSED or copy is None:
        return PartitionStatus("Paused", end, source_epoch=epoch)
    return _live_status(copy, end, config, mirrors.source_error(mirrored.mirror), now_s)


def appended_partition_status(
    broker: Broker, topic: TopicImage, source: AppendedSourceRecord, partition: Partition, now_s: float
) -> PartitionStatus:
    """Status of one source of a partition with appended records, as its leader knows it."""
    record = appended_partition(broker.image, topic.id, source.source_id, partition.partition)
    end = source_position(partition.log.producers.get(source.producer_id))
    epoch = record.epochs[-1][0] if record.epochs else NO_EPOCH
    mirrors: MirrorManager = broker.mirrors.load()
    if source.ended:
        last_known = mirrors.last_known_lag(partition, source.mirror)
        return PartitionStatus("FailedOver", end, *last_known, source_epoch=epoch)
    if reason := source.stopped or record.stopped:
        return PartitionStatus("Stopped", end, source_epoch=epoch, why=reason)
    config = mirror_config(broker.image, source.mirror)
    copy = mirrors.mirrored_partition(partition, source.mirror)
    if config is None or config.role == PAUSED or copy is None:
        return PartitionStatus("Paused", end, source_epoch=epoch)
    return _live_status(copy, copy.position, config, mirrors.source_error(source.mirror), now_s)


def _live_status(
    copy: MirroredPartition, end: int, config: MirrorConfig, source_error: str, now_s: float
) -> PartitionStatus:
    """Status of a copy in progress. `source_error`: why no broker of the source can be used."""
    is_known = copy.source_high_watermark != UNKNOWN
    silence_s = copy.source_silence_s(now_s)
    reason = copy.reason or source_error or _silence_problem(silence_s, config.fetch_limits.max_wait_ms / 1000)
    return PartitionStatus(
        "Unreachable" if reason else "Replicating",
        end,
        copy.source_high_watermark,
        copy.lag if is_known else UNKNOWN,
        round(copy.lag_s(now_s), 3) if is_known else UNKNOWN,
        copy.last_record_epoch,
        reason,
        lag_bytes=copy.lag_bytes if is_known else UNKNOWN,
        silent_seconds=round(silence_s, 3),
    )


def _silence_problem(silence_s: float, max_wait_s: float) -> str:
    """Empty while the source's silence is within the time that a fetch may wait for records plus
    SILENCE_LIMIT_S.
    """
    limit_s = max_wait_s + SILENCE_LIMIT_S
    return f"no broker of the source has responded for more than {limit_s:g} seconds" if silence_s > limit_s else ""


def _epoch_history(image: MetadataImage, mirrored: MirroredTopicRecord, partition: Partition) -> EpochHistory | None:
    """None before a failover, and while the offset at which copying ended, or began, is unknown."""
    record = mirrored_partition(image, partition.topic_id, partition.partition)
    if not mirrored.failed_over or record.end < 0 or (mirrored.adopted and record.joined < 0):
        return None
    epochs = tuple(partition.log.epochs.entries())
    end = mirrored_end_offset(epochs, partition.log.end, record.end, record.end_epoch)
    return EpochHistory(mirrored.source_id, record.epochs, end, epochs)


def _latest_sources(sources: Iterable[AppendedSourceRecord]) -> dict[str, AppendedSourceRecord]:
    """The sources that mirrors of this cluster append, by mirror. Of a topic that was created again
    at the source, only the present one is included.
    """
    own = (source for source in sources if not source.carried)
    return {source.mirror: source for source in sorted(own, key=lambda one: not one.ended)}


def _led_partitions(broker: Broker, topic: TopicImage) -> Iterator[Partition]:
    for index in sorted(topic.partitions):
        if (partition := broker.partitions.get(topic.name, index)) is not None and partition.is_leader:
            yield partition


def _origins(image: MetadataImage, topic: TopicImage) -> str:
    return ",".join(sorted(origin_clusters(image, topic.name)))


def _latest_epoch(record: MirroredPartitionRecord) -> int:
    return record.epochs[-1][0] if record.epochs else NO_EPOCH


def _json(status: msgspec.Struct) -> str:
    return msgspec.json.encode(status).decode()


def _read_only_entry(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name, value, ConfigSource.DYNAMIC_MIRROR_CONFIG, (), True, False, ConfigType.STRING, "")
