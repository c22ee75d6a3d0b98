"""The parts of a broker that serve transactions, and how they are connected."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ottla_broker.config import (
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS,
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS,
    TRANSACTION_PARTITION_VERIFICATION_ENABLE,
    Config,
)
from ottla_broker.coordination.broker_connections import BrokerConnections
from ottla_broker.coordination.group_coordinator import GroupCoordinator
from ottla_broker.coordination.records import TRANSACTION_STATE_TOPIC
from ottla_broker.metadata.features import TRANSACTION_VERSION
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.replication.partitions import Partitions
from ottla_broker.runtime import Runtime
from ottla_broker.transactions.marker_sender import MarkerSender
from ottla_broker.transactions.marker_writer import MarkerWriter
from ottla_broker.transactions.transaction_config import TransactionConfig
from ottla_broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla_broker.transactions.verification import TransactionVerifier
from ottla_broker.wire.channel_builder import ChannelBuilder


@dataclass(eq=False, repr=False)
class Transactions:
    coordinator: TransactionCoordinator
    marker_writer: MarkerWriter
    verifier: TransactionVerifier
    _config: Config
    _marker_sender: MarkerSender
    _connections: BrokerConnections

    @property
    def verifies_partitions(self) -> bool:
        return self._config(TRANSACTION_PARTITION_VERIFICATION_ENABLE)

    def close(self) -> None:
        self.coordinator.close()
        self._marker_sender.close()
        self._connections.close()


def build_transactions(
    config: Config,
    runtime: Runtime,
    image: MetadataImage,
    partitions: Partitions,
    groups: GroupCoordinator,
    channels: ChannelBuilder,
    is_in_session: Callable[[], bool],
    generate_producer_id: Callable[[], Awaitable[int]],
) -> Transactions:
    node_id = config.node_id
    connections = BrokerConnections(image, config.inter_broker_listener, f"broker-{node_id}", channels)
    writer = MarkerWriter(image, partitions, runtime, groups)
    sender = MarkerSender(node_id, image, writer, connections.send)

    def partition_count() -> int:
        topic = image.topics.get(TRANSACTION_STATE_TOPIC)
        return len(topic.partitions) if topic else 0

    coordinator = TransactionCoordinator(
        runtime,
        TransactionConfig.from_config(config),
        partition_count,
        is_in_session,
        generate_producer_id,
        lambda: image.feature_level(TRANSACTION_VERSION),
        sender.write_markers,
    )
    verifier = TransactionVerifier(
        node_id,
        image,
        coordinator,
        connections.send,
        lambda: config(ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS),
        lambda: config(ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS),
    )
    return Transactions(coordinator, writer, verifier, config, sender, connections)
