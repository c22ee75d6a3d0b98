"""What a broker is to copy into a partition that it leads, as the metadata say. Pure."""

from ottla_broker.metadata.appended_plans import appended_partition as known_source
from ottla_broker.metadata.appended_sources import active_sources
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.mirror_plans import NO_OFFSET, is_awaiting_join, mirrored_partition
from ottla_broker.metadata.records import MirroredTopicRecord
from ottla_broker.mirroring.appended_offsets import AppendedOffsets
from ottla_broker.mirroring.diverged_records import is_truncated
from ottla_broker.mirroring.mirror_config import mirror_config
from ottla_broker.mirroring.mirrored_partition import MirroredPartition
from ottla_broker.mirroring.source_positions import source_position
from ottla_broker.replication.partition import Partition


def desired_partitions(image: MetadataImage, partition: Partition) -> dict[str, MirroredPartition]:
    """By mirror."""
    if not partition.is_leader:
        return {}
    found = {}
    topic = image.active_mirror(partition.topic_id)
    if topic is not None and _replicates(image, topic, partition) and not needs_failback(image, topic, partition):
        known = mirrored_partition(image, partition.topic_id, partition.partition)
        found[topic.mirror] = MirroredPartition(partition, topic.source_topic, topic.source_id, known.epochs)
    for source in active_sources(image, partition.topic_id).values():
        settings = mirror_config(image, source.mirror)
        if (
            settings is None
            or not settings.is_replicating
            or source.stopped
            or partition.partition >= source.partitions
        ):
            continue
        of_source = known_source(image, partition.topic_id, source.source_id, partition.partition)
        if not of_source.stopped:
            so_far = source_position(partition.log.producers.get(source.producer_id))
            manner = AppendedOffsets(source.producer_id, so_far, settings.resyncs_on_truncation)
            found[source.mirror] = MirroredPartition(
                partition, source.source_topic, source.source_id, of_source.epochs, manner
            )
    return found


def needs_failback(image: MetadataImage, topic: MirroredTopicRecord, partition: Partition) -> bool:
    """Whether a partition that had records of its own does not hold yet what its source has, and nothing else."""
    if topic.failed_over or not _replicates(image, topic, partition):
        return False
    known = mirrored_partition(image, partition.topic_id, partition.partition)
    if is_awaiting_join(topic, known):
        return True
    return known.joined != NO_OFFSET and not is_truncated(partition.log, known.joined, known.joined_epoch)


def _replicates(image: MetadataImage, topic: MirroredTopicRecord, partition: Partition) -> bool:
    settings = mirror_config(image, topic.mirror)
    known = mirrored_partition(image, partition.topic_id, partition.partition)
    return partition.is_leader and settings is not None and settings.is_replicating and not known.stopped
