"""A controller with its image and a metadata log in memory, for unit tests."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ottla_broker.config import Config
from ottla_broker.metadata.cluster_control import BrokerHeartbeat, BrokerHeartbeatReply
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.records import Endpoint, MetadataRecord, PartitionRecord, RegisterBrokerRecord
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import KafkaError
from tests.unit.topic_creation import create_topic


class MemoryLog:
    """A metadata log that commits at once. `commit_error`: raised by the next commits. `commits`:
    the number of records of each commit. `majority_heard`: result of `hears_majority`.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.commit_error: KafkaError | None = None
        self.commits: list[int] = []
        self.majority_heard = True

    def hears_majority(self, within_s: float) -> bool:
        return self.majority_heard

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        await asyncio.sleep(0)
        if self.commit_error is not None:
            raise self.commit_error
        self.commits.append(len(records))
        return self._image.apply_records((self._image.end_offset + n, record) for n, record in enumerate(records))


class SmallController:
    """Broker 1 as the active controller. `image`: a new one if None. `settings`: of the broker,
    with underscores for dots. `brokers`, `replicas`: the controller's parts that decide about them.
    """

    def __init__(self, image: MetadataImage | None = None, **settings: str) -> None:
        self.image = image or MetadataImage(end_offset=100)
        self.log = MemoryLog(self.image)
        config_values = {name.replace("_", "."): value for name, value in settings.items()}
        config = Config.of({"log.dirs": "/nowhere", "node.id": "1", **config_values})
        self.controller = Controller(self.image, self.log, Runtime(), config, broker_id=1)
        self.brokers, self.replicas = self.controller.cluster_control, self.controller.replication_control

    async def add_brokers(self, *brokers: int) -> "SmallController":
        for broker in brokers:
            await self.register(broker)
            assert not (await self.heartbeat(broker)).is_fenced
        return self

    async def register(
        self, broker: int, *, incarnation: int = 0, directories: tuple[int, ...] | None = None, previous: int = -1
    ) -> int:
        """Returns the broker epoch. `previous`: that of the incarnation before; −1 if unknown."""
        registration = RegisterBrokerRecord(
            broker,
            UUID(int=incarnation or 100 + broker),
            {"PLAINTEXT": Endpoint(f"host-{broker}", 9092)},
            rack=f"r{broker % 2}",
            directories=tuple(UUID(int=d) for d in (directories or (1000 + broker,))),
        )
        return await self.brokers.register_broker(registration, previous)

    async def heartbeat(self, broker: int, **fields: Any) -> BrokerHeartbeatReply:
        heartbeat = {
            "broker_epoch": self.image.brokers[broker].epoch,
            "metadata_offset": self.image.end_offset - 1,
        } | fields
        return await self.brokers.process_heartbeat(BrokerHeartbeat(broker, **heartbeat))

    async def add_topic(
        self, name: str = "t", partitions: int = 1, replicas: Sequence[int] = (1, 2, 3), **config: str
    ) -> list[PartitionRecord]:
        """Creates a topic whose partitions all have the same replicas."""
        config_values = {key.replace("_", "."): value for key, value in config.items()}
        assignment = dict.fromkeys(range(partitions), replicas)
        await create_topic(self.controller, NewTopic(name, partitions, len(replicas), assignment, config_values))
        return list(self.image.topics[name].partitions.values())

    def state(self, partition: int = 0, topic: str = "t") -> PartitionRecord:
        return self.image.topics[topic].partitions[partition]

    def fenced(self) -> list[int]:
        return [broker.id for broker in self.image.brokers.values() if broker.fenced]
