"""How far sources have come that are appended to a topic, as entries of DescribeConfigs for resource type 102, beside `mirror_status`'s.

`sources` (JSON) is what those need who copy the topic. `<mirror>/source.topic` and `<mirror>/source.partitions` (how many) tell of each source what the metadata say, which every broker
knows; `<mirror>/<partition>` is a `PartitionStatus` in JSON, given by the broker that leads
the partition. Its `end` is the offset of the source up to which that was copied; where records of it lie in the topic is another matter.
"""

from collections.abc import Iterable

import msgspec

from ottla_broker.broker import Broker
from ottla_broker.config import PAUSED, ConfigEntry
from ottla_broker.metadata.appended_plans import appended_partition
from ottla_broker.metadata.appended_sources import describe_sources
from ottla_broker.metadata.image import TopicImage
from ottla_broker.metadata.records import AppendedSourceRecord
from ottla_broker.mirroring.mirror_config import mirror_config
from ottla_broker.mirroring.source_cluster import ORIGINS, SOURCES, origin_clusters
from ottla_broker.mirroring.source_positions import source_position
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.mirror_status import UNKNOWN, PartitionStatus, live_status, read_only_entry


def appended_topic_entries(broker: Broker, name: str, now_s: float) -> list[ConfigEntry]:
    """Nothing for a topic to which nothing is, or was, appended."""
    topic = broker.image.topics.get(name)
    if topic is None or topic.id not in broker.image.appended_sources:
        return []
    sources = _newest(broker.image.appended_sources[topic.id].values())
    found = [read_only_entry(SOURCES, msgspec.json.encode(describe_sources(broker.image, topic.id)).decode())]
    for mirror, source in sorted(sources.items()):
        found.append(read_only_entry(f"{mirror}/source.topic", source.source_topic))
        found.append(read_only_entry(f"{mirror}/source.partitions", str(source.partitions)))
    if topic.id not in broker.image.mirrored_topics:
        found.append(read_only_entry(ORIGINS, ",".join(sorted(origin_clusters(broker.image, name)))))
    led = [
        partition
        for index in sorted(topic.partitions)
        if (partition := broker.partitions.get(name, index)) is not None and partition.is_leader
    ]
    for mirror, source in sorted(sources.items()):
        for partition in led:
            if partition.partition < source.partitions:
                how = msgspec.json.encode(appended_partition_status(broker, topic, source, partition, now_s)).decode()
                found.append(read_only_entry(f"{mirror}/{partition.partition}", how))
    return found


def _newest(sources: Iterable[AppendedSourceRecord]) -> dict[str, AppendedSourceRecord]:
    """By mirror of this cluster; of a topic that was made anew at the source the one that it is now."""
    own = (source for source in sources if not source.carried)
    return {source.mirror: source for source in sorted(own, key=lambda one: not one.ended)}


def appended_partition_status(
    broker: Broker, topic: TopicImage, source: AppendedSourceRecord, partition: Partition, now_s: float
) -> PartitionStatus:
    """As the partition's leader knows it."""
    known = appended_partition(broker.image, topic.id, source.source_id, partition.partition)
    end = source_position(partition.log.producers.get(source.producer_id))
    epoch = known.epochs[-1][0] if known.epochs else UNKNOWN
    if source.ended:
        return PartitionStatus(
            "FailedOver", end, *broker.mirrors.last_known_lag(partition, source.mirror), source_epoch=epoch
        )
    if why := source.stopped or known.stopped:
        return PartitionStatus("Stopped", end, source_epoch=epoch, why=why)
    settings = mirror_config(broker.image, source.mirror)
    copy = broker.mirrors.mirrored_partition(partition, source.mirror)
    if settings is None or settings.role == PAUSED or copy is None:
        return PartitionStatus("Paused", end, source_epoch=epoch)
    return live_status(copy, copy.position, settings, broker.mirrors.source_error(source.mirror), now_s)
