"""The operator's own metrics for Prometheus, and its health."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import web

PAGE_BYTES: Final = 4096  # size of the memory pages that /proc/self/statm counts, on x86-64 and most arm64 kernels


@dataclass(slots=True)
class Metrics:
    """`count_resources`: returns the number of resources in the watch cache by kind. `writes`: by
    kind of object. `reconciles`: by kind and result, done or failed. `reconcile_s`: by kind.
    """

    count_resources: Callable[[], Mapping[str, int]]
    writes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    reconciles: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    reconcile_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    is_active: bool = False
    is_ready: bool = False

    def count_write(self, kind: str) -> None:
        self.writes[kind] += 1

    def count_reconcile(self, kind: str, succeeded: bool, duration_s: float) -> None:
        self.reconciles[kind, "done" if succeeded else "failed"] += 1
        self.reconcile_s[kind] += duration_s

    def render(self) -> str:
        """The metrics in Prometheus' text format
        (https://prometheus.io/docs/instrumenting/exposition_formats/).
        """
        rows = [
            *_metric("ottla_operator_active", "gauge", "1 on the active operator.", [("", float(self.is_active))]),
            *_metric(
                "ottla_operator_resources",
                "gauge",
                "Resources in the watch cache.",
                [(f'{{kind="{kind}"}}', float(count)) for kind, count in sorted(self.count_resources().items())],
            ),
            *_metric(
                "ottla_operator_reconciles_total",
                "counter",
                "Reconciles, by kind and result.",
                [(f'{{kind="{kind}",result="{it}"}}', float(n)) for (kind, it), n in sorted(self.reconciles.items())],
            ),
            *_metric(
                "ottla_operator_reconcile_seconds_total",
                "counter",
                "Time spent in reconciles.",
                [(f'{{kind="{kind}"}}', it) for kind, it in sorted(self.reconcile_s.items())],
            ),
            *_metric(
                "ottla_operator_writes_total",
                "counter",
                "Writes to the API server, by kind of object.",
                [(f'{{kind="{kind}"}}', float(count)) for kind, count in sorted(self.writes.items())],
            ),
            *_metric("process_resident_memory_bytes", "gauge", "Resident memory.", [("", float(_resident_bytes()))]),
            *_metric("process_cpu_seconds_total", "counter", "CPU time.", [("", time.process_time())]),
        ]
        return "\n".join(rows) + "\n"


def _metric(name: str, kind: str, text: str, values: list[tuple[str, float]]) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *(f"{name}{labels} {it:g}" for labels, it in values)]


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    except FileNotFoundError:
        return 0


async def serve(metrics: Metrics, host: str, port: int) -> web.AppRunner:
    """Serves /livez, /readyz and /metrics. A standby operator is ready too, once its watch cache is
    complete: the operator that it replaces is stopped only then, so a deletion is always watched.
    """

    async def livez(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        if metrics.is_ready:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the watch cache is not complete yet\n")

    async def scrape(request: web.Request) -> web.Response:
        return web.Response(text=metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", scrape)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host or None, port).start()
    return runner
