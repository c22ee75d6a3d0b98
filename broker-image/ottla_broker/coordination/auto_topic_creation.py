"""Automatic creation of topics that clients name (`auto.create.topics.enable`) and of the
coordinators' topics, `__consumer_offsets`, `__transaction_state` and `__share_group_state`.

The controller creates them; the caller waits until they are in this broker's image. A configured
replication factor is requested as it is, and rejected while there are too few brokers; a default
one is lowered to the number of brokers.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from ottla_broker.config import (
    AUTO_CREATE_TOPICS_ENABLE,
    DEFAULT_REPLICATION_FACTOR,
    ERRORS_DEADLETTERQUEUE_GROUP_ENABLE,
    NUM_PARTITIONS,
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
    SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR,
    SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS,
    SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR,
    SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES,
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_SEGMENT_BYTES,
    Config,
    Setting,
)
from ottla_broker.coordination.records import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla_broker.metadata.controller_channel import ControllerChannel
from ottla_broker.metadata.image import INTERNAL_TOPICS, MetadataImage
from ottla_broker.metadata.state_condition import StateCondition
from ottla_broker.metadata.topic_names import validate_topic_name
from ottla_broker.wire.errors import ErrorCode, KafkaError

IMAGE_TIMEOUT_S: Final = 2.0


class NewTopic(NamedTuple):
    name: str
    partitions: int
    replicas: int
    configs: dict[str, str]


def auto_replication_factor(config: Config, image: MetadataImage, setting: Setting[int]) -> int:
    """The configured replication factor, or a default one lowered to the number of registered
    brokers.
    """
    wanted = config(setting)
    return wanted if config.is_set(setting) else max(1, min(wanted, len(image.brokers)))


@dataclass(eq=False, repr=False)
class AutoTopicCreator:
    _config: Config
    _image: MetadataImage
    _image_condition: StateCondition
    _channel: ControllerChannel

    async def create_topic(self, name: str, *, allowed: bool = True) -> None:
        """Creates a topic that a client asked for, if the request (`allowed`) and
        `auto.create.topics.enable` allow it. A coordinator's topic is created in any case. Returns
        when the topic is in the image.

        Raises UNKNOWN_TOPIC_OR_PARTITION if the topic may not be created or is not in the image in
        time, INVALID_TOPIC_EXCEPTION, the controller's error such as INVALID_REPLICATION_FACTOR,
        and NOT_CONTROLLER without a controller."""
        validate_topic_name(name)
        if name == OFFSETS_TOPIC:
            await self._create_if_missing(self._offsets_topic())
        elif name == TRANSACTION_STATE_TOPIC:
            await self._create_if_missing(self._transaction_state_topic())
        elif name == SHARE_STATE_TOPIC:
            await self._create_if_missing(self._share_state_topic())
        elif allowed and self._config(AUTO_CREATE_TOPICS_ENABLE) and name not in INTERNAL_TOPICS:
            await self._create_if_missing(self._default_topic(name, {}))
        else:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {name!r} does not exist")

    async def create_audit_topic(self, name: str) -> None:
        """Returns when `audit.topic` is in the image. Raises what `create_topic` raises."""
        validate_topic_name(name)
        await self._create_if_missing(self._default_topic(name, {}))

    async def create_dead_letter_topic(self, name: str) -> None:
        """Returns when a dead-letter topic of share groups is in the image. Raises what
        `create_topic` raises."""
        validate_topic_name(name)
        await self._create_if_missing(self._default_topic(name, {ERRORS_DEADLETTERQUEUE_GROUP_ENABLE.name: "true"}))

    async def _create_if_missing(self, topic: NewTopic) -> None:
        if topic.name in self._image.topics:
            return
        # Imported here: these classes would take 5 ms of a broker's start, and few brokers create a
        # topic.
        from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
        from kio.schema.create_topics.v7.response import CreateTopicsResponse
        from kio.schema.types import TopicName
        from kio.static.primitive import i16, i32

        creatable = CreatableTopic(
            name=TopicName(topic.name),
            num_partitions=cast(i32, topic.partitions),
            replication_factor=cast(i16, topic.replicas),
            assignments=(),
            configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()),
        )
        request = CreateTopicsRequest(topics=(creatable,))
        response: CreateTopicsResponse = await self._channel.send_request(request)
        [made] = response.topics
        if made.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise KafkaError(made.error_code, made.error_message)
        if not await self._image_condition.wait_for(
            lambda: topic.name in self._image.topics, timeout_s=IMAGE_TIMEOUT_S
        ):
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"topic {topic.name!r} is not in this broker's metadata yet"
            )

    def _default_topic(self, name: str, configs: dict[str, str]) -> NewTopic:
        factor = auto_replication_factor(self._config, self._image, DEFAULT_REPLICATION_FACTOR)
        return NewTopic(name, self._config(NUM_PARTITIONS), factor, configs)

    def _offsets_topic(self) -> NewTopic:
        return NewTopic(
            OFFSETS_TOPIC,
            self._config(OFFSETS_TOPIC_NUM_PARTITIONS),
            auto_replication_factor(self._config, self._image, OFFSETS_TOPIC_REPLICATION_FACTOR),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(self._config(OFFSETS_TOPIC_SEGMENT_BYTES)),
            },
        )

    def _transaction_state_topic(self) -> NewTopic:
        factor = auto_replication_factor(self._config, self._image, TRANSACTION_STATE_LOG_REPLICATION_FACTOR)
        min_isr = self._min_isr(TRANSACTION_STATE_LOG_MIN_ISR, factor)
        return NewTopic(
            TRANSACTION_STATE_TOPIC,
            self._config(TRANSACTION_STATE_LOG_NUM_PARTITIONS),
            factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min_isr),
                "segment.bytes": str(self._config(TRANSACTION_STATE_LOG_SEGMENT_BYTES)),
                "unclean.leader.election.enable": "false",
            },
        )

    def _share_state_topic(self) -> NewTopic:
        """Not compacted, as in Kafka: the coordinator deletes what lies before its snapshots."""
        factor = auto_replication_factor(self._config, self._image, SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR)
        return NewTopic(
            SHARE_STATE_TOPIC,
            self._config(SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS),
            factor,
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(self._min_isr(SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR, factor)),
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "segment.bytes": str(self._config(SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES)),
            },
        )

    def _min_isr(self, setting: Setting[int], factor: int) -> int:
        """As configured, or a default one lowered to the number of replicas."""
        wanted = self._config(setting)
        return wanted if self._config.is_set(setting) else min(wanted, factor)
