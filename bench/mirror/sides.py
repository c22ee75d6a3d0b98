"""The two ways to mirror: Ottla's broker copies by itself, Apache Kafka needs MirrorMaker 2.

Both copy from one Apache Kafka broker with default settings to one broker of their own with default
settings. MirrorMaker runs as `connect-mirror-maker.sh` starts it, with that script's heap (256 MiB
to 2 GiB) and one task per partition. Ottla's mirror has its defaults. Both look for new topics
every two seconds.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.programs import command_log
from ottla_broker.wire.client import Client
from tests.brokers import BrokerProcess, run_apache_kafka, run_ottla_broker
from tests.e2e.mirroring import set_mirror
from tests.jars import KAFKA, MIRROR_MAKER, fetch_classpath, java_command

PARTITIONS = 6
TOPIC_REFRESH_S = 2


class Copier(Protocol):
    """Copies topics of `source` whose names start with `bench` to `target` while it is started."""

    source: BrokerProcess
    target: BrokerProcess

    def start(self) -> None: ...
    def stop(self) -> None: ...

    def target_topic(self, topic: str) -> str:
        """A topic's name at the target."""
        ...

    def cpu_s(self) -> float:
        """Processor seconds used so far by all processes except the source."""
        ...

    def added_memory_kib(self) -> int:
        """Resident memory added by mirroring."""
        ...


@dataclass
class BrokerMirror:
    """Ottla copies. `memory_before_kib`: resident memory of the target before its mirror started,
    0 until then.
    """

    source: BrokerProcess
    target: BrokerProcess
    memory_before_kib: int = 0

    def start(self) -> None:
        self.memory_before_kib = self.memory_before_kib or self.target.resident_memory_kib()
        self._set("Replicate")

    def stop(self) -> None:
        self._set("Paused")

    def _set(self, role: str) -> None:
        settings = {
            "bootstrap.servers": self.source.bootstrap,
            "topics": "bench*",
            "metadata.max.age.ms": str(TOPIC_REFRESH_S * 1000),
            "role": role,
        }
        command_log.append(f"IncrementalAlterConfigs mirror/source {settings}")
        set_mirror(self.target.bootstrap, "source", settings)

    def target_topic(self, topic: str) -> str:
        return topic

    def cpu_s(self) -> float:
        return self.target.cpu_s()

    def added_memory_kib(self) -> int:
        return self.target.resident_memory_kib() - self.memory_before_kib


@dataclass
class MirrorMaker:
    """MirrorMaker 2 copies. `earlier_cpu_s`: processor time of its processes that have ended."""

    source: BrokerProcess
    target: BrokerProcess
    maker: BrokerProcess
    earlier_cpu_s: float = 0.0

    def start(self) -> None:
        command_log.append(" ".join(self.maker.command(self.maker)))
        self.maker.start()

    def stop(self) -> None:
        self.earlier_cpu_s += self.maker.cpu_s()
        self.maker.stop()

    def target_topic(self, topic: str) -> str:
        return f"source.{topic}"

    def cpu_s(self) -> float:
        return self.target.cpu_s() + self.earlier_cpu_s + (self.maker.cpu_s() if self.maker.is_running else 0)

    def added_memory_kib(self) -> int:
        return self.maker.resident_memory_kib()


@contextmanager
def run_broker_mirror() -> Iterator[Copier]:
    with run_apache_kafka(test_settings=False) as source, run_ottla_broker(test_settings=False) as target:
        yield BrokerMirror(source, target)


@contextmanager
def run_mirror_maker() -> Iterator[Copier]:
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
            "refresh.topics.interval.seconds": str(TOPIC_REFRESH_S),
            "tasks.max": str(PARTITIONS),
        } | dict.fromkeys(ONE_REPLICA, "1")
        properties.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        maker = BrokerProcess(
            "MirrorMaker 2", 0, Path(folder), Path(folder), {}, _mirror_maker_command, "Kafka MirrorMaker started"
        )
        copier = MirrorMaker(source, target, maker)
        try:
            yield copier
        finally:
            maker.kill()


SIDES = {"ottla": run_broker_mirror, "kafka": run_mirror_maker}

# Each side has one broker.
ONE_REPLICA = (
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "config.storage.replication.factor",
)


def _mirror_maker_command(maker: BrokerProcess) -> list[str]:
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


async def sum_of_high_watermarks(bootstrap: str, topic: str, partitions: int) -> int:
    """The sum of the partitions' high watermarks. Raises KafkaError if the topic does not exist."""
    async with Client.connect(bootstrap) as client:
        return sum(await asyncio.gather(*(client.list_offset(topic, number) for number in range(partitions))))
