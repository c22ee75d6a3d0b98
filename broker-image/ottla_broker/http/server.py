"""The broker's HTTP server on `http.listener`: health, metrics, and the routes of the console where
it is enabled.

- /livez: 200 as soon as the event loop runs. A failed disk makes a broker unready, but a restart
  would not help.
- /readyz: 200 while clients are served, else 503 with the reasons, one per line.
- /metrics: Prometheus's text format, written in slices so that no record waits for a scrape.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config import HttpAddress
from ottla_broker.http.collector import collect_metrics, single_sample
from ottla_broker.http.process_metrics import read_process_metrics
from ottla_broker.http.prometheus_text import CONTENT_TYPE, format_header, format_samples
from ottla_broker.log.disk import read_file_system_space
from ottla_broker.metrics import DIRECTORY_BYTES, DIRECTORY_USABLE, Sample
from ottla_broker.server import Server

SAMPLES_PER_SLICE: Final = 500
"""Written before other tasks may run: about 0.3 ms."""
SHUTDOWN_TIMEOUT_S: Final = 1.0
NO_CONTROLLER: Final = -1


class HttpServer:
    """One per broker. `start` raises OSError when the port is taken. `routes`: further ones."""

    def __init__(self, broker: Broker, server: Server, routes: Iterable[web.RouteDef] = ()) -> None:
        self._broker = broker
        self._server = server
        app = web.Application()
        app.add_routes(
            [web.get("/livez", self._livez), web.get("/readyz", self._readyz), web.get("/metrics", self._metrics)]
        )
        app.add_routes(routes)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_TIMEOUT_S)

    async def start(self, address: HttpAddress) -> int:
        """Listen and return the port, which the system chooses if it is 0. An empty host means
        every interface.
        """
        await self._runner.setup()
        await web.TCPSite(self._runner, address.host or None, address.port).start()
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
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        for metric, samples in collect_metrics(self._broker, self._server):
            await response.write(format_header(metric).encode())
            for start in range(0, len(samples), SAMPLES_PER_SLICE):
                await response.write(format_samples(metric, samples[start : start + SAMPLES_PER_SLICE]).encode())
                await asyncio.sleep(0)
        for metric, value in read_process_metrics():
            await response.write((format_header(metric) + format_samples(*single_sample(metric, value))).encode())
        await response.write((await self._directories()).encode())
        await response.write_eof()
        return response

    async def _directories(self) -> str:
        total, usable = [], []
        for directory in self._broker.log_dirs:
            space = await self._broker.runtime.run_in_thread(read_file_system_space, directory.path)
            total.append(Sample((directory.path,), space.total))
            usable.append(Sample((directory.path,), space.usable))
        return "".join(
            format_header(metric) + format_samples(metric, samples)
            for metric, samples in ((DIRECTORY_BYTES, total), (DIRECTORY_USABLE, usable))
        )


def readiness_problems(broker: Broker) -> list[str]:
    """The reasons why this broker is not ready; empty if it is."""
    reasons = [] if broker.ready else ["the broker is starting or stopping"]
    if broker.ready and broker.image.controller_id == NO_CONTROLLER:
        reasons.append("no controller is known")
    reasons += [f"log directory {one.path} failed: {one.failure}" for one in broker.log_dirs if one.failure is not None]
    return reasons + broker.unrecoverable_errors
