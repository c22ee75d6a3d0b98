"""`python -m bench.hot_paths [--requests N] [--threads N]`: cost of requests without sockets.

Requests are given to `Connection` in one process, and a transport takes the responses. Prints µs
for each request: of small Produce and Fetch requests on 1 and on 500 connections, and of Produce
requests of 60 kB on one. Those of small Produce requests are the interpreter's part of the bench
lines `many-producers-*-cpu`: they include the write to the log, but no system calls of sockets. The
broker is that of the source or of the compiled modules, whichever Python imports.

With `--threads N`, one process runs N brokers, each with its own connections, event loop and
thread, and prints the rate of all of them together. They share nothing but the interpreter, so no
broker that divides its connections among threads can scale better.
"""

import argparse
import asyncio
import json
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench import plain_requests
from ottla_broker.connection import Connection
from ottla_broker.garbage_collection import PauseLimit
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.server import Server
from ottla_broker.wire.api_keys import ApiKey
from tests.unit.broker_without_sockets import run_broker

TOPIC, PARTITIONS = "hot", 12
REPEATS = 7
REQUESTS = 20_000
CONNECTIONS = 500  # of each thread


class NullTransport(asyncio.Transport):
    """Takes responses, and keeps the last one."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.last: Any = b""

    def write(self, data: Any) -> None:
        self.last = data

    def writelines(self, list_of_data: Any) -> None:
        self.last = b"".join(list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def abort(self) -> None:
        raise RuntimeError("the broker closed a connection")


class Client:
    """A connection whose requests come from this program."""

    def __init__(self, server: Server, request: bytes) -> None:
        self.transport = NullTransport()
        self._connection = Connection(server._services, "PLAINTEXT")
        self._connection.connection_made(self.transport)
        self._request = request

    def send(self) -> None:
        size = len(self._request)
        self._connection.get_buffer(-1)[:size] = self._request
        self._connection.buffer_updated(size)


def fetch_request(partition: int, offset: int) -> bytes:
    """A Fetch request, version 11, of one partition, which does not wait."""
    name = TOPIC.encode()
    content = struct.pack(">iiiibiii", -1, 0, 1, 1 << 20, 0, 0, -1, 1)
    content += struct.pack(f">h{len(name)}siiiqqi", len(name), name, 1, partition, -1, offset, -1, 1 << 20)
    return plain_requests.frame_request(ApiKey.FETCH, 11, content + struct.pack(">ih", 0, 0))


async def measure(clients: Sequence[Client], requests: int) -> float:
    """Processor time for each request, in µs: the fastest of `REPEATS`, when other programs
    disturbed it least.
    """
    turns = max(requests // len(clients), 1)
    took = []
    for _ in range(REPEATS):
        began_s = time.process_time()
        for _ in range(turns):
            for client in clients:
                client.send()
            await asyncio.sleep(0)
        took.append((time.process_time() - began_s) / turns / len(clients) * 1e6)
    return min(took)


async def create_topic(server: Server, record: bytes) -> list[bytes]:
    """Creates a topic and waits until a partition takes the record, ten seconds at most. Returns a
    Produce request with the record for each partition.
    """
    metadata = Client(server, plain_requests.metadata_request(TOPIC))
    ready = Client(server, plain_requests.produce_request(TOPIC, record))
    for _ in range(1000):
        metadata.send()
        ready.send()
        await asyncio.sleep(0.01)
        if ready.transport.last and plain_requests.error_code(bytes(ready.transport.last[4:]), TOPIC) == 0:
            break
    return [plain_requests.produce_request(TOPIC, record, number) for number in range(PARTITIONS)]


def small_requests(produce: bytes, log: PartitionLog) -> dict[str, Callable[[], bytes]]:
    """Functions that return a small request as it is to be sent now, by the request's name."""
    return {
        "produce": lambda: produce,
        "fetch-empty": lambda: fetch_request(0, log.end),
        "fetch-record": lambda: fetch_request(0, log.end - 1),
    }


async def run_broker_thread(barrier: threading.Barrier, kind: str, requests: int) -> None:
    """One thread of `measure_threads`, which passes the barrier before and after its requests."""
    record = plain_requests.encode_batch(bytes(100))
    with tempfile.TemporaryDirectory() as folder:
        async with run_broker(Path(folder)) as broker:
            server = Server(broker)
            producers = await create_topic(server, record)
            log = broker.partitions.leader(TOPIC, 0).log
            request = producers[0] if kind == "produce" else fetch_request(0, log.end - 1)
            clients = [Client(server, request) for _ in range(CONNECTIONS)]
            barrier.wait()
            for _ in range(requests // CONNECTIONS):
                for client in clients:
                    client.send()
                await asyncio.sleep(0)
            barrier.wait()


def measure_threads(threads: int, kind: str, requests: int) -> float:
    """Requests per second of all threads together: the highest of three repeats."""
    rates = []
    for _ in range(3):
        barrier = threading.Barrier(threads + 1)
        brokers = [
            threading.Thread(target=uvloop.run, args=(run_broker_thread(barrier, kind, requests),))
            for _ in range(threads)
        ]
        for broker in brokers:
            broker.start()
        barrier.wait()
        began_s = time.monotonic()
        barrier.wait()
        rates.append(threads * (requests // CONNECTIONS) * CONNECTIONS / (time.monotonic() - began_s))
        for broker in brokers:
            broker.join()
    return max(rates)


async def measure_all(requests: int) -> dict[str, float]:
    record = plain_requests.encode_batch(bytes(100))
    large = plain_requests.encode_batch(bytes(60_000))
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with run_broker(Path(folder)) as broker:
            pause_limit = PauseLimit(broker.partitions)
            pause_limit.start()  # as a broker process does
            server = Server(broker)
            producers = await create_topic(server, record)
            kinds = small_requests(producers[0], broker.partitions.leader(TOPIC, 0).log)
            for name, request in kinds.items():
                for connections in (1, 500):
                    clients = [Client(server, request()) for _ in range(connections)]
                    found[f"{name}-{connections}"] = await measure(clients, requests)
            clients = [Client(server, plain_requests.produce_request(TOPIC, large))]
            found["produce-60k-1"] = await measure(clients, requests // 10)
            pause_limit.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_paths", description=(__doc__ or "").splitlines()[0])
    of_each = f"requests in each repeat; with --threads, for each thread (default: {REQUESTS})"
    parser.add_argument("--requests", type=int, default=REQUESTS, help=of_each)
    parser.add_argument("--threads", type=int, help="number of brokers, each in its own thread of one process")
    arguments = parser.parse_args()
    if arguments.threads:
        for kind in ("produce", "fetch-record"):
            rate = measure_threads(arguments.threads, kind, arguments.requests)
            print(f"{kind}, {arguments.threads} threads: {rate:,.0f} requests/s")
        return
    print(json.dumps({k: round(v, 2) for k, v in uvloop.run(measure_all(arguments.requests)).items()}))


if __name__ == "__main__":
    main()
