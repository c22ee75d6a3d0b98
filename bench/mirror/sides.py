"""The two ways to copy: Ottla's broker does it itself; Apache Kafka has MirrorMaker 2 beside it.

Both copy from a source of the same kind, one Apache Kafka broker with default settings, to one broker of their own with default settings.
MirrorMaker runs as `connect-mirror-maker.sh` starts it, with the heap that script gives it (256 MiB to 2 GiB), and with a task for each
partition; Ottla's mirror has its defaults, but finds new topics as fast as the benchmark makes them.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.programs import commands
from ottla_broker.wire.client import Client
from tests.brokers import BrokerProcess, run_apache_kafka, run_ottla_broker
from tests.e2e.mirroring import set_mirror
from tests.jars import KAFKA, MIRROR_MAKER, fetch_classpath, java_command

PARTITIONS = 6
FINDS_EVERY_S = 2


class Copier(Protocol):
    """Copies every topic of `source` whose name begins with `bench` to `target`, while it runs."""

    source: BrokerProcess
    target: BrokerProcess

    def start(self) -> None: ...
    def stop(self) -> None: ...

    def named(self, topic: str) -> str:
        """A topic's name on the target."""
        ...

    def cpu_s(self) -> float:
        """Processor time so far of everything but the source."""
        ...

    def memory_kib(self) -> int:
        """Resident memory that is there because something is copied."""
        ...


@dataclass
class ByTheBroker:
    source: BrokerProcess
    target: BrokerProcess
    without_kib: int = 0  # the broker's memory before it had a mirror

    def start(self) -> None:
        self.without_kib = self.without_kib or self.target.resident_memory_kib()
        self._set("Replicate")

    def stop(self) -> None:
        self._set("Paused")

    def _set(self, role: str) -> None:
        settings = {
            "bootstrap.servers": self.source.bootstrap,
            "topics": "bench*",
            "metadata.max.age.ms": str(FINDS_EVERY_S * 1000),
            "role": role,
        }
        commands.append(f"IncrementalAlterConfigs mirror/source {settings}")
        set_mirror(self.target.bootstrap, "source", settings)

    def named(self, topic: str) -> str:
        return topic

    def cpu_s(self) -> float:
        return self.target.cpu_s()

    def memory_kib(self) -> int:
        return self.target.resident_memory_kib() - self.without_kib


@dataclass
class ByMirrorMaker:
    source: BrokerProcess
    target: BrokerProcess
    maker: BrokerProcess
    earlier_cpu_s: float = 0.0  # of makers that have ended

    def start(self) -> None:
        commands.append(" ".join(self.maker.command(self.maker)))
        self.maker.start()

    def stop(self) -> None:
        self.earlier_cpu_s += self.maker.cpu_s()
        self.maker.stop()

    def named(self, topic: str) -> str:
        return f"source.{topic}"

    def cpu_s(self) -> float:
        return self.target.cpu_s() + self.earlier_cpu_s + (self.maker.cpu_s() if self.maker.is_running else 0)

    def memory_kib(self) -> int:
        return self.maker.resident_memory_kib()


@contextmanager
def by_the_broker() -> Iterator[Copier]:
    with run_apache_kafka(test_settings=False) as source, run_ottla_broker(test_settings=False) as target:
        yield ByTheBroker(source, target)


@contextmanager
def by_mirror_maker() -> Iterator[Copier]:
    with (
        run_apache_kafka(test_settings=False) as source,
        run_apache_kafka(test_settings=False) as target,
        tempfile.TemporaryDirectory(prefix="ottla-bench-mirror-maker-") as folder,
    ):
        properties = Path(folder) / "mm2.properties"
        settings = {
            "clusters": "source, target",
            "source.bootstrap.servers": source.bootstrap,
            "target.bootstrap.servers": target.bootstrap,
            "source->target.enabled": "true",
            "source->target.topics": "bench.*",
            "refresh.topics.interval.seconds": str(FINDS_EVERY_S),
            "tasks.max": str(PARTITIONS),
        } | dict.fromkeys(ONE_REPLICA, "1")
        properties.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        maker = BrokerProcess("MirrorMaker 2", 0, Path(folder), Path(folder), {}, _command, "Kafka MirrorMaker started")
        copier = ByMirrorMaker(source, target, maker)
        try:
            yield copier
        finally:
            maker.kill()


SIDES = {"ottla": by_the_broker, "kafka": by_mirror_maker}

# There is one broker on each side.
ONE_REPLICA = (
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "config.storage.replication.factor",
)


def _command(maker: BrokerProcess) -> list[str]:
    return java_command(
        fetch_classpath(KAFKA, MIRROR_MAKER),
        "org.apache.kafka.connect.mirror.MirrorMaker",
        str(maker.folder / "mm2.properties"),
        jvm=("-Xms256m", "-Xmx2g"),
        options=(
            "-Dorg.slf4j.simpleLogger.logFile=System.out",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.connect.mirror.MirrorMaker=info",
        ),
    )


async def ends(bootstrap: str, topic: str, partitions: int) -> int:
    """The sum of the partitions' high watermarks; KafkaError while the topic is not there."""
    async with Client.connect(bootstrap) as client:
        return sum(await asyncio.gather(*(client.list_offset(topic, number) for number in range(partitions))))
