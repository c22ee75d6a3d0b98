"""What a broker is to copy into a partition that it leads, as the metadata say. Pure."""

from ottla_broker.metadata.appended_plans import known_partition as known_source
from ottla_broker.metadata.appended_plans import live
from ottla_broker.metadata.image import Image
from ottla_broker.metadata.mirror_plans import known_partition
from ottla_broker.mirroring.appending import Appending
from ottla_broker.mirroring.copying import Copy
from ottla_broker.mirroring.links import link
from ottla_broker.mirroring.positions import position_of
from ottla_broker.replication.partition import Partition


def wanted_copies(image: Image, partition: Partition) -> dict[str, Copy]:
    """By mirror."""
    if not partition.leads:
        return {}
    found = {}
    topic = image.closed(partition.topic_id)
    if topic is not None and (settings := link(image, topic.mirror)) is not None and settings.replicates:
        known = known_partition(image, partition.topic_id, partition.partition)
        if not known.stopped:
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
