"""A worker that copies a topic exactly once: it consumes, and produces in transactions that have
its group's offsets.
"""

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError


class CopyWorker:
    """Copies `source` to `target`, in transactions of up to twenty records and the group's offsets.
    After an error it begins again with a new producer and consumer. They are aiokafka's, because
    librdkafka 2.16 waits forever for a group coordinator that has left the metadata.
    """

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        self.transactional_id = f"{target}-copy"
        self.group = f"{target}-group"
        self.target = target
        self._bootstrap = bootstrap
        self._source = source
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._stopping = threading.Event()
        self.commit_count = 0
        self.errors: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when no transaction is open."""
        self._stopping.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), f"the worker of {self.target} hangs; {self.errors[-3:]}"

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._work()
            except (KafkaError, OSError, TimeoutError) as reason:
                self.errors.append(repr(reason))

    async def _work(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=20_000,
            request_timeout_ms=5_000,
        )
        reader = AIOKafkaConsumer(
            self._source,
            bootstrap_servers=self._bootstrap,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=6_000,
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(producer)
            await stack.enter_async_context(reader)
            while not self._stopping.is_set():
                records = await reader.getmany(timeout_ms=200, max_records=20)
                if records:
                    await self._copy(producer, records)
                    self.commit_count += 1

    async def _copy(self, producer: AIOKafkaProducer, records: dict[Any, list[Any]]) -> None:
        async with asyncio.timeout(30), producer.transaction():
            for at, messages in records.items():
                for message in messages:
                    await producer.send(self.target, message.value, partition=at.partition)
            offsets = {at: messages[-1].offset + 1 for at, messages in records.items()}
            await producer.send_offsets_to_transaction(offsets, self.group)
