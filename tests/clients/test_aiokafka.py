"""aiokafka: the asyncio client."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import OffsetOutOfRangeError

from tests.brokers import BrokerProcess
from tests.clients.sample_messages import COMPRESSIONS, START_MS, Message, messages
from tests.waiting import eventually_async

T = TypeVar("T")
WITHIN_S = 60


def run(main: Coroutine[object, object, T]) -> T:
    return asyncio.run(asyncio.wait_for(main, WITHIN_S))


@asynccontextmanager
async def admin_of(broker: BrokerProcess) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    async with admin_of(broker) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])


async def produce(broker: BrokerProcess, topic: str, records: list[Message], **settings: object) -> list[int]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        waiting = [
            await producer.send(topic, r.value, r.key, 0, r.timestamp_ms, headers=list(r.headers)) for r in records
        ]
        return [(await future).offset for future in waiting]


async def consume(broker: BrokerProcess, topic: str, count: int, offset: int = 0, **settings: object) -> list[Message]:
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, **settings) as reader:
        reader.assign([partition])
        reader.seek(partition, offset)
        taken = [await reader.getone() for _ in range(count)]
    return [Message(r.key, r.value, r.timestamp, tuple(r.headers)) for r in taken]


async def has_partitions(member: AIOKafkaConsumer, partitions: int) -> bool:
    return len(member.assignment()) == partitions


async def is_deleted(admin: AIOKafkaAdminClient, topic: str) -> bool:
    return topic not in await admin.list_topics()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_are_read_as_produced(broker: BrokerProcess, name: str, compression: str) -> None:
    async def there_and_back() -> None:
        await create(broker, name)
        kind = None if compression == "none" else compression
        idempotent = compression in ("none", "zstd")
        offsets = await produce(
            broker, name, messages(), compression_type=kind, enable_idempotence=idempotent, linger_ms=10
        )
        assert offsets == list(range(50))
        assert await consume(broker, name, 50) == messages()
        assert await consume(broker, name, 20, 30, isolation_level="read_committed") == messages()[30:]

    run(there_and_back())


def test_offsets_by_time_and_out_of_range(broker: BrokerProcess, name: str) -> None:
    async def look() -> None:
        await create(broker, name)
        await produce(broker, name, [Message(None, b"%d" % i, START_MS + i * 1000) for i in range(30)])
        partition = TopicPartition(name, 0)
        async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none") as reader:
            reader.assign([partition])
            found = (await reader.offsets_for_times({partition: START_MS + 12_500}))[partition]
            assert (found.offset, found.timestamp) == (13, START_MS + 13_000)
            assert await reader.beginning_offsets([partition]) == {partition: 0}
            assert await reader.end_offsets([partition]) == {partition: 30}
            reader.seek(partition, 31)
            with pytest.raises(OffsetOutOfRangeError):
                await reader.getone()

    run(look())


def test_group_shares_partitions_and_resumes_at_commits(broker: BrokerProcess, name: str) -> None:
    async def together() -> None:
        await create(broker, name, 4)
        settings = {
            "bootstrap_servers": broker.bootstrap,
            "group_id": name,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
        }
        async with AIOKafkaConsumer(name, **settings) as first:
            async with AIOKafkaConsumer(name, **settings) as second:
                await eventually_async(lambda: has_partitions(first, 2))
                await eventually_async(lambda: has_partitions(second, 2))
                assert first.assignment().isdisjoint(second.assignment())
            await eventually_async(lambda: has_partitions(first, 4))
            await produce(broker, name, messages())
            assert [(await first.getone()).offset for _ in range(10)] == list(range(10))
            await first.commit()
        async with AIOKafkaConsumer(name, **settings) as again:
            assert (await again.getone()).offset == 10
            assert await again.committed(TopicPartition(name, 0)) == 10
        async with admin_of(broker) as admin:
            offsets = await admin.list_consumer_group_offsets(name)
            assert offsets[TopicPartition(name, 0)].offset == 10
            assert name in [group[0] for group in await admin.list_consumer_groups()]
            (described,) = await admin.describe_consumer_groups([name])
            assert described.to_object()["groups"][0]["state"] == "Empty"

    run(together())


def test_admin_client_changes_and_deletes_a_topic(broker: BrokerProcess, name: str) -> None:
    async def administer() -> None:
        await create(broker, name, 2)
        async with admin_of(broker) as admin:
            await admin.create_partitions({name: NewPartitions(3)})
            (topic,) = await admin.describe_topics([name])
            assert sorted(partition["partition"] for partition in topic["partitions"]) == [0, 1, 2]
            resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "5000000"})
            await admin.alter_configs([resource])
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
            entries = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert entries["retention.ms"] == "5000000"
            await produce(broker, name, messages())
            partition = TopicPartition(name, 0)
            assert await admin.delete_records({partition: RecordsToDelete(20)}) == {partition: 20}
            cluster = await admin.describe_cluster()
            assert [node["port"] for node in cluster["brokers"]] == [broker.port]
            await admin.delete_topics([name])
            await eventually_async(lambda: is_deleted(admin, name))

    run(administer())
