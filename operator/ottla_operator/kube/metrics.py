"""The operator's own figures for Prometheus, and whether it lives."""

import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import web

PAGE: Final = 4096  # bytes of a page of memory, as /proc counts them on every machine we run on


@dataclass(slots=True)
class Metrics:
    writes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    looks: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    resources: dict[str, int] = field(default_factory=dict)
    active: bool = False
    ready: bool = False

    def wrote(self, kind: str) -> None:
        self.writes[kind] += 1

    def looked(self, kind: str, result: str, seconds: float) -> None:
        self.looks[kind, result] += 1
        self.seconds[kind] += seconds

    def text(self) -> str:
        """https://prometheus.io/docs/instrumenting/exposition_formats/"""
        rows = [
            *_metric("ottla_operator_active", "gauge", "1 on the operator that acts.", [("", float(self.active))]),
            *_metric(
                "ottla_operator_resources",
                "gauge",
                "Resources that are kept.",
                [(f'{{kind="{kind}"}}', float(count)) for kind, count in sorted(self.resources.items())],
            ),
            *_metric(
                "ottla_operator_reconciles_total",
                "counter",
                "Looks at resources, by how they ended.",
                [(f'{{kind="{kind}",result="{it}"}}', float(n)) for (kind, it), n in sorted(self.looks.items())],
            ),
            *_metric(
                "ottla_operator_reconcile_seconds_total",
                "counter",
                "Time that looks took.",
                [(f'{{kind="{kind}"}}', it) for kind, it in sorted(self.seconds.items())],
            ),
            *_metric(
                "ottla_operator_writes_total",
                "counter",
                "Writes to the API server, by kind of object.",
                [(f'{{kind="{kind}"}}', float(count)) for kind, count in sorted(self.writes.items())],
            ),
            *_metric("process_resident_memory_bytes", "gauge", "Memory in RAM.", [("", float(_resident()))]),
            *_metric("process_cpu_seconds_total", "counter", "CPU time.", [("", time.process_time())]),
        ]
        return "\n".join(rows) + "\n"


def _metric(name: str, kind: str, text: str, values: list[tuple[str, float]]) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *(f"{name}{labels} {it:g}" for labels, it in values)]


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    except FileNotFoundError:
        return 0


async def serve(metrics: Metrics, host: str, port: int) -> web.AppRunner:
    """/livez, /readyz and /metrics. An operator that stands by is ready, too, once its watches have shown what there is: the one that it replaces goes only
    then, and nothing happens that nobody sees."""

    async def alive(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(request: web.Request) -> web.Response:
        if metrics.ready:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the watches have not shown yet what there is\n")

    async def figures(request: web.Request) -> web.Response:
        return web.Response(text=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/livez", alive), web.get("/readyz", ready), web.get("/metrics", figures)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host or None, port).start()
    return runner
