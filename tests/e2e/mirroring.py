"""Helpers of the mirror tests: settings, log bytes, and records as consumers see them."""

import asyncio
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
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

MIRROR, MIRRORED_TOPIC = 101, 102
READS_WITHIN_S = 30.0


def set_mirror(bootstrap: str, name: str, settings: Mapping[str, str | None]) -> None:
    """None removes a setting. Raises AssertionError with the broker's message if it rejects them."""
    code, message = try_mirror(bootstrap, name, settings)
    assert code is ErrorCode.none, message


def try_mirror(bootstrap: str, name: str, settings: Mapping[str, str | None]) -> tuple[ErrorCode, str | None]:
    configs = tuple(
        AlterableConfig(name=key, config_operation=i8(1 if value is None else 0), value=value)
        for key, value in settings.items()
    )
    resource = AlterConfigsResource(resource_type=i8(MIRROR), resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)

    async def ask() -> Any:
        async with Client.connect(bootstrap) as client:
            return await client.send(request)

    (answer,) = asyncio.run(ask()).responses
    return answer.error_code, answer.error_message


def status(bootstrap: str, topic: str, partition: int, appended_by: str = "") -> dict[str, Any]:
    """The leader's status of a mirrored partition, or of a source that is appended to it; empty
    without one.
    """
    key = f"{appended_by}/{partition}" if appended_by else str(partition)

    async def ask() -> dict[str, Any]:
        async with Client.connect(bootstrap) as client:
            for broker in (await client.metadata(())).brokers:
                resource = DescribeConfigsResource(
                    resource_type=i8(MIRRORED_TOPIC), resource_name=topic, configuration_keys=(key,)
                )
                try:
                    answer = await client.send(
                        DescribeConfigsRequest(resources=(resource,)), broker=int(broker.node_id)
                    )
                except OSError:
                    continue
                for config in answer.results[0].configs:
                    found: dict[str, Any] = json.loads(config.value)
                    return found
        return {}

    return asyncio.run(ask())


def log_bytes(log_dir: Path, topic: str, partition: int) -> bytes:
    """All segments of a partition in order, with the leader epoch of each batch set to 0."""
    found = bytearray()
    for path in sorted((log_dir / f"{topic}-{partition}").glob("*.log")):
        found += path.read_bytes()
    at = 0
    while at < len(found):
        header = parse_batch_header(found, at)
        struct.pack_into(">i", found, at + 12, 0)
        at += header.size
    assert at == len(found)
    return bytes(found)


@dataclass(frozen=True)
class Seen:
    """A record as a consumer sees it."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def seen(bootstrap: str, topic: str, partition: int, *, isolation: str = "read_uncommitted") -> list[Seen]:
    """All records of a partition, from its start to its current end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "looks-only",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # the end is told when nothing came for so long
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    records: list[Seen] = []
    try:
        consumer.list_topics(
            topic, timeout=READS_WITHIN_S
        )  # who has not heard of a leader looks again in half a second
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(READS_WITHIN_S)
            assert message is not None, f"no end of {topic}-{partition} in {READS_WITHIN_S} s; {len(records)} records"
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return records
            records.append(
                Seen(
                    message.offset(),
                    message.timestamp(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                )
            )
    finally:
        consumer.close()


def watermarks(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    """Log start and high watermark; (−1, −1) if the partition does not exist."""

    async def ask() -> tuple[int, int]:
        async with Client.connect(bootstrap) as client:
            return await client.list_offset(topic, partition, -2), await client.list_offset(topic, partition)

    try:
        return asyncio.run(ask())
    except KafkaError as reason:
        if reason.code not in RETRIABLE_ERRORS:
            raise
        return -1, -1


def produce(bootstrap: str, topic: str, values: Iterable[bytes], *, partition: int = 0, **settings: object) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5}
        | {key.replace("_", "."): value for key, value in settings.items()}
    )
    failures: list[str] = []

    def told(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    for number, value in enumerate(values):
        producer.produce(topic, value, key=f"k{number % 50}", partition=partition, on_delivery=told)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures, failures[:3]
