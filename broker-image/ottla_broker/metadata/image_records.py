"""An image as the records that would make it again: what a snapshot holds.

Invariant: an image that is made from `records_of(image)` equals the image, whatever history the first had.
"""

from ottla_broker.metadata.image import BrokerImage, Changes, Image
from ottla_broker.metadata.records import (
    NO_LEADER,
    BrokerChange,
    ConfigRecord,
    ControllerChange,
    MetadataRecord,
    ProducerIds,
    RegisterBroker,
    TopicRecord,
)


def records_of(image: Image, epoch: int) -> list[MetadataRecord]:
    """`epoch`: of the last record that the image holds. Costs one reference for each partition, so that it may be done where nobody may wait."""
    found: list[MetadataRecord] = [
        ControllerChange(broker, epoch)
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
    found += image.mirrored.values()
    found += image.mirrored_partitions.values()
    found += (source for sources in image.appended.values() for source in sources.values())
    found += image.appended_partitions.values()
    if image.next_producer_id:
        found.append(ProducerIds(image.next_producer_id))
    return found


def _broker(broker: BrokerImage) -> list[MetadataRecord]:
    return [
        RegisterBroker(
            broker.id,
            broker.incarnation,
            broker.endpoints,
            broker.rack,
            broker.directories,
            broker.http,
            epoch=broker.epoch,
        ),
        BrokerChange(broker.id, broker.epoch, broker.fenced, broker.shutting_down),
    ]


def become(image: Image, other: Image) -> Changes:
    """Makes `image` what `other` is, and says what changed by it. `other` is not to be used afterwards."""
    removed = [topic for name, topic in image.topics.items() if getattr(other.topics.get(name), "id", None) != topic.id]
    changes = Changes(
        created=[name for name, topic in other.topics.items() if topic.id not in image.topic_names],
        removed=removed,
        partitions={(name, partition) for name, topic in other.topics.items() for partition in topic.partitions},
        configs=image.configs.keys() | other.configs.keys(),
        brokers=image.brokers.keys() | other.brokers.keys(),
        mirrored={other.topic_names[topic] for topic in other.mirrored.keys() | other.appended.keys()},
    )
    for field in Image.__dataclass_fields__:
        setattr(image, field, getattr(other, field))
    return changes
