"""A controller over an image, with a metadata log that commits at once (or fails, or waits)."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
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


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 20))

    return run


async def until(holds: Callable[[], object]) -> None:
    """Looks again and again; the test's own deadline ends it."""
    while not holds():  # noqa: ASYNC110 (what is waited for has no event: it is what a test is about)
        await asyncio.sleep(0.002)


class MemoryLog:
    """`refuses`: what the next commits raise; `commits`: how many records each had; `majority`:
    whether one is heard.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.refuses: KafkaError | None = None
        self.commits: list[int] = []
        self.majority = True

    def hears_majority(self, within_s: float) -> bool:
        return self.majority

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        await asyncio.sleep(0)
        if self.refuses is not None:
            raise self.refuses
        self.commits.append(len(records))
        return self._image.apply_records((self._image.end_offset + n, record) for n, record in enumerate(records))


class SmallController:
    """Over a new image, or this one. `settings`: the controller's own."""

    def __init__(self, image: MetadataImage | None = None, **settings: str) -> None:
        self.image = image or MetadataImage(end_offset=100)
        self.log = MemoryLog(self.image)
        given = {name.replace("_", "."): value for name, value in settings.items()}
        config = Config.of({"log.dirs": "/nowhere", "node.id": "1", **given})
        self.controller = Controller(self.image, self.log, Runtime(), config, broker_id=1)
        self.brokers, self.replicas = self.controller.cluster_control, self.controller.replication_control

    async def come(self, *brokers: int) -> "SmallController":
        for broker in brokers:
            await self.register(broker)
            assert not (await self.beat(broker)).is_fenced
        return self

    async def register(
        self, broker: int, *, incarnation: int = 0, directories: tuple[int, ...] | None = None, previous: int = -1
    ) -> int:
        coming = RegisterBrokerRecord(
            broker,
            UUID(int=incarnation or 100 + broker),
            {"PLAINTEXT": Endpoint(f"host-{broker}", 9092)},
            rack=f"r{broker % 2}",
            directories=tuple(UUID(int=d) for d in (directories or (1000 + broker,))),
        )
        return await self.brokers.register_broker(coming, previous)

    async def beat(self, broker: int, **how: Any) -> BrokerHeartbeatReply:
        beat = {
            "broker_epoch": self.image.brokers[broker].epoch,
            "metadata_offset": self.image.end_offset - 1,
        } | how
        return await self.brokers.process_heartbeat(BrokerHeartbeat(broker, **beat))

    async def topic(
        self, name: str = "t", partitions: int = 1, replicas: Sequence[int] = (1, 2, 3), **config: str
    ) -> list[PartitionRecord]:
        """With the same replicas for each partition."""
        given = {key.replace("_", "."): value for key, value in config.items()}
        assignment = dict.fromkeys(range(partitions), replicas)
        await create_topic(self.controller, NewTopic(name, partitions, len(replicas), assignment, given))
        return list(self.image.topics[name].partitions.values())

    def state(self, partition: int = 0, topic: str = "t") -> PartitionRecord:
        return self.image.topics[topic].partitions[partition]

    def fenced(self) -> list[int]:
        return [broker.id for broker in self.image.brokers.values() if broker.fenced]
