"""How a copy of another cluster's topic is, as entries of DescribeConfigs for resource type 102: who asks all brokers knows all.

`mirror`, `source.topic`, `failed.over` and `origins` (ids of the clusters that records come from now) tell of the topic what the metadata say; `<partition>`
is JSON (`PartitionStatus`) and is given by the broker that leads the partition, because only it knows how far the source is. Of a copy that has failed over
`<partition>.lineage` is what its source needs that is to become its copy (`mirroring.lineage.Lineage`).

Of a mirror (resource type 101) the controller tells `trouble`, why its source cannot be looked at, and `refused`, JSON of which topics here are not copied
into, and why; where there is nothing to tell they are not there.
"""

from typing import Literal

import msgspec

from ottla_broker.broker import Broker
from ottla_broker.config import PAUSED, ConfigEntry, ConfigSource
from ottla_broker.config.value_types import ConfigType
from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.mirror_plans import mirrored_partition
from ottla_broker.metadata.records import MirroredPartitionRecord, MirroredTopicRecord
from ottla_broker.mirroring.mirror_config import MirrorConfig, mirror_config
from ottla_broker.mirroring.mirrored_partition import MirroredPartition
from ottla_broker.mirroring.source_cluster import ORIGINS, describe_mirrored_topic, epoch_history_key, origin_clusters
from ottla_broker.mirroring.source_epochs import NO_EPOCH, EpochHistory, mirrored_end_offset
from ottla_broker.replication.partition import Partition

State = Literal["Replicating", "Joining", "Diverged", "Paused", "Stopped", "FailingOver", "FailedOver", "Unreachable"]
UNKNOWN = -1
TROUBLE, REFUSED = "trouble", "refused"
SILENT_AFTER_S = 10.0
"""Beyond the time that a fetch may wait for records: twice the longest that a copy rests after an error of the source's."""


class PartitionStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`end`: of the log here, or after a failover the offset from which on our own records follow; `source_end`: the source's high watermark when
    last seen, −1: not known, as is `lag_seconds`: for how long something has been missing here. `diverging`: offsets that are here and not at the source.
    `lag_bytes`: an estimate (`Copy.lag_bytes`); `silent_seconds`: since the source's broker answered last, records or not.
    `why`: of a state that is not as it should be."""

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


def mirrored_topic_entries(broker: Broker, name: str, now_s: float) -> list[ConfigEntry]:
    """Nothing for a topic that is no copy."""
    topic = broker.image.topics.get(name)
    copy = None if topic is None else broker.image.mirrored_topics.get(topic.id)
    if topic is None or copy is None:
        return []
    found = describe_mirrored_topic(copy.mirror, copy.source_topic, copy.source_id, failed_over=copy.failed_over)
    found[ORIGINS] = ",".join(sorted(origin_clusters(broker.image, name)))
    for index in sorted(topic.partitions):
        if (partition := broker.partitions.get(name, index)) is not None and partition.is_leader:
            found[str(index)] = _json(mirrored_partition_status(broker, topic, copy, partition, now_s))
            if (told := lineage(broker.image, copy, partition)) is not None:
                found[epoch_history_key(index)] = _json(told)
    return [read_only_entry(key, value) for key, value in found.items()]


def troubles(broker: Broker, mirror: str) -> list[ConfigEntry]:
    """Nothing from a broker that is not the controller."""
    if broker.mirror_synchronizer is None:
        return []
    told = broker.mirror_synchronizer.problems(mirror)
    refused = msgspec.json.encode(told.rejected_topics).decode() if told.rejected_topics else ""
    return [read_only_entry(key, value) for key, value in ((TROUBLE, told.source_error), (REFUSED, refused)) if value]


def lineage(image: MetadataImage, copied: MirroredTopicRecord, partition: Partition) -> EpochHistory | None:
    """None while it copies, or while nobody knows where it ends or joined."""
    known = mirrored_partition(image, partition.topic_id, partition.partition)
    if not copied.failed_over or known.end < 0 or (copied.adopted and known.joined < 0):
        return None
    epochs = tuple(partition.log.epochs.entries())
    end = mirrored_end_offset(epochs, partition.log.end, known.end, known.end_epoch)
    return EpochHistory(copied.source_id, known.epochs, end, epochs)


def mirrored_partition_status(
    broker: Broker, topic: TopicImage, copied: MirroredTopicRecord, partition: Partition, now_s: float
) -> PartitionStatus:
    """As the partition's leader knows it."""
    known = mirrored_partition(broker.image, topic.id, partition.partition)
    end = partition.log.end
    if copied.failed_over:
        if known.end < 0:
            return PartitionStatus("FailingOver", end)
        missing = max(known.source_end - known.end, 0) if known.source_end >= 0 else UNKNOWN
        return PartitionStatus("FailedOver", known.end, known.source_end, missing, source_epoch=_newest(known))
    if known.stopped:
        return PartitionStatus("Stopped", end, source_epoch=_newest(known), why=known.stopped)
    settings = mirror_config(broker.image, copied.mirror)
    copy = broker.mirrors.mirrored_partition(partition, copied.mirror)
    if (rejoiner := broker.mirrors.failback_partition(partition)) is not None:
        state: State = "Diverged" if rejoiner.needs_operator else "Joining"
        return PartitionStatus(state, end, why=rejoiner.reason, diverging=rejoiner.diverging_records)
    if settings is None or settings.role == PAUSED or copy is None:
        return PartitionStatus("Paused", end, source_epoch=_newest(known))
    return live_status(copy, end, settings, broker.mirrors.source_error(copied.mirror), now_s)


def live_status(
    copy: MirroredPartition, end: int, settings: MirrorConfig, trouble: str, now_s: float
) -> PartitionStatus:
    """Of a copy that goes on, unless there is `trouble` with the source's brokers."""
    seen = copy.source_high_watermark != UNKNOWN
    trouble = copy.reason or trouble or silence(copy.source_silence_s(now_s), settings.fetch_limits.max_wait_ms / 1000)
    return PartitionStatus(
        "Unreachable" if trouble else "Replicating",
        end,
        copy.source_high_watermark,
        copy.lag if seen else UNKNOWN,
        round(copy.lag_s(now_s), 3) if seen else UNKNOWN,
        copy.last_record_epoch,
        trouble,
        lag_bytes=copy.lag_bytes if seen else UNKNOWN,
        silent_seconds=round(copy.source_silence_s(now_s), 3),
    )


def silence(silent_s: float, waits_s: float) -> str:
    """What is wrong with a source that has not answered for so long; empty when nothing is. `waits_s`: for how long a fetch may wait for records."""
    most_s = waits_s + SILENT_AFTER_S
    return f"no broker of the source has answered for it for more than {most_s:g} seconds" if silent_s > most_s else ""


def _newest(known: MirroredPartitionRecord) -> int:
    return known.epochs[-1][0] if known.epochs else NO_EPOCH


def _json(told: msgspec.Struct) -> str:
    return msgspec.json.encode(told).decode()


def read_only_entry(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name, value, ConfigSource.DYNAMIC_MIRROR_CONFIG, (), True, False, ConfigType.STRING, "")
