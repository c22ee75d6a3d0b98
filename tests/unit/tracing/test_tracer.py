"""Requests on connections of a broker that traces them, and what its collector receives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import plain_requests
from bench.hot_paths import TOPIC, Client, fetch_request
from ottla_broker.broker import Broker
from ottla_broker.log.validation import LogAppendInfo
from ottla_broker.requests.context import ConnectionState
from ottla_broker.requests.reply import DeferredResponse
from ottla_broker.server import Server
from ottla_broker.tracing.tracer import Tracer
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.produce import ProduceResponsePartition
from tests.otlp_collector import Collector, run_collector
from tests.unit.async_tests import async_test, wait_until
from tests.unit.broker_without_sockets import run_broker

RECORDS = plain_requests.encode_batch(b"value")


@dataclass(frozen=True)
class TracedBroker:
    broker: Broker
    tracer: Tracer
    server: Server

    def send(self, *requests: bytes) -> list[Client]:
        """Sends each request on a connection of its own, all in one turn of the event loop."""
        clients = [Client(self.server, request) for request in requests]
        for client in clients:
            client.send()
        return clients


@asynccontextmanager
async def run_traced_broker(folder: Path, collector: Collector, ratio: str = "1") -> AsyncIterator[TracedBroker]:
    """A broker with a topic. The collector has all spans when the block is left."""
    endpoint = collector.endpoint
    async with run_broker(folder, otel_exporter_otlp_endpoint=endpoint, otel_traces_sampler_arg=ratio) as broker:
        tracer = Tracer(broker)
        traced = TracedBroker(broker, tracer, Server(broker, sample_trace=tracer.sample))
        traced.send(plain_requests.metadata_request(TOPIC))
        await wait_until(lambda: any(one.topic == TOPIC and one.is_leader for one in broker.partitions))
        try:
            yield traced
            await asyncio.sleep(0)  # spans are made in the next turn
        finally:
            await tracer.close()


@async_test
async def test_requests_of_one_turn_have_a_trace_each(tmp_path: Path) -> None:
    with run_collector() as collector:
        async with run_traced_broker(tmp_path, collector) as traced:
            producers = traced.send(*[plain_requests.produce_request(TOPIC, RECORDS)] * 3)
            errors = [plain_requests.error_code(bytes(one.transport.last[4:]), TOPIC) for one in producers]
            assert errors == [0, 0, 0]
        requests = collector.spans_named("Produce", messaging_destination_name=TOPIC)
        assert [one.attributes["messaging.kafka.offset"] for one in requests] == [0, 1, 2]
        assert len({one.trace_id for one in requests}) == 3
        assert {child.name for one in requests for child in collector.children_of(one)} == {"log append"}
        assert {one.resource["service.name"] for one in requests} == {"ottla-broker"}


@async_test
async def test_error_of_a_request_is_its_status(tmp_path: Path) -> None:
    with run_collector() as collector:
        async with run_traced_broker(tmp_path, collector) as traced:
            traced.send(plain_requests.produce_request(TOPIC, RECORDS, partition=99))
        (request,) = collector.spans_named("Produce")
        assert (request.error, request.attributes["messaging.kafka.offset"]) == ("UNKNOWN_TOPIC_OR_PARTITION", -1)


@async_test
async def test_span_of_a_fetch_names_its_topic_and_offset(tmp_path: Path) -> None:
    with run_collector() as collector:
        async with run_traced_broker(tmp_path, collector) as traced:
            traced.send(plain_requests.produce_request(TOPIC, RECORDS), fetch_request(0, 0))
        (request,) = collector.spans_named("Fetch")
        assert (request.attributes["messaging.destination.name"], request.attributes["messaging.kafka.offset"]) == (
            TOPIC,
            0,
        )
        assert [child.name for child in collector.children_of(request)] == ["log read"]


@async_test
async def test_nothing_is_traced_with_a_ratio_of_zero(tmp_path: Path) -> None:
    with run_collector() as collector:
        async with run_traced_broker(tmp_path, collector, ratio="0") as traced:
            (producer,) = traced.send(plain_requests.produce_request(TOPIC, RECORDS))
            await asyncio.sleep(0)  # it is joined with others of its turn
            assert plain_requests.error_code(bytes(producer.transport.last[4:]), TOPIC) == 0
        assert collector.spans == []


@async_test
async def test_waiting_for_followers_ends_when_the_producer_is_gone(tmp_path: Path) -> None:
    with run_collector() as collector:
        async with run_traced_broker(tmp_path, collector) as traced:
            partition = traced.broker.partitions.leader(TOPIC, 0)
            frame = bytearray(plain_requests.produce_request(TOPIC, RECORDS)[4:])
            trace = traced.tracer.sample(frame, ConnectionState("127.0.0.1", 1, "PLAINTEXT"))
            assert trace is not None
            response = DeferredResponse(loop=asyncio.get_running_loop())
            appended = LogAppendInfo(0, 0, -1, 0, False, 1, 100)
            trace.on_waiting([(ProduceResponsePartition(0, ErrorCode.none, 0), partition, appended)], response)
            assert len(partition.low_watermark_waiters.waiting) == 1
            response.cancel()
            await asyncio.sleep(0)
            assert not partition.low_watermark_waiters.waiting
