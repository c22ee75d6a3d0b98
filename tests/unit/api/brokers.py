"""A broker with only what Produce and Fetch need: logs in a folder and partitions that it leads. It
has no metadata log and no controller.
"""

import asyncio
import struct
from pathlib import Path
from typing import Any, cast

from ottla_broker.broker import Broker
from ottla_broker.config import Config
from ottla_broker.connection_limits import ConnectionLimits
from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import OsDisk
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.recovery import create_log
from ottla_broker.log.storage import Storage
from ottla_broker.metadata.failure_detector import FailureDetector
from ottla_broker.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from ottla_broker.metadata.records import Endpoint, PartitionRecord
from ottla_broker.replication.cluster_view import MetadataClusterView
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.runtime import Runtime
from ottla_broker.security.audit import BrokerLogAudit
from ottla_broker.security.authorizer import AllowAll, Authorizer
from ottla_broker.security.client_quota_manager import ClientQuotaManager, QuotaWindows
from ottla_broker.security.principal import Principal
from ottla_broker.server import Server
from ottla_broker.wire.channel_builder import ChannelBuilder
from ottla_broker.wire.codec import write_request
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch

ME = 1


class MissingController:
    """A controller channel that fails at once."""

    async def forward_frame(self, frame: bytes | bytearray, principal: Principal, host: str) -> bytes | None:
        raise KafkaError(ErrorCode.not_controller, "a small broker has no controller")


class SmallBroker:
    """Broker 1. `settings`: of the broker, with underscores for dots."""

    def __init__(self, directory: Path, **settings: str) -> None:
        base = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
        self.config = Config.of(base | {name.replace("_", "."): value for name, value in settings.items()})
        self.runtime = Runtime()
        self.node_id = ME
        self.cluster_id = "a-cluster"
        self.image = MetadataImage(controller_id=ME)
        self.controller_id = ME
        self.partitions = Partitions(self.image)
        self.audit_log = BrokerLogAudit(lambda: 0.0)
        self.client_quotas = ClientQuotaManager(QuotaWindows(), lambda: 0.0)
        self.authorizer: Authorizer = AllowAll()
        self.controller = None
        self.controller_channel = MissingController()
        self.failure_detector = FailureDetector(ME, self.image, "PLAINTEXT")
        self.channels = ChannelBuilder()
        self.ready = True
        self.started = asyncio.Event()
        self.started.set()
        self._storage = Storage(OsDisk(), self.runtime)
        self._directory = directory

    def add_topic(
        self, name: str, partitions: int = 1, config: LogConfig | None = None, replicas: tuple[int, ...] = (ME,)
    ) -> list[Partition]:
        """Creates a topic that this broker leads. `replicas`: of each partition, all in sync."""
        topic = TopicImage(name, self.runtime.new_uuid())
        self.image.topics[name] = topic
        self.image.topic_names[topic.id] = name
        added = []
        for index in range(partitions):
            state = PartitionRecord(topic.id, index, replicas, replicas, ME)
            topic.partitions[index] = state
            folder = str(self._directory / f"{name}-{index}")
            log = create_log(self._storage, folder, name, index, topic.id, config or LogConfig())
            partition = self._partition(topic, log, state)
            self.partitions.add(partition)
            added.append(partition)
        return added

    def _partition(self, topic: TopicImage, log: PartitionLog, state: PartitionRecord) -> Partition:
        def unexpected(partition: Partition) -> None:
            raise AssertionError(f"{partition!r} changes its ISR")

        cluster = MetadataClusterView(self.image)
        return Partition(
            topic.name, topic.id, state.partition, log, state, ME, self.runtime.now_ms, cluster, unexpected
        )

    def register(self, port: int) -> None:
        """Adds this broker to the metadata image, with an endpoint on this port."""
        endpoint = {"PLAINTEXT": Endpoint("127.0.0.1", port)}
        incarnation = self.runtime.new_uuid()
        self.image.brokers[ME] = BrokerRegistration(ME, 0, incarnation, endpoint, None, (), fenced=False)

    async def auto_create_topic(self, name: str, *, allowed: bool = True) -> None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")

    def close(self) -> None:
        for partition in self.partitions:
            partition.log.close()


def create_server(broker: SmallBroker, limits: ConnectionLimits | None = None) -> Server:
    return Server(cast(Broker, broker), limits)


async def start_listening(server: Server) -> int:
    """Starts to serve, and returns the port."""
    port = server.bind()["PLAINTEXT"].port
    await server.serve()
    return port


def context(broker: SmallBroker, version: int, authorizer: Authorizer | None = None) -> RequestContext:
    return RequestContext(
        cast(Broker, broker), ConnectionState("127.0.0.1", 1, "PLAINTEXT"), version, "me", authorizer or AllowAll()
    )


def batch(*values: bytes, **options: Any) -> bytes:
    return encode_batch([Record(1_000, None, value) for value in values], **options)


def append(partition: Partition, *values: bytes, **options: Any) -> None:
    """Appends one batch with acks=all, as a client's or, with `control`, as the broker's own."""
    partition.append_records(batch(*values, **options), acks=-1, from_client=not options.get("control", False))


class RawConnection:
    """A client connection that sends and receives single frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> "RawConnection":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))

    def send(self, key: int, version: int, correlation_id: int, request: object) -> None:
        self.writer.write(write_request(key, version, correlation_id, "me", request))

    async def receive(self) -> bytes:
        """The next frame without its size. Raises IncompleteReadError if the broker closes the
        connection.
        """
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def is_closed_by_peer(self) -> bool:
        """Waits for the next byte or the end. True if the broker closes the connection and sends
        nothing.
        """
        try:
            return await self._reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()
