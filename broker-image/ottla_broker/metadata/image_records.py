"""An image as the records that would make it again: what a snapshot holds.

Invariant: an image that is made from `records_of(image)` equals the image, whatever history the first had.
"""

from ottla_broker.metadata.image import BrokerRegistration, MetadataDelta, MetadataImage
from ottla_broker.metadata.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    LeaderChangeRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)


def image_to_records(image: MetadataImage, epoch: int) -> list[MetadataRecord]:
    """`epoch`: of the last record that the image holds. Costs one reference for each partition, so that it may be done where nobody may wait."""
    found: list[MetadataRecord] = [
        LeaderChangeRecord(broker, epoch)
        for broker in (image.previous_controller_id, image.controller_id)
        if broker != NO_LEADER
    ]
    for broker in image.brokers.values():
        found += _broker(broker)
    for topic in image.topics.values():
        found.append(TopicRecord(topic.name, topic.id))
        found += topic.partitions.values()
    for (resource_type, name), config in image.configs.items():
        found += [ConfigRecord(resource_type, name, key, value) for key, value in config.items()]
    found += image.mirrored_topics.values()
    found += image.mirrored_partitions.values()
    found += (source for sources in image.appended_sources.values() for source in sources.values())
    found += image.appended_partitions.values()
    if image.next_producer_id:
        found.append(ProducerIdsRecord(image.next_producer_id))
    return found


def _broker(broker: BrokerRegistration) -> list[MetadataRecord]:
    return [
        RegisterBrokerRecord(
            broker.id,
            broker.incarnation,
            broker.endpoints,
            broker.rack,
            broker.directories,
            broker.http,
            epoch=broker.epoch,
        ),
        BrokerRegistrationChangeRecord(broker.id, broker.epoch, broker.fenced, broker.shutting_down),
    ]


def replace_image(image: MetadataImage, other: MetadataImage) -> MetadataDelta:
    """Makes `image` what `other` is, and says what changed by it. `other` is not to be used afterwards."""
    removed = [topic for name, topic in image.topics.items() if getattr(other.topics.get(name), "id", None) != topic.id]
    changes = MetadataDelta(
        created_topics=[name for name, topic in other.topics.items() if topic.id not in image.topic_names],
        deleted_topics=removed,
        changed_partitions={
            (name, partition) for name, topic in other.topics.items() for partition in topic.partitions
        },
        changed_configs=image.configs.keys() | other.configs.keys(),
        changed_brokers=image.brokers.keys() | other.brokers.keys(),
        changed_mirrors={
            other.topic_names[topic] for topic in other.mirrored_topics.keys() | other.appended_sources.keys()
        },
    )
    for field in MetadataImage.__dataclass_fields__:
        setattr(image, field, getattr(other, field))
    return changes
