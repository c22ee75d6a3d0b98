"""aiokafka, the asyncio client, also with transactions, whose requests it sends in version 0."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import OffsetOutOfRangeError, ProducerFenced

from tests.brokers import BrokerProcess
from tests.clients.sample_messages import COMPRESSIONS, START_MS, Message, messages
from tests.waiting import eventually_async

T = TypeVar("T")
WITHIN_S = 60


def run(main: Coroutine[object, object, T]) -> T:
    return asyncio.run(asyncio.wait_for(main, WITHIN_S))


@asynccontextmanager
async def open_admin_client(broker: BrokerProcess) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    async with open_admin_client(broker) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])


async def produce(broker: BrokerProcess, topic: str, records: list[Message], **settings: object) -> list[int]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        waiting = [
            await producer.send(topic, r.value, r.key, 0, r.timestamp_ms, headers=list(r.headers)) for r in records
        ]
        return [(await future).offset for future in waiting]


async def consume(
    broker: BrokerProcess, topic: str, count: int, offset: int = 0, number: int = 0, **settings: object
) -> list[Message]:
    """`count` records of partition `number` from `offset`."""
    partition = TopicPartition(topic, number)
    async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, **settings) as reader:
        reader.assign([partition])
        reader.seek(partition, offset)
        received = [await reader.getone() for _ in range(count)]
    return [Message(r.key, r.value, r.timestamp, tuple(r.headers)) for r in received]


async def has_partitions(member: AIOKafkaConsumer, count: int) -> bool:
    return len(member.assignment()) == count


async def is_deleted(admin: AIOKafkaAdminClient, topic: str) -> bool:
    return topic not in await admin.list_topics()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_are_read_as_produced(broker: BrokerProcess, name: str, compression: str) -> None:
    async def produce_and_consume() -> None:
        await create(broker, name)
        kind = None if compression == "none" else compression
        idempotent = compression in ("none", "zstd")
        offsets = await produce(
            broker, name, messages(), compression_type=kind, enable_idempotence=idempotent, linger_ms=10
        )
        assert offsets == list(range(50))
        assert await consume(broker, name, 50) == messages()
        assert await consume(broker, name, 20, 30, isolation_level="read_committed") == messages()[30:]

    run(produce_and_consume())


def test_offsets_are_found_by_time_and_one_out_of_range_is_an_error(broker: BrokerProcess, name: str) -> None:
    async def find_offsets() -> None:
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

    run(find_offsets())


def test_group_shares_partitions_and_resumes_at_commits(broker: BrokerProcess, name: str) -> None:
    async def share_partitions() -> None:
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
        async with open_admin_client(broker) as admin:
            offsets = await admin.list_consumer_group_offsets(name)
            assert offsets[TopicPartition(name, 0)].offset == 10
            assert name in [group[0] for group in await admin.list_consumer_groups()]
            (described,) = await admin.describe_consumer_groups([name])
            assert described.to_object()["groups"][0]["state"] == "Empty"

    run(share_partitions())


def test_admin_client_changes_and_deletes_a_topic(broker: BrokerProcess, name: str) -> None:
    async def administer() -> None:
        await create(broker, name, 2)
        async with open_admin_client(broker) as admin:
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


COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


async def values_of(broker: BrokerProcess, topic: str, count: int, isolation: str, number: int = 0) -> list[str]:
    read = await consume(broker, topic, count, number=number, isolation_level=isolation)
    return [(message.value or b"").decode() for message in read]


def transactional_producer(broker: BrokerProcess, name: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)


async def send(producer: AIOKafkaProducer, topic: str, *values: str, number: int = 0) -> None:
    for value in values:
        await producer.send_and_wait(topic, value.encode(), partition=number)


def test_only_committed_transactions_are_read(broker: BrokerProcess, name: str) -> None:
    async def test() -> None:
        await create(broker, name, 2)
        async with transactional_producer(broker, name) as producer:
            for outcome in ("aborted", "committed", "aborted", "committed"):
                await producer.begin_transaction()
                for number in range(2):
                    await send(producer, name, f"{outcome} 1", f"{outcome} 2", number=number)
                await (producer.commit_transaction() if outcome == "committed" else producer.abort_transaction())
        for number in range(2):
            committed = ["committed 1", "committed 2"]
            assert await values_of(broker, name, 4, COMMITTED, number) == committed * 2
            everything = await values_of(broker, name, 8, UNCOMMITTED, number)
            assert everything == ["aborted 1", "aborted 2", *committed] * 2

    run(test())


def test_an_exception_in_a_transaction_aborts_it(broker: BrokerProcess, name: str) -> None:
    async def test() -> None:
        await create(broker, name)
        async with transactional_producer(broker, name) as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await send(producer, name, "aborted")
                    raise ZeroDivisionError
            async with producer.transaction():
                await send(producer, name, "committed")
        assert await values_of(broker, name, 1, COMMITTED) == ["committed"]
        assert await values_of(broker, name, 2, UNCOMMITTED) == ["aborted", "committed"]

    run(test())


def test_an_open_transaction_holds_back_what_follows_it(broker: BrokerProcess, name: str) -> None:
    async def test() -> None:
        await create(broker, name)
        partition = TopicPartition(name, 0)
        async with (
            transactional_producer(broker, name) as producer,
            AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level=COMMITTED) as reader,
        ):
            await producer.begin_transaction()
            await send(producer, name, "of the transaction")
            await produce(broker, name, [Message(None, b"behind it", START_MS)])
            assert await values_of(broker, name, 2, UNCOMMITTED) == ["of the transaction", "behind it"]
            reader.assign([partition])
            reader.seek(partition, 0)

            async def is_at_the_end() -> bool:
                assert await reader.getmany(timeout_ms=100) == {}
                return (reader.highwater(partition), reader.last_stable_offset(partition)) == (2, 0)

            await eventually_async(is_at_the_end)
            await producer.commit_transaction()
            assert [(await reader.getone()).value for _ in range(2)] == [b"of the transaction", b"behind it"]

    run(test())


def test_a_new_producer_fences_the_one_with_the_same_transactional_id(broker: BrokerProcess, name: str) -> None:
    async def test() -> None:
        await create(broker, name)
        async with transactional_producer(broker, name) as former:
            await former.begin_transaction()
            await send(former, name, "of the former one")
            async with transactional_producer(broker, name) as current:
                with pytest.raises(ProducerFenced):
                    await former.commit_transaction()
                async with current.transaction():
                    await send(current, name, "of the current one")
        assert await values_of(broker, name, 1, COMMITTED) == ["of the current one"]

    run(test())


def test_offsets_are_committed_with_the_records_of_a_transaction(broker: BrokerProcess, name: str) -> None:
    target, source = f"{name}-target", TopicPartition(name, 0)
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": name,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": COMMITTED,
    }

    async def copy_five(producer: AIOKafkaProducer) -> None:
        """Copies five records to the target, and commits the offset after them."""
        async with AIOKafkaConsumer(name, **settings) as reader:
            records = [await reader.getone() for _ in range(5)]
            await send(producer, target, *((one.value or b"").decode() for one in records))
            await producer.send_offsets_to_transaction({source: records[-1].offset + 1}, name)

    async def has_committed(offset: int | None) -> bool:
        async with AIOKafkaConsumer(**settings) as reader:
            return bool(await reader.committed(source) == offset)

    async def test() -> None:
        await create(broker, name)
        await create(broker, target)
        values = [str(number) for number in range(10)]
        async with transactional_producer(broker, f"{name}-input") as producer, producer.transaction():
            await send(producer, name, *values)
        async with transactional_producer(broker, name) as producer:
            await producer.begin_transaction()
            await copy_five(producer)
            await producer.abort_transaction()
            assert await has_committed(None)
            for offset in (5, 10):
                async with producer.transaction():
                    await copy_five(producer)
                # The end of a transaction is answered before its markers are written.
                await eventually_async(partial(has_committed, offset))
        assert await values_of(broker, target, 10, COMMITTED) == values
        assert await values_of(broker, target, 15, UNCOMMITTED) == [*values[:5], *values]

    run(test())
