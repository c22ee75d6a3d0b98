"""Traces requests of one broker, and sends the traces to a collector. Imported only where
`otel.exporter.otlp.endpoint` is set.
"""

import asyncio
import time
from contextlib import suppress
from random import Random
from typing import Final

from ottla_broker.broker import Broker
from ottla_broker.config import OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER_ARG
from ottla_broker.requests.context import ConnectionState
from ottla_broker.tracing.collector import Collector
from ottla_broker.tracing.otlp_span import Attribute
from ottla_broker.tracing.sampler import Sampler
from ottla_broker.tracing.span_exporter import SpanExporter
from ottla_broker.tracing.traced_request import TracedRequest, TracingServices
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.fetch_request import CONSUMER, read_fetch_request
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.request_header import read_request_header

TRACED: Final = (int(ApiKey.PRODUCE).to_bytes(2), int(ApiKey.FETCH).to_bytes(2))
"""How the frames of traced requests begin."""
LAST_EXPORT_S: Final = 1.0
"""How long a stopping broker waits for the collector."""


class Tracer:
    """One per broker, on the running loop."""

    def __init__(self, broker: Broker) -> None:
        config = broker.config
        endpoint = config(OTEL_EXPORTER_OTLP_ENDPOINT) or ""
        random = Random(broker.runtime.random.getrandbits(64))
        self._collector = Collector(endpoint)
        resource = {
            "service.name": config(OTEL_SERVICE_NAME),
            "service.instance.id": str(broker.node_id),
        }
        self._exporter = SpanExporter(self._collector.post, resource, endpoint, broker.trace_counts)
        clock = broker.runtime.processing_clock
        self._sampler = Sampler(lambda: config(OTEL_TRACES_SAMPLER_ARG), random.random, clock, broker.trace_counts)
        self._services = TracingServices(
            clock,
            time.time_ns,
            lambda topic_id: broker.image.topic_names.get(topic_id),
            random.randbytes,
            self._exporter.add,
        )
        self._exporting: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._exporting = asyncio.get_running_loop().create_task(self._exporter.run())

    async def close(self) -> None:
        """Sends what is queued, for LAST_EXPORT_S at most."""
        if self._exporting is not None:
            self._exporting.cancel()
            await asyncio.wait([self._exporting])
        with suppress(TimeoutError):
            await asyncio.wait_for(self._exporter.export_queued(), LAST_EXPORT_S)
        await self._collector.close()

    def sample(self, frame: bytearray, connection: ConnectionState) -> TracedRequest | None:
        """The trace of a Produce request or a consumer's Fetch request, if it is sampled."""
        if connection.is_follower or not frame.startswith(TRACED) or not self._sampler.is_sampled():
            return None
        try:
            header = read_request_header(frame)
            fetch = None if header.api_key == ApiKey.PRODUCE else read_fetch_request(frame, header)
        except MalformedMessage:
            return None  # the connection reads it again, and closes
        if fetch is not None and fetch.replica != CONSUMER:
            return None
        client: dict[str, Attribute] = {
            "client.address": connection.host,
            "kafka.listener.name": connection.listener,
            "user.name": str(connection.principal),
        }
        return TracedRequest(self._services, client, header, fetch)
