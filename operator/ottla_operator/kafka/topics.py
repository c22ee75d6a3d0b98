"""Topics and their settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta

from ottla_broker.wire.errors import ErrorCode
from ottla_operator.kafka.client import KafkaClient, raise_for_error

TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=30))
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
SET: Final = 0
DELETE: Final = 1

# Where a setting's value comes from (DescribeConfigs' config_source).
SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "file",
    5: "default",
    6: "logger",
    7: "client-metrics",
    8: "group",
}


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Broker ids; -1 as leader means that there is none."""

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
        """The fewest that a partition has."""
        return min((len(it.replicas) for it in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """`value` is None where it is secret. `source`: one of SOURCES' words."""

    name: str
    value: str | None
    source: str
    read_only: bool
    documentation: str


async def list_topics(link: KafkaClient) -> list[TopicDescription]:
    """Every topic, by name."""
    answer: MetadataResponse = await link.ask(_metadata(None))
    return sorted((_topic(it) for it in answer.topics if not it.error_code), key=lambda it: it.name)


async def describe_topics(link: KafkaClient, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Those of the named topics that there are. KafkaError when a broker refuses to tell."""
    wanted = tuple(names)
    if not wanted:
        return {}
    answer: MetadataResponse = await link.ask(_metadata(wanted))
    found: dict[str, TopicDescription] = {}
    for it in answer.topics:
        if (
            it.error_code in (ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_topic_exception)
            or it.name is None
        ):
            continue
        # Partitions without a leader are still partitions: only what concerns the topic is an error.
        raise_for_error(it.error_code, None, f"topic {it.name!r}", allow=(ErrorCode.leader_not_available,))
        found[it.name] = _topic(it)
    return found


async def create_topic(
    link: KafkaClient, name: str, partitions: int, replicas: int, config: Mapping[str, str]
) -> UUID | None:
    """Makes a topic; -1 leaves a number to the brokers. Its id, where the brokers tell."""
    request = CreateTopicsRequest(
        topics=(
            CreatableTopic(
                name=TopicName(name),
                num_partitions=i32(partitions),
                replication_factor=i16(replicas),
                assignments=(),
                configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in config.items()),
            ),
        ),
        timeout=TIMEOUT,
    )
    (result,) = (await link.ask_controller(request)).topics
    raise_for_error(result.error_code, result.error_message, f"topic {name!r}")
    topic_id: UUID | None = result.topic_id
    return topic_id


async def create_partitions(link: KafkaClient, name: str, partitions: int) -> None:
    """Adds partitions, to `partitions` in all."""
    request = CreatePartitionsRequest(
        topics=(CreatePartitionsTopic(name=TopicName(name), count=i32(partitions), assignments=None),),
        timeout=TIMEOUT,
        validate_only=False,
    )
    (result,) = (await link.ask_controller(request)).results
    raise_for_error(result.error_code, result.error_message, f"topic {name!r}")


async def delete_topic(link: KafkaClient, name: str) -> None:
    """Deletes a topic with all its records."""
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=TopicName(name), topic_id=None),), timeout=TIMEOUT)
    (result,) = (await link.ask_controller(request)).responses
    raise_for_error(result.error_code, result.error_message, f"topic {name!r}")


async def delete_topic_by_id(link: KafkaClient, topic_id: UUID) -> bool:
    """Deletes a topic with all its records, and no other that has its name by now. Whether it was there."""
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=None, topic_id=topic_id),), timeout=TIMEOUT)
    (result,) = (await link.ask_controller(request)).responses
    allowed = (ErrorCode.unknown_topic_id,)
    raise_for_error(result.error_code, result.error_message, f"topic {result.name or topic_id!s}", allow=allowed)
    return result.error_code is ErrorCode.none


async def alter_topic_config(link: KafkaClient, name: str, to_set: Mapping[str, str], to_unset: Sequence[str]) -> None:
    """Sets some of a topic's settings and takes others off it."""
    changes = [
        *(AlterableConfig(name=key, config_operation=i8(SET), value=value) for key, value in to_set.items()),
        *(AlterableConfig(name=key, config_operation=i8(DELETE), value=None) for key in to_unset),
    ]
    request = IncrementalAlterConfigsRequest(
        resources=(AlterConfigsResource(resource_type=i8(TOPIC_RESOURCE), resource_name=name, configs=tuple(changes)),),
        validate_only=False,
    )
    (result,) = (await link.ask_controller(request)).responses
    raise_for_error(result.error_code, result.error_message, f"topic {name!r}")


async def describe_topic_configs(link: KafkaClient, names: Iterable[str]) -> dict[str, list[ConfigEntry]]:
    """Every setting of each topic, its own and the inherited ones, by name."""
    wanted = tuple(names)
    if not wanted:
        return {}
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=i8(TOPIC_RESOURCE), resource_name=name, configuration_keys=None)
            for name in wanted
        ),
        include_documentation=True,
    )
    found: dict[str, list[ConfigEntry]] = {}
    for result in (await link.ask(request)).results:
        raise_for_error(result.error_code, result.error_message, f"topic {result.resource_name!r}")
        found[result.resource_name] = [
            ConfigEntry(
                it.name, it.value, SOURCES.get(it.config_source, "unknown"), it.read_only, it.documentation or ""
            )
            for it in sorted(result.configs, key=lambda it: str(it.name))
        ]
    return found


async def describe_topic_overrides(link: KafkaClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Only what is set on each topic itself."""
    return {
        name: {it.name: it.value or "" for it in found if it.source == "topic"}
        for name, found in (await describe_topic_configs(link, names)).items()
    }


async def request_auto_creation(link: KafkaClient, name: str) -> None:
    """Names a topic to a broker, which makes it if the cluster makes topics by asking (auto.create.topics.enable)."""
    await link.ask(_metadata((name,), make=True))


def _metadata(names: tuple[str, ...] | None, *, make: bool = False) -> MetadataRequest:
    topics = (
        None if names is None else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in names)
    )
    return MetadataRequest(topics=topics, allow_auto_topic_creation=make, include_topic_authorized_operations=False)


def _topic(told: MetadataResponseTopic) -> TopicDescription:
    partitions = sorted(told.partitions, key=lambda it: it.partition_index)
    return TopicDescription(
        str(told.name),
        told.topic_id,
        told.is_internal,
        tuple(
            PartitionInfo(
                it.partition_index,
                it.leader_id,
                it.leader_epoch,
                tuple(it.replica_nodes),
                tuple(it.isr_nodes),
                tuple(it.offline_replicas),
            )
            for it in partitions
        ),
    )
