"""The parts of a broker that serve share groups, and how they are connected. They are built when
the broker gets its first request of a share group, or begins to lead a partition of
`__share_group_state`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ottla_broker.config import Config
from ottla_broker.coordination.broker_connections import BrokerConnections
from ottla_broker.coordination.records import SHARE_STATE_TOPIC
from ottla_broker.coordination.remote_appender import RemoteAppender
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.replication.partitions import Partitions
from ottla_broker.runtime import Runtime
from ottla_broker.share_groups.dead_letter_writer import DeadLetterWriter
from ottla_broker.share_groups.share_coordinator import ShareCoordinator
from ottla_broker.share_groups.share_group_config import ShareCoordinatorConfig
from ottla_broker.share_groups.share_partitions import SharePartitions
from ottla_broker.share_groups.share_state_client import ShareStateClient
from ottla_broker.wire.channel_builder import ChannelBuilder


@dataclass(eq=False, repr=False)
class ShareGroups:
    coordinator: ShareCoordinator
    states: ShareStateClient
    partitions: SharePartitions
    connections: BrokerConnections

    def close(self) -> None:
        self.partitions.close()
        self.coordinator.close()
        self.connections.close()


def build_share_groups(
    config: Config,
    runtime: Runtime,
    image: MetadataImage,
    partitions: Partitions,
    channels: ChannelBuilder,
    is_in_session: Callable[[], bool],
    create_topic: Callable[[str], Awaitable[None]],
    create_dead_letter_topic: Callable[[str], Awaitable[None]],
    remote: RemoteAppender,
) -> ShareGroups:
    node_id = config.node_id

    def partition_count() -> int:
        topic = image.topics.get(SHARE_STATE_TOPIC)
        return len(topic.partitions) if topic else 0

    coordinator = ShareCoordinator(runtime, ShareCoordinatorConfig.from_config(config), partition_count, is_in_session)
    connections = BrokerConnections(image, config.inter_broker_listener, f"broker-{node_id}", channels)
    states = ShareStateClient(node_id, image, coordinator, connections.send, create_topic)
    dead_letters = DeadLetterWriter(config, image, partitions, remote, create_dead_letter_topic, runtime.now_ms)
    share_partitions = SharePartitions(config, image, partitions, states, is_in_session, runtime.now_ms, dead_letters)
    return ShareGroups(coordinator, states, share_partitions, connections)
