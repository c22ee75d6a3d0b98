"""A broker without sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ottla_broker.broker import Broker
from ottla_broker.config import Config
from ottla_broker.dispatcher import answer_locally
from ottla_broker.log.disk import Disk
from ottla_broker.metadata.records import Endpoint
from ottla_broker.runtime import Runtime
from ottla_broker.wire.records import iter_records


@asynccontextmanager
async def run_broker(folder: Path, *, disk: Disk | None = None, **settings: str) -> AsyncIterator[Broker]:
    """Yields a started broker. `settings`: with underscores for dots."""
    config = Config.of({"log.dirs": str(folder), **{key.replace("_", "."): value for key, value in settings.items()}})
    runtime = Runtime()
    broker = Broker(config, answer_locally, runtime=runtime, disk=disk)
    try:
        await broker.start({"PLAINTEXT": Endpoint("somewhere", 9092)})
        yield broker
    finally:
        await broker.stop()


def readable_values(broker: Broker, topic: str, partition: int) -> list[bytes | None]:
    """Values of all records that a consumer may read."""
    leader = broker.partitions.leader(topic, partition)
    end = leader.readable_end(0)
    return [record.value for _, record in iter_records(leader.log.read(leader.log.start, 1 << 20, up_to=end))]
