"""The load of `ottla bench`: what one process writes, reads and times.

The phase produce encodes one batch and sends it again and again, so that the brokers are measured
rather than Python's encoding. At most one Produce and one Fetch request of a partition are in
flight at a time.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla_broker.wire.batch import drop_partial_batch, iter_batches
from ottla_broker.wire.partition_requests import build_fetch, build_produce
from ottla_broker.wire.records import Record, encode_batch
from ottla_operator.bench.measurements import Latency, Throughput
from ottla_operator.kafka import topics
from ottla_operator.kafka.client import KafkaClient, raise_for_error

REQUEST_TIMEOUT_S: Final = 30.0
ALL_REPLICAS: Final = -1
FETCH_WAIT_S: Final = 0.5
FETCH_BYTES: Final = 4 << 20
PROBE_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Load:
    """`seconds`: longest duration of each phase. `record_bytes`: size of a value; records have no
    key. `batch_bytes`: size of the values of one batch. `max_bytes`: size of all values that the
    phase produce writes, at most. `latency_rate`: records per second.
    """

    seconds: float
    record_bytes: int
    batch_bytes: int
    max_bytes: int
    latency_rate: float = 50.0

    @property
    def batch_records(self) -> int:
        return max(1, self.batch_bytes // self.record_bytes)


class Bench:
    """The load on one topic. `leaders`: by partition. `reader`: has connections of its own, because
    a response to a fetch that waits for records delays later responses of its connection.
    """

    def __init__(
        self, client: KafkaClient, reader: KafkaClient, topic: str, leaders: Sequence[int], load: Load
    ) -> None:
        self._client = client
        self._reader = reader
        self._topic = topic
        self._leaders = leaders
        self._load = load

    @classmethod
    async def of_topic(cls, client: KafkaClient, reader: KafkaClient, topic: str, load: Load) -> "Bench":
        """Raises UNKNOWN_TOPIC_OR_PARTITION."""
        described = await topics.describe_topic(client, topic)
        await topics.describe_topic(reader, topic)
        return cls(client, reader, topic, [it.leader for it in described.partitions], load)

    @property
    def partitions(self) -> range:
        return range(len(self._leaders))

    async def produce(self) -> Throughput:
        """Writes to every partition until the time is over or `max_bytes` are written. Raises
        KafkaError.
        """
        load, throughput = self._load, Throughput()
        batch = encode_batch(
            [Record(int(time.time() * 1000), None, os.urandom(load.record_bytes)) for _ in range(load.batch_records)]
        )
        size, left = load.batch_records * load.record_bytes, load.max_bytes

        async def write(partition: int, elapsed_s: Callable[[], float]) -> None:
            nonlocal left
            while elapsed_s() < load.seconds and left >= size:
                left -= size
                await self._append(partition, batch)
                throughput.add(elapsed_s(), load.batch_records, size)

        await self._run_on_all(write, throughput)
        return throughput

    async def consume(self, starts: Sequence[int], ends: Sequence[int]) -> Throughput:
        """Reads every partition from its start to its end, or until the time is over."""
        throughput = Throughput()

        async def read(partition: int, elapsed_s: Callable[[], float]) -> None:
            offset = starts[partition]
            while offset < ends[partition] and elapsed_s() < self._load.seconds:
                records = await self._fetch(partition, offset, FETCH_BYTES)
                count = 0
                for _, header in iter_batches(records):
                    count += header.next_offset - max(offset, header.base_offset)
                    offset = header.next_offset
                throughput.add(elapsed_s(), count, len(records))

        await self._run_on_all(read, throughput)
        return throughput

    async def measure_latency(self, end: int) -> Latency:
        """Writes single records at a steady rate to partition 0, whose end is `end`, and reads
        them as a consumer that waits for records.
        """
        load, latency = self._load, Latency()
        loop = asyncio.get_running_loop()
        sent_s: dict[int, float] = {}
        count = max(1, int(load.seconds * load.latency_rate))
        value = os.urandom(load.record_bytes)

        async def write() -> None:
            first_s = loop.time()
            for number in range(count):
                await asyncio.sleep(max(0.0, first_s + number / load.latency_rate - loop.time()))
                began_s = sent_s[end + number] = loop.time()
                await self._append(0, encode_batch([Record(int(time.time() * 1000), None, value)]))
                latency.acknowledged_ms.append((loop.time() - began_s) * 1000)

        async def read() -> None:
            offset = end
            while offset < end + count:
                records = await self._fetch(0, offset, PROBE_BYTES)
                now_s = loop.time()
                for _, header in iter_batches(records):
                    for record_offset in range(max(offset, header.base_offset), header.next_offset):
                        if record_offset in sent_s:
                            latency.received_ms.append((now_s - sent_s.pop(record_offset)) * 1000)
                    offset = header.next_offset

        await run_together(write(), read())
        return latency

    async def _run_on_all(
        self, work: Callable[[int, Callable[[], float]], Awaitable[None]], throughput: Throughput
    ) -> None:
        """Does the work on all partitions at once, and sets the durations of `throughput`. `work`
        takes a partition and a function that returns the seconds since the start.
        """
        loop = asyncio.get_running_loop()
        began_s, cpu_s = loop.time(), time.process_time()

        def elapsed_s() -> float:
            return loop.time() - began_s

        await run_together(*(work(partition, elapsed_s) for partition in self.partitions))
        throughput.seconds, throughput.cpu_s = elapsed_s(), time.process_time() - cpu_s

    async def _append(self, partition: int, batch: bytes) -> None:
        request = build_produce(self._topic, partition, batch, acks=ALL_REPLICAS, timeout_s=REQUEST_TIMEOUT_S)
        response = await self._client.send(request, broker=self._leaders[partition])
        (result,) = response.responses[0].partition_responses
        raise_for_error(result.error_code, result.error_message, f"partition {self._topic}-{partition}")

    async def _fetch(self, partition: int, offset: int, max_bytes: int) -> bytes:
        request = build_fetch(self._topic, partition, offset, max_bytes=max_bytes, max_wait_s=FETCH_WAIT_S)
        response = await self._reader.send(request, broker=self._leaders[partition])
        raise_for_error(response.error_code, None, f"topic {self._topic}")
        (result,) = response.responses[0].partitions
        raise_for_error(result.error_code, None, f"partition {self._topic}-{partition}")
        return drop_partial_batch(bytes(result.records or b""))


async def run_together(*works: Awaitable[None]) -> None:
    """Runs `works` concurrently. Raises the first error, after the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
