"""What a broker is to copy into a partition that it leads, as the metadata say. Pure."""

from ottla_broker.metadata.appended_plans import known_partition as known_source
from ottla_broker.metadata.appended_sources import live
from ottla_broker.metadata.image import Image
from ottla_broker.metadata.mirror_plans import NO_OFFSET, known_partition, waits_to_join
from ottla_broker.metadata.records import MirroredTopic
from ottla_broker.mirroring.appending import Appending
from ottla_broker.mirroring.copying import Copy
from ottla_broker.mirroring.divergence import is_cut
from ottla_broker.mirroring.links import link
from ottla_broker.mirroring.positions import position_of
from ottla_broker.replication.partition import Partition


def wanted_copies(image: Image, partition: Partition) -> dict[str, Copy]:
    """By mirror."""
    if not partition.leads:
        return {}
    found = {}
    topic = image.closed(partition.topic_id)
    if topic is not None and _replicates(image, topic, partition) and not is_to_rejoin(image, topic, partition):
        known = known_partition(image, partition.topic_id, partition.partition)
        found[topic.mirror] = Copy(partition, topic.source_topic, topic.source_id, known.epochs)
    for source in live(image, partition.topic_id).values():
        settings = link(image, source.mirror)
        if settings is None or not settings.replicates or source.stopped or partition.partition >= source.partitions:
            continue
        of_source = known_source(image, partition.topic_id, source.source_id, partition.partition)
        if not of_source.stopped:
            so_far = position_of(partition.log.producers.get(source.producer_id))
            manner = Appending(source.producer_id, so_far, settings.resyncs)
            found[source.mirror] = Copy(partition, source.source_topic, source.source_id, of_source.epochs, manner)
    return found


def is_to_rejoin(image: Image, topic: MirroredTopic, partition: Partition) -> bool:
    """Whether a partition that had records of its own does not hold yet what its source has, and nothing else."""
    if topic.failed_over or not _replicates(image, topic, partition):
        return False
    known = known_partition(image, partition.topic_id, partition.partition)
    if waits_to_join(topic, known):
        return True
    return known.joined != NO_OFFSET and not is_cut(partition.log, known.joined, known.joined_epoch)


def _replicates(image: Image, topic: MirroredTopic, partition: Partition) -> bool:
    settings = link(image, topic.mirror)
    known = known_partition(image, partition.topic_id, partition.partition)
    return partition.leads and settings is not None and settings.replicates and not known.stopped
