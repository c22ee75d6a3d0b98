"""The broker's HTTP server on `http.listener`: health, metrics, and the routes of the console where
it is enabled.

- /livez: 200 as soon as the event loop runs. A failed disk makes a broker unready, but a restart
  would not help.
- /readyz: 200 while clients are served, a controller is known, no log directory has failed, and no
  error requires a restart; else 503 with the reasons, one per line.
- /metrics: Prometheus's text format or OpenMetrics, as the request accepts, and gzip; made in short
  slices of time, so that no record waits for a scrape.
"""

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Iterable
from itertools import chain
from typing import Final

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config import HttpAddress
from ottla_broker.duration_histogram import DurationHistogram
from ottla_broker.http.collector import Family, QuorumRates, collect_metrics, single_sample
from ottla_broker.http.process_metrics import EventLoopIdleTime, read_process_metrics
from ottla_broker.http.prometheus_text import (
    CONTENT_TYPE,
    OPEN_METRICS_CONTENT_TYPE,
    OPEN_METRICS_END,
    format_header,
    format_samples,
    is_open_metrics_accepted,
)
from ottla_broker.http.request_metrics import LatencyMetrics
from ottla_broker.log.disk import read_file_system_space
from ottla_broker.metrics import DIRECTORY_BYTES, DIRECTORY_USABLE, Sample
from ottla_broker.server import Server
from ottla_broker.time_slices import TimeSlices

WRITE_BYTES: Final = 16 << 10
GZIP_LEVEL: Final = 1
GZIP_WINDOW_BITS: Final = 31
GZIP_MEMORY_LEVEL: Final = 6
"""Less than the usual 8: zlib encodes a block at once, and such blocks are a quarter as long."""
SHUTDOWN_TIMEOUT_S: Final = 1.0
NO_CONTROLLER: Final = -1


class HttpServer:
    """One per broker. `routes`: those of the console."""

    def __init__(self, broker: Broker, server: Server, routes: Iterable[web.RouteDef] = ()) -> None:
        self._broker = broker
        self._server = server
        self._latency = LatencyMetrics()
        self._idle_time = EventLoopIdleTime()
        self._quorum_rates = QuorumRates()
        app = web.Application()
        app.add_routes(
            [web.get("/livez", self._livez), web.get("/readyz", self._readyz), web.get("/metrics", self._metrics)]
        )
        app.add_routes(routes)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_TIMEOUT_S)

    async def start(self, address: HttpAddress, tls: ssl.SSLContext | None = None) -> int:
        """Listens and returns the port; for the port 0 the system chooses one. An empty host means
        every interface. Raises OSError, for example when the port is taken.
        """
        await self._runner.setup()
        await web.TCPSite(self._runner, address.host or None, address.port, ssl_context=tls).start()
        port: int = self._runner.addresses[0][1]
        return port

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _livez(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        reasons = readiness_problems(self._broker)
        text = "\n".join(reasons) if reasons else "ok"
        return web.Response(text=f"{text}\n", status=503 if reasons else 200)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        open_metrics = is_open_metrics_accepted(request.headers.get("Accept", ""))
        headers = {"Content-Type": OPEN_METRICS_CONTENT_TYPE if open_metrics else CONTENT_TYPE}
        compressor = None
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            compressor = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_WINDOW_BITS, memLevel=GZIP_MEMORY_LEVEL)
            headers["Content-Encoding"] = "gzip"
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        pending = bytearray()
        async for text in self._exposition(open_metrics=open_metrics):
            pending += text.encode() if compressor is None else compressor.compress(text.encode())
            if len(pending) >= WRITE_BYTES:
                await response.write(bytes(pending))
                pending.clear()
        if compressor is not None:
            pending += compressor.flush()
        await response.write_eof(bytes(pending))
        return response

    async def _exposition(self, *, open_metrics: bool) -> AsyncIterator[str]:
        """The text, in pieces of one batch of samples."""
        slices = TimeSlices()
        async for metric, samples in self._families(slices):
            yield format_header(metric, open_metrics=open_metrics)
            async for batch in slices.batches(samples):
                yield format_samples(metric, batch)
        if open_metrics:
            yield OPEN_METRICS_END

    async def _families(self, slices: TimeSlices) -> AsyncIterator[Family]:
        async for family in collect_metrics(self._broker, self._server, slices):
            yield family
        flushes = DurationHistogram.merge([one.storage.flush_times for one in self._broker.log_dirs])
        now_s = asyncio.get_running_loop().time()
        for family in self._latency.collect(self._server.dispatcher.request_times, flushes, now_s):
            yield family
        for family in chain(self._idle_time.collect(), self._quorum_rates.collect(self._broker)):
            yield family
        for metric, value in await self._broker.runtime.run_in_thread(list, read_process_metrics()):
            yield single_sample(metric, value)
        for family in await self._directories():
            yield family

    async def _directories(self) -> list[Family]:
        total, usable = [], []
        for directory in self._broker.log_dirs:
            space = await self._broker.runtime.run_in_thread(read_file_system_space, directory.path)
            total.append(Sample((directory.path,), space.total))
            usable.append(Sample((directory.path,), space.usable))
        return [(DIRECTORY_BYTES, total), (DIRECTORY_USABLE, usable)]


def readiness_problems(broker: Broker) -> list[str]:
    """The reasons why this broker is not ready; empty if it is."""
    reasons = [] if broker.ready else ["the broker is starting or stopping"]
    if broker.ready and broker.image.controller_id == NO_CONTROLLER:
        reasons.append("no controller is known")
    reasons += [f"log directory {one.path} failed: {one.failure}" for one in broker.log_dirs if one.failure is not None]
    return reasons + broker.unrecoverable_errors
