"""Topics: list, describe, create, add partitions, delete."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.describe_topic_partitions.v0.request import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32, i32Timedelta

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import KafkaClient, none_on_error, raise_for_error

TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=30))


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Leader and replicas are broker ids; `leader` is −1 if there is none."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]

    @property
    def replication_factor(self) -> int:
        """The smallest number of replicas of any partition."""
        return min((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class EligibleLeaders:
    """Replicas outside of the ISR that may become leader (KIP-966).

    `eligible`: they have every committed record. `last_known`: the last leader, if neither ISR nor
    eligible replicas exist.
    """

    eligible: tuple[int, ...]
    last_known: tuple[int, ...]


async def list_topics(client: KafkaClient) -> list[TopicDescription]:
    """Every topic, sorted by name, without those that the broker describes with an error."""
    response: MetadataResponse = await client.send(_metadata_request(None))
    return sorted((_description(it) for it in response.topics if not it.error_code), key=lambda it: it.name)


async def describe_topics(client: KafkaClient, names: Iterable[str]) -> dict[str, TopicDescription]:
    """The named topics, without those that do not exist or have an invalid name (see
    `require_topics`). Raises KafkaError for other errors of a topic.
    """
    requested = tuple(names)
    if not requested:
        return {}
    response: MetadataResponse = await client.send(_metadata_request(requested))
    missing = (ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_topic_exception)
    found: dict[str, TopicDescription] = {}
    for topic in response.topics:
        if topic.error_code in missing or topic.name is None:
            continue
        # Partitions may lack a leader.
        raise_for_error(topic.error_code, None, f"topic {topic.name!r}", allow=(ErrorCode.leader_not_available,))
        found[topic.name] = _description(topic)
    return found


async def describe_topic(client: KafkaClient, name: str) -> TopicDescription:
    """Raises KafkaError if the topic does not exist."""
    return (await require_topics(client, (name,)))[name]


async def require_topics(client: KafkaClient, names: Iterable[str]) -> dict[str, TopicDescription]:
    """The named topics. Raises KafkaError if one of them does not exist."""
    requested = set(names)
    found = await describe_topics(client, requested)
    if missing := sorted(requested - found.keys()):
        code = ErrorCode.unknown_topic_or_partition
        raise KafkaError(code, f"there is no topic {', '.join(map(repr, missing))}")
    return found


async def create_topic(
    client: KafkaClient, name: str, partitions: int, replicas: int, config: Mapping[str, str]
) -> UUID | None:
    """Creates a topic and returns its id; None if the brokers do not report it. `partitions`,
    `replicas`: −1 for the brokers' defaults.
    """
    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(replicas),
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in config.items()),
    )
    (result,) = (await client.send_to_controller(CreateTopicsRequest(topics=(topic,), timeout=TIMEOUT))).topics
    raise_for_error(result.error_code, result.error_message, f"topic {name!r}")
    topic_id: UUID | None = result.topic_id
    return topic_id


async def create_partitions(client: KafkaClient, name: str, partitions: int) -> None:
    """Increases the number of partitions to `partitions`."""
    topic = CreatePartitionsTopic(name=TopicName(name), count=i32(partitions), assignments=None)
    request = CreatePartitionsRequest(topics=(topic,), timeout=TIMEOUT, validate_only=False)
    (result,) = (await client.send_to_controller(request)).results
    raise_for_error(result.error_code, result.error_message, f"topic {name!r}")


async def delete_topic(client: KafkaClient, name: str) -> None:
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=TopicName(name), topic_id=None),), timeout=TIMEOUT)
    (result,) = (await client.send_to_controller(request)).responses
    raise_for_error(result.error_code, result.error_message, f"topic {name!r}")


async def delete_topic_by_id(client: KafkaClient, topic_id: UUID) -> bool:
    """Deletes a topic, but not a later topic with its name. Returns False if it did not exist."""
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=None, topic_id=topic_id),), timeout=TIMEOUT)
    (result,) = (await client.send_to_controller(request)).responses
    subject = f"topic {result.name or topic_id!s}"
    raise_for_error(result.error_code, result.error_message, subject, allow=(ErrorCode.unknown_topic_id,))
    return result.error_code is ErrorCode.none


async def request_auto_creation(client: KafkaClient, name: str) -> None:
    """Requests a topic's metadata, which creates the topic if the brokers have
    auto.create.topics.enable.
    """
    await client.send(_metadata_request((name,), allow_auto_creation=True))


async def describe_eligible_leaders(client: KafkaClient, topic: str) -> dict[int, EligibleLeaders]:
    """Partition index → eligible leaders. Empty if the brokers do not support
    DescribeTopicPartitions.
    """
    found: dict[int, EligibleLeaders] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(topics=(TopicRequest(name=TopicName(topic)),), cursor=cursor)
        response = await none_on_error(client.send(request), ErrorCode.unsupported_version)
        if response is None:
            return {}
        for result in response.topics:
            raise_for_error(result.error_code, None, f"topic {topic!r}")
            for partition in result.partitions:
                eligible = tuple(partition.eligible_leader_replicas or ())
                last_known = tuple(partition.last_known_elr or ())
                found[partition.partition_index] = EligibleLeaders(eligible, last_known)
        if (next_ := response.next_cursor) is None:
            return found
        cursor = Cursor(topic_name=next_.topic_name, partition_index=next_.partition_index)


def _metadata_request(names: tuple[str, ...] | None, *, allow_auto_creation: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=None
        if names is None
        else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(it)) for it in names),
        allow_auto_topic_creation=allow_auto_creation,
        include_topic_authorized_operations=False,
    )


def _description(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = tuple(
        PartitionInfo(
            it.partition_index,
            it.leader_id,
            it.leader_epoch,
            tuple(it.replica_nodes),
            tuple(it.isr_nodes),
            tuple(it.offline_replicas),
        )
        for it in sorted(topic.partitions, key=lambda it: it.partition_index)
    )
    return TopicDescription(str(topic.name), topic.topic_id, topic.is_internal, partitions)
