"""What a scrape does in one iteration of the event loop, and scrapes while topics come and go."""

import asyncio
import sys
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla_broker import time_slices
from ottla_broker.broker import Broker
from ottla_broker.config import HttpAddress
from ottla_broker.http.server import HttpServer
from ottla_broker.log import maintenance
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.requests.context import ConnectionState
from ottla_broker.telemetry.pushed_metrics import PushedPoint
from tests.unit.async_tests import async_test, wait_until
from tests.unit.broker_without_sockets import run_broker
from tests.unit.http.small_server import WAITING, small_server
from tests.unit.topic_creation import create_topic

MANY: Final = 2_000
"""Partitions, connections and pushed series."""
HOUR_MS: Final = "3600000"
MAX_LINES: Final = MANY // 2
"""Limit of the lines of one function that run in one iteration of the event loop: fewer than one
line for each of MANY. Each function is counted by itself, because timers that a busy machine has
delayed run in the same iteration.
"""


@pytest.fixture(autouse=True)
def pause_after_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where each batch takes as long as a slice."""
    monkeypatch.setattr(time_slices, "MIN_SLICE_S", 0.0)
    monkeypatch.setattr(time_slices, "MAX_SLICE_S", 0.0)


@asynccontextmanager
async def run_http_server(broker: Broker, server: Any) -> AsyncIterator[str]:
    """Yields the address of the metrics."""
    http = HttpServer(broker, server)
    try:
        yield f"http://127.0.0.1:{await http.start(HttpAddress('127.0.0.1', 0))}/metrics"
    finally:
        await http.close()


async def scrape(url: str) -> str:
    """The page of metrics, read in another thread so that the loop does only the server's work."""

    def read() -> str:
        with urllib.request.urlopen(url) as response:
            text: str = response.read().decode()
            return text

    return await asyncio.to_thread(read)


class LineCount:
    """Counts the lines that this thread runs in each iteration of the loop, by function, until
    `stop`.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines = Counter[str]()
        self._former = sys.gettrace()
        self._turn: asyncio.Handle | None = None
        self.iterations: list[Counter[str]] = []

    def start(self) -> None:
        self._end_iteration()
        sys.settrace(self._trace)

    def stop(self) -> None:
        sys.settrace(self._former)
        assert self._turn is not None
        self._turn.cancel()

    def _end_iteration(self) -> None:
        self.iterations.append(self._lines)
        self._lines = Counter()
        self._turn = self._loop.call_soon(self._end_iteration)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self._lines[frame.f_code.co_qualname] += 1
        return self._trace


def add_connections_and_series(broker: Broker, server: Any) -> None:
    """Connections with requests, and series that clients have pushed."""
    server.connections += [
        SimpleNamespace(state=ConnectionState("127.0.0.1", 1, "MANY"), waiting_requests=lambda: WAITING)
        for _ in range(MANY)
    ]
    now_ms = broker.runtime.now_ms()
    for client in range(MANY // 1000):
        points = [PushedPoint("pushed", "gauge", (("number", str(n)),), n) for n in range(1000)]
        labels = {"client_id": str(client)}
        broker.client_telemetry.metrics.add(UUID(int=client), labels, points, now_ms=now_ms, interval_ms=60_000)


@async_test
async def test_a_scrape_does_little_in_one_iteration_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_TICK_S", 3600.0)  # the scrape has the loop to itself
    async with run_broker(tmp_path, log_cleaner_backoff_ms=HOUR_MS, replica_lag_time_max_ms=HOUR_MS) as broker:
        await create_topic(broker.active_controller(), NewTopic("many", MANY, 1))
        await wait_until(lambda: len(broker.partitions) == MANY)
        server = small_server()
        add_connections_and_series(broker, server)
        async with run_http_server(broker, server) as url:
            await scrape(url)  # the first one reads the version of the distribution
            lines = LineCount()
            lines.start()
            try:
                text = await scrape(url)
            finally:
                lines.stop()
        families = {family.name: len(family.samples) for family in text_string_to_metric_families(text)}
        assert families["kafka_log_log_size"] == families["pushed"] == MANY
        assert sum(one.total() for one in lines.iterations) > 10 * MANY
        longest = max(lines.iterations, key=lambda one: max(one.values(), default=0))
        assert max(longest.values()) < MAX_LINES, longest.most_common(10)


@async_test
async def test_scrapes_are_complete_while_topics_come_and_go(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as broker, run_http_server(broker, small_server()) as url:
        controller = broker.active_controller()
        await create_topic(controller, NewTopic("stays", 200, 1))
        await wait_until(lambda: len(broker.partitions) == 200)
        deleted = 0

        async def create_and_delete() -> None:
            nonlocal deleted
            for number in count():
                await create_topic(controller, NewTopic(f"goes-{number}", 20, 1))
                await controller.delete_topic(f"goes-{number}")
                deleted += 1

        changing = asyncio.create_task(create_and_delete())
        while deleted < 20:
            families = {one.name: one.samples for one in text_string_to_metric_families(await scrape(url))}
            for name in ("kafka_log_log_size", "kafka_cluster_partition_replicascount"):
                labels = [tuple(sample.labels.values()) for sample in families[name]]
                assert len(labels) == len(set(labels))
                assert sum(topic == "stays" for topic, _ in labels) == 200
        changing.cancel()
