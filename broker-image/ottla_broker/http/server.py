"""The broker's small HTTP face: /livez, /readyz and /metrics, on `http.listener`.

- /livez: 200 as soon as the event loop answers. A disk that failed is no reason to be restarted; it is one not to be ready.
- /readyz: 200 when clients are served, else 503 with the reasons, a line each.
- /metrics: Prometheus's text format, made in slices so that no record waits for a scrape.
"""

import asyncio

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config import HttpAddress
from ottla_broker.http.collector import collect_metrics, single
from ottla_broker.http.process_metrics import process
from ottla_broker.http.prometheus_text import CONTENT_TYPE, heading, lines
from ottla_broker.log.disk import read_file_system_space
from ottla_broker.metrics import DIRECTORY_BYTES, DIRECTORY_USABLE, Sample
from ottla_broker.server import Server

SLICE = 500  # samples written before others may work: about 0.3 ms
SHUTDOWN_S = 1.0
NO_CONTROLLER = -1


class HttpServer:
    """One per broker. `start` raises OSError when the port is taken."""

    def __init__(self, broker: Broker, server: Server) -> None:
        self._broker = broker
        self._server = server
        app = web.Application()
        app.add_routes(
            [web.get("/livez", self._livez), web.get("/readyz", self._readyz), web.get("/metrics", self._metrics)]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S)

    async def start(self, address: HttpAddress) -> int:
        """Listens; returns the port, chosen by the system if it was 0. An empty host means every interface."""
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
            await response.write(heading(metric).encode())
            for start in range(0, len(samples), SLICE):
                await response.write(lines(metric, samples[start : start + SLICE]).encode())
                await asyncio.sleep(0)
        for metric, value in process():
            await response.write((heading(metric) + lines(*single(metric, value))).encode())
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
            heading(metric) + lines(metric, samples)
            for metric, samples in ((DIRECTORY_BYTES, total), (DIRECTORY_USABLE, usable))
        )


def readiness_problems(broker: Broker) -> list[str]:
    """Why clients cannot be served here now; empty when they can."""
    reasons = [] if broker.ready else ["the broker is starting or stopping"]
    if broker.ready and broker.image.controller_id == NO_CONTROLLER:
        reasons.append("no controller is known")
    reasons += [f"log directory {one.path} failed: {one.failure}" for one in broker.log_dirs if one.failure is not None]
    return reasons + broker.unrecoverable_errors
