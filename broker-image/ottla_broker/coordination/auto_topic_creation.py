"""Topics that a broker makes because somebody spoke of them: a client's, where that is allowed, and the coordinators' own.

The controller makes them; the answer waits until this broker knows them too. A replication factor that somebody has set is asked for as it is, and
refused while there are too few brokers; one that nobody has set gives way to a cluster that is smaller. Kafka's other internal topics belong to coordinators that
are not here yet: made by a look at them, they would be ordinary topics that those could not use.
"""

from typing import Final, cast

from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from ottla_broker.config import (
    AUTO_CREATE_TOPICS_ENABLE,
    DEFAULT_REPLICATION_FACTOR,
    NUM_PARTITIONS,
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
    Config,
    Setting,
)
from ottla_broker.coordination.offsets_topic import OFFSETS_TOPIC
from ottla_broker.metadata.controller_channel import ControllerChannel
from ottla_broker.metadata.image import INTERNAL_TOPICS, MetadataImage
from ottla_broker.metadata.state_condition import StateCondition
from ottla_broker.metadata.topic_names import validate_topic_name
from ottla_broker.wire.errors import ErrorCode, KafkaError

KNOWN_WITHIN_S: Final = 2.0


def auto_replication_factor(config: Config, image: MetadataImage, setting: Setting[int]) -> int:
    """What a topic is to have when its creator does not say: at most as many as brokers are registered, unless somebody set it."""
    wanted = config(setting)
    return wanted if config.is_set(setting) else max(1, min(wanted, len(image.brokers)))


class AutoTopicCreator:
    def __init__(self, config: Config, image: MetadataImage, watch: StateCondition, link: ControllerChannel) -> None:
        self._config = config
        self._image = image
        self._watch = watch
        self._link = link

    async def create_topic(self, name: str, *, allowed: bool = True) -> None:
        """Returns when the topic is in the image. UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR, and
        NOT_CONTROLLER when there is no controller."""
        validate_topic_name(name)
        if name == OFFSETS_TOPIC:
            await self._ensure(self._offsets_topic())
        elif allowed and self._config(AUTO_CREATE_TOPICS_ENABLE) and name not in INTERNAL_TOPICS:
            factor = auto_replication_factor(self._config, self._image, DEFAULT_REPLICATION_FACTOR)
            await self._ensure(self._topic(name, self._config(NUM_PARTITIONS), factor, {}))
        else:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")

    async def _ensure(self, topic: CreatableTopic) -> None:
        if topic.name in self._image.topics:
            return
        request = CreateTopicsRequest(topics=(topic,))
        response: CreateTopicsResponse = await self._link.send_request(request)
        [made] = response.topics
        if made.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise KafkaError(made.error_code, made.error_message)
        if not await self._watch.wait_for(lambda: topic.name in self._image.topics, timeout_s=KNOWN_WITHIN_S):
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {topic.name!r} is not known here yet")

    def _offsets_topic(self) -> CreatableTopic:
        return self._topic(
            OFFSETS_TOPIC,
            self._config(OFFSETS_TOPIC_NUM_PARTITIONS),
            auto_replication_factor(self._config, self._image, OFFSETS_TOPIC_REPLICATION_FACTOR),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(self._config(OFFSETS_TOPIC_SEGMENT_BYTES)),
            },
        )

    def _topic(self, name: str, partitions: int, factor: int, configs: dict[str, str]) -> CreatableTopic:
        return CreatableTopic(
            name=TopicName(name),
            num_partitions=cast(i32, partitions),
            replication_factor=cast(i16, factor),
            assignments=(),
            configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
        )
