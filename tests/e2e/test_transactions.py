"""Transactions on three brokers that are killed in turn: a worker that consumes, transforms and
produces copies each record once.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka.admin import NewTopic

from tests.clients import librdkafka as rd
from tests.clusters import ProcessCluster, run_cluster
from tests.waiting import eventually

PARTITIONS = 3
RECORDS = 600
KILLS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with run_cluster("ottla", 3, transaction_abort_timed_out_transaction_cleanup_interval_ms=500) as running:
        yield running


class CopyWorker:
    """Copies `source` to `target`, some records in a transaction with the group's offsets. After an
    error that ends a producer it begins again as a new instance. It is aiokafka's: librdkafka 2.16
    waits for ever for a group coordinator that has left the metadata.
    """

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._stopping = threading.Event()
        self.committed = 0
        self.errors: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(90)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._work()
            except (KafkaError, OSError, TimeoutError) as reason:
                self.errors.append(repr(reason))

    async def _work(self) -> None:
        group = f"{self._source}-group"
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=f"{self._source}-copy",
            transaction_timeout_ms=20_000,
            request_timeout_ms=5_000,
        )
        reader = AIOKafkaConsumer(
            self._source,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=6_000,
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(producer)
            await stack.enter_async_context(reader)
            while not self._stopping.is_set():
                found = await reader.getmany(timeout_ms=200, max_records=20)
                if found:
                    await self._copy(producer, group, found)
                    self.committed += 1

    async def _copy(self, producer: AIOKafkaProducer, group: str, found: dict[Any, list[Any]]) -> None:
        async with asyncio.timeout(30), producer.transaction():
            for at, messages in found.items():
                for message in messages:
                    await producer.send(self._target, message.value, partition=at.partition)
            offsets = {at: messages[-1].offset + 1 for at, messages in found.items()}
            await producer.send_offsets_to_transaction(offsets, group)


def read_committed_values(cluster: ProcessCluster, topic: str) -> list[bytes]:
    return [
        message.value() or b""
        for partition in range(PARTITIONS)
        for message in rd.consume(cluster.bootstrap, topic, partition=partition, isolation_level="read_committed")
    ]


def create_topic(cluster: ProcessCluster, topic: str) -> None:
    client = rd.admin_client(cluster.bootstrap)  # keep a reference until the result
    for made in client.create_topics([NewTopic(topic, PARTITIONS, 3)]).values():
        made.result(30)


def has_values(cluster: ProcessCluster, topic: str, expected: list[bytes]) -> bool:
    return sorted(read_committed_values(cluster, topic)) == expected


def test_each_record_is_copied_once_while_brokers_are_killed(cluster: ProcessCluster) -> None:
    source, target = "copied-from", "copied-to"
    for topic in (source, target):
        create_topic(cluster, topic)
    worker = CopyWorker(cluster.bootstrap, source, target)
    worker.start()
    producer = ck.Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for round_ in range(KILLS):
        for number in range(RECORDS // KILLS):
            producer.produce(source, b"%d-%d" % (round_, number), partition=number % PARTITIONS)
        producer.flush(30)
        broker = cluster.brokers[1 + round_ % 3]
        before = worker.committed
        eventually(lambda before=before: worker.committed > before, within_s=60)  # type: ignore[misc]
        broker.kill()
        broker.start()
        eventually(lambda: cluster.is_healthy(), within_s=60)
    assert producer.flush(60) == 0
    sent = sorted(b"%d-%d" % (round_, number) for round_ in range(KILLS) for number in range(RECORDS // KILLS))
    eventually(
        lambda: len(read_committed_values(cluster, target)) >= len(sent),
        within_s=120,
        message=lambda: f"{len(read_committed_values(cluster, target))} of {len(sent)} copied; {vars(worker)}",
    )
    worker.stop()
    assert sorted(read_committed_values(cluster, target)) == sent


@pytest.mark.parametrize("commit", [True, False])
def test_decision_is_completed_by_the_next_coordinator(cluster: ProcessCluster, commit: bool) -> None:
    """The coordinator is killed right after its answer, and each broker in turn while a transaction
    is open."""
    topic = f"decided-{commit}"
    create_topic(cluster, topic)
    wanted = []
    for number, broker in cluster.brokers.items():
        producer = ck.Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-{number}", "linger.ms": 0}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d-%d" % (number, partition), partition=partition)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
        broker.kill()
        wanted += [b"%d-%d" % (number, partition) for partition in range(PARTITIONS)] if commit else []
        marker = b"after %d" % number
        plain = ck.Producer({"bootstrap.servers": cluster.bootstrap})
        for partition in range(PARTITIONS):
            plain.produce(topic, marker, partition=partition)
            wanted.append(marker)
        assert plain.flush(60) == 0
        expected = sorted(wanted)
        eventually(partial(has_values, cluster, topic, expected), within_s=60)
        broker.start()
        eventually(lambda: cluster.is_healthy(), within_s=60)
