"""/livez, /readyz and /metrics of a broker, over HTTP."""

import gzip
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families

from ottla_broker.broker import Broker
from ottla_broker.config import HttpAddress
from ottla_broker.dispatcher import answer_locally
from ottla_broker.http.server import HttpServer
from ottla_broker.metrics import METRICS
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.records import Record, encode_batch
from tests.unit.async_tests import async_test
from tests.unit.config.api_broker import broker_with_topic
from tests.unit.http.small_server import small_server

Get = Callable[[str], Coroutine[None, None, tuple[int, str]]]


@asynccontextmanager
async def run_http_server(broker: Broker, server: Any) -> AsyncIterator[Get]:
    """Yields a function that gets the status and the body of a path."""
    http = HttpServer(broker, server)
    port = await http.start(HttpAddress("127.0.0.1", 0))

    async def get(path: str) -> tuple[int, str]:
        async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
            return response.status, await response.text()

    try:
        yield get
    finally:
        await http.close()


def parse_samples(text: str) -> dict[tuple[str, ...], float]:
    """(name, label values…) → value."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@async_test
async def test_readyz_reports_why_a_broker_is_not_ready(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker, run_http_server(broker, small_server()) as get:
        assert await get("/livez") == (200, "ok\n")
        assert await get("/readyz") == (200, "ok\n")
        broker.log_dirs[0].failure = "no space left"
        assert await get("/readyz") == (503, f"log directory {tmp_path / 'data'} failed: no space left\n")
        broker.log_dirs[0].failure = None
        broker.image.controller_id = -1
        assert await get("/readyz") == (503, "no controller is known\n")
        broker.ready = False
        assert await get("/readyz") == (503, "the broker is starting or stopping\n")
        assert (await get("/livez"))[0] == 200
        assert (await get("/none"))[0] == 404


@async_test
async def test_metrics_have_the_values_of_the_broker(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        server = small_server()
        server.dispatcher.request_counts[ApiKey.PRODUCE] = 4
        server.dispatcher.request_counts[ApiKey.METADATA] = 2
        batch = encode_batch([Record(1, None, b"x"), Record(2, None, b"y")])
        broker.partitions.leader("t", 0).append_records(batch, acks=1)
        broker.partitions.leader("t", 1).append_records(batch, acks=1)
        with pytest.raises(KafkaError):
            broker.partitions.leader("t", 1).append_records(batch[:-1], acks=1)
        broker.partitions.leader("t", 1).traffic.bytes_out += 7
        async with run_http_server(broker, server) as get:
            status, text = await get("/metrics")
        assert status == 200
        found = parse_samples(text)
        expected = {
            ("kafka_server_brokertopicmetrics_messagesin_total", "t"): 4,
            ("kafka_server_brokertopicmetrics_bytesin_total", "t"): 2 * len(batch),
            ("kafka_server_brokertopicmetrics_bytesout_total", "t"): 7,
            ("kafka_network_requestmetrics_requests_total", "Produce"): 4,
            ("kafka_network_requestmetrics_requests_total", "Metadata"): 2,
            ("kafka_server_socketservermetrics_connection_count", "PLAINTEXT"): 2,
            ("kafka_server_socketservermetrics_connection_count", "INSIDE"): 1,
            ("kafka_server_replicamanager_partitioncount",): 2,
            ("kafka_server_replicamanager_leadercount",): 2,
            ("kafka_server_replicamanager_underreplicatedpartitions",): 0,
            ("kafka_controller_kafkacontroller_activecontrollercount",): 1,
            ("kafka_controller_kafkacontroller_globaltopiccount",): 1,
            ("kafka_log_log_logendoffset", "t", "1"): 2,
            ("kafka_log_log_size", "t", "0"): len(batch),
            ("kafka_server_brokertopicmetrics_totalproducerequests_total", "t"): 3,
            ("kafka_server_brokertopicmetrics_failedproducerequests_total", "t"): 1,
            ("kafka_server_delayedoperationpurgatory_purgatorysize", "Produce"): 3,
            ("kafka_server_delayedoperationpurgatory_purgatorysize", "Fetch"): 3,
            ("ottla_listener_certificate_expiry_seconds", "INSIDE"): 1.8e9,
            ("kafka_cluster_partition_replicascount", "t", "1"): 1,
            ("kafka_cluster_partition_insyncreplicascount", "t", "1"): 1,
            ("kafka_cluster_partition_atminisr", "t", "1"): 1,
            ("kafka_cluster_partition_underminisr", "t", "1"): 0,
            ("kafka_server_raftmetrics_current_state", "leader"): 1,
            ("kafka_server_raftmetrics_current_leader",): broker.node_id,
            ("kafka_topic_partition_leader_is_preferred", "t", "0"): 1,
            ("ottla_connections_refused_total",): 3,
            ("ottla_request_memory_bytes",): 12,
            ("kafka_server_kafkaserver_brokerstate",): 3,
        }
        assert {key: found.get(key) for key in expected} == expected
        assert found[("process_resident_memory_bytes",)] > 1 << 20
        assert not [key for key in found if "__cluster_metadata" in key]


@async_test
async def test_prometheus_gets_open_metrics_and_gzip_if_it_accepts_them(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        http = HttpServer(broker, small_server())
        url = f"http://127.0.0.1:{await http.start(HttpAddress('127.0.0.1', 0))}/metrics"
        accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
        headers = {"Accept": accept, "Accept-Encoding": "gzip"}
        async with ClientSession(auto_decompress=False) as session, session.get(url, headers=headers) as response:
            assert response.content_type == "application/openmetrics-text"
            assert response.headers["Content-Encoding"] == "gzip"
            text = gzip.decompress(await response.read()).decode()
        families = {family.name: family for family in parse_open_metrics(text)}  # type: ignore[no-untyped-call]
        assert families["kafka_server_brokertopicmetrics_messagesin"].type == "counter"
        plain = {"Accept-Encoding": "identity", "Accept": "text/plain"}
        async with ClientSession() as session, session.get(url, headers=plain) as response:
            assert (response.content_type, response.headers.get("Content-Encoding")) == ("text/plain", None)
            assert len(list(text_string_to_metric_families(await response.text()))) == len(families)
        await http.close()


@async_test
async def test_every_declared_metric_is_exposed(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker, run_http_server(broker, small_server()) as get:
        _, text = await get("/metrics")
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        assert sorted(names) == sorted(metric.name for metric in METRICS)


@async_test
async def test_broker_that_has_not_started_is_reported_as_starting(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        starting = Broker(broker.config, answer_locally)  # never started, so it needs no stop
        async with run_http_server(starting, small_server()) as get:
            assert (await get("/readyz"))[0] == 503
            status, text = await get("/metrics")
            assert (status, parse_samples(text)[("kafka_server_kafkaserver_brokerstate",)]) == (200, 1)
