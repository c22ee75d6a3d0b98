"""The HTTP server of all workers on `http.listener`: health and metrics. Each worker serves its own
at one of the ports after it.

- /livez: 200 while the command runs, which restarts workers itself.
- /readyz: 200 while every worker is ready, else 503 with the reasons, one per line.
- /metrics: the metrics of all workers, distinguished by the label `worker`.
"""

import asyncio
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from ottla_broker.config import HttpAddress
from ottla_broker.config.addresses import EVERY_INTERFACE
from ottla_broker.http.prometheus_text import CONTENT_TYPE
from ottla_broker.workers.combined_metrics import combine_metrics, format_worker_states
from ottla_broker.workers.worker_plan import LOOPBACK
from ottla_broker.workers.worker_process import WorkerProcess

WORKER_TIMEOUT_S: Final = 5.0
SHUTDOWN_TIMEOUT_S: Final = 1.0


class WorkersHttpServer:
    """`start` raises OSError when the port is taken."""

    def __init__(self, workers: list[WorkerProcess]) -> None:
        self._workers = workers
        self._client: ClientSession | None = None
        app = web.Application()
        app.add_routes(
            [web.get("/livez", self._livez), web.get("/readyz", self._readyz), web.get("/metrics", self._metrics)]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_TIMEOUT_S)

    async def start(self, address: HttpAddress) -> None:
        self._client = ClientSession(timeout=ClientTimeout(WORKER_TIMEOUT_S))
        await self._runner.setup()
        await web.TCPSite(self._runner, address.host or None, address.port).start()

    async def close(self) -> None:
        await self._runner.cleanup()
        if self._client is not None:
            await self._client.close()

    async def _livez(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        responses = await asyncio.gather(*(self._get(it, "readyz") for it in self._workers))
        reasons = [
            f"broker {it.plan.node_id}: {line}"
            for it, (status, text) in zip(self._workers, responses, strict=True)
            if status != web.HTTPOk.status_code
            for line in text.splitlines()
        ]
        text = "\n".join(reasons) if reasons else "ok"
        return web.Response(text=f"{text}\n", status=503 if reasons else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        responses = await asyncio.gather(*(self._get(it, "metrics") for it in self._workers))
        pages = {
            it.plan.node_id: text
            for it, (status, text) in zip(self._workers, responses, strict=True)
            if status == web.HTTPOk.status_code
        }
        text = format_worker_states(self._workers) + combine_metrics(pages)
        response = web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})
        response.enable_compression()
        return response

    async def _get(self, worker: WorkerProcess, path: str) -> tuple[int, str]:
        """Status and text; status 0 if the worker does not respond."""
        address = worker.plan.http
        assert self._client is not None
        assert address is not None
        host = LOOPBACK if address.host in EVERY_INTERFACE else address.host
        try:
            async with self._client.get(f"http://{address._replace(host=host)}/{path}") as response:
                return response.status, await response.text()
        except (ClientError, TimeoutError):
            return 0, "the worker does not respond"
