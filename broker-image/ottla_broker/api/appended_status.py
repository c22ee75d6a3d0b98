"""How far sources have come that are appended to a topic, as entries of DescribeConfigs for resource type 102, beside `mirror_status`'s.

`sources` (JSON) is what those need who copy the topic. `<mirror>/source.topic` and `<mirror>/source.partitions` (how many) tell of each source what the metadata say, which every broker
knows; `<mirror>/<partition>` is a `PartitionStatus` in JSON, given by the broker that leads
the partition. Its `end` is the offset of the source up to which that was copied; where records of it lie in the topic is another matter.
"""

from collections.abc import Iterable

import msgspec

from ottla_broker.api.mirror_status import UNKNOWN, PartitionStatus, live_status, read_only_entry
from ottla_broker.broker import Broker
from ottla_broker.config import PAUSED, Entry
from ottla_broker.metadata.appended_plans import known_partition
from ottla_broker.metadata.appended_sources import told
from ottla_broker.metadata.image import TopicImage
from ottla_broker.metadata.records import AppendedSource
from ottla_broker.mirroring.links import link
from ottla_broker.mirroring.origins import ORIGINS, SOURCES, origins_of
from ottla_broker.mirroring.positions import position_of
from ottla_broker.replication.partition import Partition


def entries(broker: Broker, name: str, now_s: float) -> list[Entry]:
    """Nothing for a topic to which nothing is, or was, appended."""
    topic = broker.image.topics.get(name)
    if topic is None or topic.id not in broker.image.appended:
        return []
    sources = _newest(broker.image.appended[topic.id].values())
    found = [read_only_entry(SOURCES, msgspec.json.encode(told(broker.image, topic.id)).decode())]
    for mirror, source in sorted(sources.items()):
        found.append(read_only_entry(f"{mirror}/source.topic", source.source_topic))
        found.append(read_only_entry(f"{mirror}/source.partitions", str(source.partitions)))
    if topic.id not in broker.image.mirrored:
        found.append(read_only_entry(ORIGINS, ",".join(sorted(origins_of(broker.image, name)))))
    led = [
        partition
        for index in sorted(topic.partitions)
        if (partition := broker.partitions.get(name, index)) is not None and partition.leads
    ]
    for mirror, source in sorted(sources.items()):
        for partition in led:
            if partition.partition < source.partitions:
                how = msgspec.json.encode(status(broker, topic, source, partition, now_s)).decode()
                found.append(read_only_entry(f"{mirror}/{partition.partition}", how))
    return found


def _newest(sources: Iterable[AppendedSource]) -> dict[str, AppendedSource]:
    """By mirror of this cluster; of a topic that was made anew at the source the one that it is now."""
    own = (source for source in sources if not source.carried)
    return {source.mirror: source for source in sorted(own, key=lambda one: not one.ended)}


def status(
    broker: Broker, topic: TopicImage, source: AppendedSource, partition: Partition, now_s: float
) -> PartitionStatus:
    """As the partition's leader knows it."""
    known = known_partition(broker.image, topic.id, source.source_id, partition.partition)
    end = position_of(partition.log.producers.get(source.producer_id))
    epoch = known.epochs[-1][0] if known.epochs else UNKNOWN
    if source.ended:
        return PartitionStatus(
            "FailedOver", end, *broker.mirrors.last_seen(partition, source.mirror), source_epoch=epoch
        )
    if why := source.stopped or known.stopped:
        return PartitionStatus("Stopped", end, source_epoch=epoch, why=why)
    settings = link(broker.image, source.mirror)
    copy = broker.mirrors.copy_of(partition, source.mirror)
    if settings is None or settings.role == PAUSED or copy is None:
        return PartitionStatus("Paused", end, source_epoch=epoch)
    return live_status(copy, copy.position, settings, broker.mirrors.trouble(source.mirror), now_s)
