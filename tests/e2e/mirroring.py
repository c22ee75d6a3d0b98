"""Mirrors for tests: their settings and status, the logs of their topics, and records as consumers
read them.
"""

import asyncio
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla_broker.wire.batch import parse_batch_header
from ottla_broker.wire.client import RETRIABLE_ERRORS, Client
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.brokers import BrokerProcess
from tests.clusters import ProcessCluster
from tests.waiting import eventually

Cluster = BrokerProcess | ProcessCluster
MIRROR, MIRRORED_TOPIC = 101, 102  # resource types of configs
READS_WITHIN_S = 30.0


def delete_topics(broker: BrokerProcess) -> None:
    """Starts the broker if it is stopped, and deletes all topics but the internal ones. Several
    tests share one broker as source, because Apache Kafka takes seconds to start and to stop.
    """
    if not broker.is_running:
        broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [it for it in admin.list_topics(timeout=READS_WITHIN_S).topics if not it.startswith("__")]
    for deleted in (admin.delete_topics(topics) if topics else {}).values():
        deleted.result(30)


def set_mirror(bootstrap: str, name: str, settings: Mapping[str, str | None]) -> None:
    """Creates or changes a mirror; None removes a setting. Raises AssertionError with the broker's
    message if the broker rejects the settings.
    """
    code, message = try_set_mirror(bootstrap, name, settings)
    assert code is ErrorCode.none, message


def try_set_mirror(bootstrap: str, name: str, settings: Mapping[str, str | None]) -> tuple[ErrorCode, str | None]:
    """The broker's error code and message."""
    configs = tuple(
        AlterableConfig(name=key, config_operation=i8(1 if value is None else 0), value=value)
        for key, value in settings.items()
    )
    resource = AlterConfigsResource(resource_type=i8(MIRROR), resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)

    async def send() -> Any:
        async with Client.connect(bootstrap) as client:
            return await client.send(request)

    (response,) = asyncio.run(send()).responses
    return response.error_code, response.error_message


def mirror_status(bootstrap: str, topic: str, partition: int, appended_by: str = "") -> dict[str, Any]:
    """Status of a mirrored partition as its leader reports it; empty if no broker reports one.
    `appended_by`: name of a mirror that appends records to the partition; the status is then that
    of copying by this mirror.
    """
    key = f"{appended_by}/{partition}" if appended_by else str(partition)

    async def find() -> dict[str, Any]:
        async with Client.connect(bootstrap) as client:
            for broker in (await client.metadata(())).brokers:
                resource = DescribeConfigsResource(
                    resource_type=i8(MIRRORED_TOPIC), resource_name=topic, configuration_keys=(key,)
                )
                try:
                    response = await client.send(
                        DescribeConfigsRequest(resources=(resource,)), broker=int(broker.node_id)
                    )
                except OSError:
                    continue
                for config in response.results[0].configs:
                    status: dict[str, Any] = json.loads(config.value)
                    return status
        return {}

    return asyncio.run(find())


def read_log_bytes(log_dir: Path, topic: str, partition: int) -> bytes:
    """All segments of a partition in order, with the leader epoch of each batch set to 0."""
    data = bytearray()
    for path in sorted((log_dir / f"{topic}-{partition}").glob("*.log")):
        data += path.read_bytes()
    at = 0
    while at < len(data):
        header = parse_batch_header(data, at)
        struct.pack_into(">i", data, at + 12, 0)
        at += header.size
    assert at == len(data)
    return bytes(data)


@dataclass(frozen=True)
class ConsumedRecord:
    """A record with all that a consumer gets of it, to compare two logs."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_records(
    bootstrap: str, topic: str, partition: int, *, isolation: str = "read_uncommitted"
) -> list[ConsumedRecord]:
    """All records of a partition, from its start to its current end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # librdkafka reports the end after a fetch that returned nothing
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    records: list[ConsumedRecord] = []
    try:
        # Without metadata the consumer would look for the leader only after half a second.
        consumer.list_topics(topic, timeout=READS_WITHIN_S)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(READS_WITHIN_S)
            assert message is not None, f"no end of {topic}-{partition} in {READS_WITHIN_S} s; {len(records)} records"
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return records
            records.append(
                ConsumedRecord(
                    message.offset(),
                    message.timestamp(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                )
            )
    finally:
        consumer.close()


def read_watermarks(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    """Log start and high watermark; (−1, −1) if the partition does not exist or has no leader."""

    async def list_offsets() -> tuple[int, int]:
        async with Client.connect(bootstrap) as client:
            return await client.list_offset(topic, partition, -2), await client.list_offset(topic, partition)

    try:
        return asyncio.run(list_offsets())
    except KafkaError as reason:
        if reason.code not in RETRIABLE_ERRORS:
            raise
        return -1, -1


def describe_partition(bootstrap: str, topic: str, partition: int) -> str:
    """Watermarks and mirror status in one line, for messages of assertions."""
    return f"{read_watermarks(bootstrap, topic, partition)} {mirror_status(bootstrap, topic, partition)}"


def produce(bootstrap: str, topic: str, values: Iterable[bytes], *, partition: int = 0, **settings: object) -> None:
    """Raises AssertionError with up to three errors of rejected records. `settings`: librdkafka's,
    with underscores for dots.
    """
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5}
        | {key.replace("_", "."): value for key, value in settings.items()}
    )
    failures: list[str] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    for number, value in enumerate(values):
        producer.produce(topic, value, key=f"k{number % 50}", partition=partition, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures, failures[:3]


def mirror_topics(source: Cluster, target: Cluster, name: str, **settings: str) -> None:
    """Creates or changes a mirror, by default of all topics, which refreshes its metadata twice a
    second. `settings`, with underscores for dots, override these defaults.
    """
    defaults = {"bootstrap.servers": source.bootstrap, "topics": "*", "metadata.max.age.ms": "500"}
    set_mirror(target.bootstrap, name, defaults | {key.replace("_", "."): value for key, value in settings.items()})


def append_topics(source: Cluster, target: Cluster, name: str, **settings: str) -> None:
    """Like `mirror_topics`, for a mirror that appends records with new offsets."""
    mirror_topics(source, target, name, offsets="Appended", **settings)


def create_topic(cluster: Cluster, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # must outlive its request
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def list_topics(cluster: Cluster) -> set[str]:
    """Names of all topics but the internal ones."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return {name for name in admin.list_topics(timeout=20).topics if not name.startswith("__")}


def wait_for_high_watermark(broker: BrokerProcess, topic: str, offset: int, partition: int = 0) -> None:
    eventually(
        lambda: read_watermarks(broker.bootstrap, topic, partition)[1] == offset,
        within_s=30,
        message=lambda: (
            f"high watermark {offset} of {topic}; log start and high watermark: "
            f"{read_watermarks(broker.bootstrap, topic, partition)}\n{broker.log_tail(3000)}"
        ),
    )


def commit_offsets(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commits an offset for each partition in `offsets`, by a client that has not joined the
    group.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        positions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=positions, asynchronous=False)
    finally:
        consumer.close()


def committed_offsets(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Committed offset by partition, of the partitions that have one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, partition) for partition in range(partitions)], timeout=20)
        return {it.partition: it.offset for it in found if it.offset >= 0}
    finally:
        consumer.close()


@dataclass
class Pair:
    """A source, and the broker that mirrors it by mirror `west`."""

    source: BrokerProcess
    target: BrokerProcess

    def mirror(self, **settings: str) -> None:
        mirror_topics(self.source, self.target, "west", **settings)

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.source.bootstrap})
        new = NewTopic(topic, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        admin.create_topics([new])[topic].result(30)

    def wait_until_caught_up(self, topic: str, partition: int = 0) -> None:
        """Waits until the target has the source's log start and high watermark."""
        eventually(
            lambda: (
                read_watermarks(self.target.bootstrap, topic, partition)
                == read_watermarks(self.source.bootstrap, topic, partition)
            ),
            within_s=30,
            message=lambda: (
                f"{topic}-{partition}: {read_watermarks(self.source.bootstrap, topic, partition)} at the source, "
                f"{read_watermarks(self.target.bootstrap, topic, partition)} at the target\n"
                f"{self.target.log_tail(3000)}"
            ),
        )

    def assert_same_records(self, topic: str, partition: int = 0) -> None:
        """Waits until the target has caught up, and compares what consumers read of both."""
        self.wait_until_caught_up(topic, partition)
        for isolation in ("read_uncommitted", "read_committed"):
            expected = read_records(self.source.bootstrap, topic, partition, isolation=isolation)
            assert read_records(self.target.bootstrap, topic, partition, isolation=isolation) == expected

    def assert_same_bytes(self, topic: str, partition: int = 0) -> None:
        expected = read_log_bytes(self.source.log_dir, topic, partition)
        assert read_log_bytes(self.target.log_dir, topic, partition) == expected
