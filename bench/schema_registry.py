"""`python -m bench.schema_registry`: registrations, look-ups, memory and start of a registry.

One broker on loopback. 16 clients register and look up small Avro schemas; then 100,000 schemas are
written to `_schemas`, and the broker is started again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiohttp
import confluent_kafka as ck

from ottla_broker.registry.record_format import SchemasRecord, SchemaValue, encode_record, schema_key
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.ports import free_port

CLIENTS: Final = 16
REGISTRATIONS: Final = 10_000
LOOKUPS: Final = 20_000
WRITTEN: Final = 100_000
START_TIMEOUT_S: Final = 120.0


def schema_text(number: int) -> str:
    fields = ",".join(f'{{"name":"field{at}","type":"long"}}' for at in range(8))
    return f'{{"type":"record","name":"Record{number}","fields":[{fields}]}}'


def main() -> None:
    port = free_port()
    settings: dict[str, Any] = {"schema.registry.listener": f"127.0.0.1:{port}"}
    with run_ottla_broker(**settings) as broker:
        asyncio.run(measure(broker, f"http://127.0.0.1:{port}"))


async def measure(broker: BrokerProcess, url: str) -> None:
    async with aiohttp.ClientSession() as session:

        async def register(number: int) -> None:
            body = {"schema": schema_text(number)}
            async with session.post(f"{url}/subjects/s{number}-value/versions", json=body) as response:
                assert response.status == 200, await response.text()

        async def look_up(number: int) -> None:
            async with session.get(f"{url}/schemas/ids/{number % REGISTRATIONS + 1}") as response:
                assert response.status == 200, await response.text()

        await register(REGISTRATIONS)  # creates `_schemas` and starts the worker process, so that neither is measured
        before_mib = broker.resident_memory_kib() / 1024
        await run_clients("registrations", REGISTRATIONS, register)
        await run_clients("look-ups by id", LOOKUPS, look_up)
        memory_mib = broker.resident_memory_kib() / 1024
        print(f"memory with {REGISTRATIONS:,} schemas: {memory_mib:.0f} MiB, before: {before_mib:.0f} MiB")
        write_records(broker.bootstrap)
        broker.stop()
        broker.start()
        last = f"{url}/subjects/w{WRITTEN - 1}-value/versions/1"
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await exists(session, last):  # noqa: ASYNC110 (the broker is another process)
                await asyncio.sleep(0.02)
        seconds = time.monotonic() - broker.spawned_at
        print(f"{WRITTEN + REGISTRATIONS:,} schemas served {seconds:.1f} s after the broker's process began")
        print(f"memory: {broker.resident_memory_kib() / 1024:.0f} MiB")


async def run_clients(name: str, count: int, call: Callable[[int], Awaitable[None]]) -> None:
    """CLIENTS clients share `count` calls; prints their rate and latencies."""
    numbers, took_ms = iter(range(count)), list[float]()

    async def client() -> None:
        for number in numbers:
            began = time.perf_counter()
            await call(number)
            took_ms.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    seconds = time.perf_counter() - began
    took_ms.sort()
    p50, p99 = took_ms[len(took_ms) // 2], took_ms[len(took_ms) * 99 // 100]
    print(f"{name}: {count / seconds:,.0f}/s with {CLIENTS} clients, p50 {p50:.1f} ms, p99 {p99:.1f} ms")


async def exists(session: aiohttp.ClientSession, url: str) -> bool:
    async with session.get(url) as response:
        return response.status == 200


def write_records(bootstrap: str) -> None:
    """Writes WRITTEN schemas to `_schemas`."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": WRITTEN}
    producer = ck.Producer(settings)
    for number in range(WRITTEN):
        subject = f"w{number}-value"
        value = SchemaValue(subject, 1, 1_000_000 + number, schema_text(1_000_000 + number))
        key, data = encode_record(SchemasRecord(schema_key(subject, 1), value))
        producer.produce("_schemas", data, key)
    assert producer.flush(60) == 0


if __name__ == "__main__":
    main()
